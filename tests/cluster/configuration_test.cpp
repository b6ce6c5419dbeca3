// Cluster files: defaults, sources and their precedence, the resolved text, the hash, and every fault with its text.
#include "cluster/configuration.hpp"
#include "cluster/configuration_checks.hpp"
#include "cluster/configuration_keys.hpp"
#include "runtime/base/sha256.hpp"
#include "tests/support/cluster_file.hpp"
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>

using namespace troupe;
using namespace cluster_test;

BOOST_FIXTURE_TEST_SUITE(configuration, written_cluster_file)

BOOST_AUTO_TEST_CASE(what_is_left_out_has_its_default) {
  const cluster_configuration c = correct("[[node]]\nname = \"n0\"\nhost = \"127.0.0.1\"\n"
                                          "[[worker_group]]\nname = \"all\"\n");
  BOOST_TEST(c.cluster.name == "troupe");
  BOOST_CHECK(c.cluster.launcher == launcher_kind::local);
  BOOST_TEST(c.cluster.coordinators == std::vector<std::string>{"n0"});
  BOOST_TEST(c.cluster.orphan_exit_s == 60);
  BOOST_TEST(c.cluster.join_timeout_s == 300);
  BOOST_TEST(c.cluster.max_restarts == 3);
  BOOST_CHECK(c.security.mode == security_mode::loopback);
  BOOST_TEST(c.control.heartbeat_ms == 500);
  BOOST_TEST(c.control.connection_timeout_ms == 2000);
  BOOST_TEST(c.control.unacked_messages == 256);
  BOOST_CHECK(c.data.intra_host == host_carrier::shm);
  BOOST_TEST(c.data.encrypt);
  BOOST_TEST(c.data.waves == 2);
  BOOST_TEST(c.data.kv_credit_mib == 64);
  BOOST_TEST(c.model.path == default_model);
  BOOST_TEST(!c.model.seed.has_value());
  BOOST_TEST(c.engine.at("max-num-seqs") == "64");
  BOOST_TEST(c.engine.count("nextn") == 0); // as the model has it
  BOOST_TEST(c.eplb.policy == "deepinfer");
  BOOST_TEST(c.eplb.min_extra == 32);
  BOOST_TEST(c.eplb.window == 100);
  BOOST_TEST(c.eplb.interval == 1000);
  BOOST_TEST(c.eplb.min_gain == 0.03);
  BOOST_TEST(c.eplb.load_period_steps == 32);
  BOOST_TEST(c.eplb.publish_interval_ms == 50);
  BOOST_TEST(c.eplb.migration_bandwidth_mb_s == 2000);
  BOOST_CHECK(c.ledger.mode == ledger_mode::memory);
  BOOST_TEST(c.worker_group[0].node == std::vector<std::string>{"n0"});
  BOOST_TEST(c.worker_group[0].data_parallel == 1);
  BOOST_TEST(!c.elastic.automatic);
  BOOST_TEST(c.elastic.up_kv_use == 0.85);
  BOOST_TEST(c.elastic.down_s == 300);
  BOOST_TEST(c.gateway.count == 0);
  BOOST_TEST(c.gateway.node == std::vector<std::string>{"n0"});
  BOOST_TEST(c.gateway.queue_requests == 4096);
  BOOST_TEST(c.gateway.queue_tokens == 67108864);
  BOOST_TEST(c.gateway.max_attempts == 8);
  BOOST_TEST(c.gateway.kv_watermark == 0.9);
  BOOST_TEST(c.gateway.unacked_tokens == 64);
  const timeouts_section& t = c.timeouts;
  const std::vector<int> ms{t.hb_ms,          t.suspect_ms,        t.dead_ms,         t.request_ms,  t.lease_ms,
                            t.lease_renew_ms, t.step_decode_ms,    t.step_prefill_ms, t.kv_lease_ms, t.kv_renew_ms,
                            t.handoff_ms,     t.migration_copy_ms, t.stop_ms,         t.prepare_ms,  t.collect_ms};
  BOOST_TEST(ms == (std::vector<int>{200, 1000, 3000, 2000, 3000, 1000, 2000, 30000, 30000, 10000, 60000, 60000, 10000,
                                     5000, 2000}),
             boost::test_tools::per_element());
  BOOST_TEST(t.request_tries == 3);
  BOOST_TEST(t.migration_sources == 3);
  BOOST_TEST(!t.drain.ms.has_value());
  BOOST_TEST(!c.fault.enabled);
}

BOOST_AUTO_TEST_CASE(the_loopback_example_says_what_its_text_says) {
  const cluster_configuration c = read({loopback_example, {}, {}, default_model}).configuration;
  BOOST_TEST(c.cluster.name == "loop3");
  BOOST_TEST(c.model.path == default_model);
  BOOST_TEST(*c.model.seed == 1234u);
  BOOST_TEST(c.engine.at("yoco-keep") == "140");
  BOOST_TEST(c.eplb.window == 20);
  BOOST_CHECK(c.eplb.backup == expert_backup::peer_host);
  BOOST_CHECK(c.ledger.mode == ledger_mode::disk);
  BOOST_TEST(*c.ledger.fsync.ms == 10);
  BOOST_REQUIRE(c.worker_group.size() == 2);
  const engine_options prefill = options_of(c, c.worker_group[0]), decode = options_of(c, c.worker_group[1]);
  BOOST_CHECK(c.worker_group[0].engine == engine_kind::prompt);
  BOOST_TEST(prefill.max_num_batched_tokens == 2048);
  BOOST_TEST(prefill.max_num_seqs == 64);
  BOOST_TEST(decode.max_num_batched_tokens == 512);
  BOOST_TEST(decode.max_num_seqs == 16);
  BOOST_TEST(decode.kv_blocks == 256);
  for (const engine_options& o : {prefill, decode}) {
    BOOST_TEST(o.threads == 1);
    BOOST_TEST(*o.nextn == 5);
    BOOST_TEST(o.yoco == "compact");
    BOOST_TEST(o.yoco_keep == 140);
    BOOST_TEST(*o.seed == 1234u);
    BOOST_TEST(o.max_model_len == 2048);
    BOOST_TEST(o.model == default_model);
    BOOST_TEST(o.device == "cpu");
  }
  BOOST_TEST(std::filesystem::path(c.fault.schedule).filename() == "none.toml");
  BOOST_TEST(std::filesystem::exists(c.fault.schedule));
}

BOOST_AUTO_TEST_CASE(node_patterns_of_the_large_example_are_written_out) {
  const cluster_configuration c = read({large_example, {}, {}, default_model}).configuration;
  BOOST_REQUIRE(c.node.size() == 17);
  BOOST_TEST(c.node[16].name == "gpu017");
  BOOST_TEST(c.node[16].host == "gpu017.cluster");
  BOOST_TEST(c.node[16].gpus == 4);
  BOOST_TEST(c.worker_group[1].node.size() == 16);
  BOOST_TEST(c.worker_group[1].node.front() == "gpu002");
  BOOST_TEST(c.control.bind == "{ip:eth0}");
  BOOST_TEST(c.security.cert == "/etc/troupe/{node}.pem");
  BOOST_TEST(c.model.path == "/models/DeepSeek-V4.1-Flash");
  BOOST_TEST(c.model.max_model_len == 131072);
  BOOST_TEST(c.gateway.node == c.cluster.coordinators);
  BOOST_TEST(c.elastic.max_decode_nodes == 16);
  BOOST_TEST(!c.data.encrypt);
}

BOOST_AUTO_TEST_CASE(environment_wins_over_set_over_file_over_default) {
  const std::string file = small() + "[eplb]\nwindow = 20\n";
  const auto window = [&](std::vector<std::string> set, environment_map environment) {
    const auto r = read_text(file, std::move(set), std::move(environment));
    BOOST_TEST(r.faults.empty());
    return r.configuration.eplb.window;
  };
  BOOST_TEST(correct(small()).eplb.window == 100);
  BOOST_TEST(window({}, {}) == 20);
  BOOST_TEST(window({"eplb.window=30"}, {}) == 30);
  BOOST_TEST(window({"eplb.window=30", "eplb.window=31"}, {}) == 31);
  BOOST_TEST(window({"eplb.window=30"}, {{"TROUPE_EPLB__WINDOW", "40"}}) == 40);
}

BOOST_AUTO_TEST_CASE(set_and_environment_reach_every_kind_of_key) {
  const auto r = read_text(small("gpu-1"),
                           {"cluster.name=123", "security.mode=loopback", "data.encrypt=false", "eplb.min_gain=1",
                            "model.seed=18446744073709551615", "engine.nextn=3", "engine.yoco=\"mask\"",
                            "ledger.fsync=each", "timeouts.drain=2min", "node.gpu-1.gpus=2", "worker_group.0.threads=3",
                            "worker_group.all.max_num_seqs=5", "gateway.node=gpu-1"},
                           {{"TROUPE_WORKER_GROUP__ALL__KV_BLOCKS", "700"},
                            {"TROUPE_NODE__GPU_1__HOST", "127.0.0.2"},
                            {"TROUPE_CLUSTER__COORDINATORS", "[\"gpu-1\"]"},
                            {"TROUPE_MODEL", "/models/other"},
                            {"DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS", "7"},
                            {"DEEPINFER_ENABLE_MTP_VARLEN", "False"},
                            {"DEEPINFER_BATCH_INVARIANT", "1"}});
  BOOST_TEST(texts(r) == "");
  const cluster_configuration& c = r.configuration;
  BOOST_TEST(c.cluster.name == "123");
  BOOST_TEST(!c.data.encrypt);
  BOOST_TEST(c.eplb.min_gain == 1.0);
  BOOST_TEST(*c.model.seed == 18446744073709551615u);
  BOOST_TEST(c.engine.at("nextn") == "3");
  BOOST_TEST(c.engine.at("yoco") == "mask");
  BOOST_TEST(c.engine.at("varlen") == "false");
  BOOST_TEST(*c.ledger.fsync.ms == 0);
  BOOST_TEST(*c.timeouts.drain.ms == 120000);
  BOOST_TEST(c.node[0].gpus == 2);
  BOOST_TEST(c.node[0].host == "127.0.0.2");
  BOOST_TEST(c.worker_group[0].options.at("threads") == "3");
  BOOST_TEST(options_of(c, c.worker_group[0]).max_num_seqs == 5);
  BOOST_TEST(options_of(c, c.worker_group[0]).kv_blocks == 700);
  BOOST_TEST(c.model.path == "/models/other");
  BOOST_TEST(c.eplb.min_extra == 7);
}

// ---- the resolved text and the hash

BOOST_AUTO_TEST_CASE(the_resolved_text_is_read_as_the_same_configuration) {
  for (const std::string& example : {loopback_example, large_example}) {
    const cluster_configuration c = read({example, {}, {}, default_model}).configuration;
    BOOST_CHECK(correct(to_toml(c)) == c);
    BOOST_TEST(configuration_hash(correct(to_toml(c))) == configuration_hash(c));
  }
}

BOOST_AUTO_TEST_CASE(random_configurations_survive_their_text) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    cluster_configuration c = correct(small());
    const auto change = [&random](const configuration_key& k, auto& field) {
      using T = std::remove_reference_t<decltype(field)>;
      const double low = k.low, span = k.high - k.low, part = std::generate_canonical<double, 53>(random);
      if constexpr (std::is_same_v<T, bool>)
        field = part < 0.5;
      else if constexpr (std::is_enum_v<T>)
        field = static_cast<T>(static_cast<std::size_t>(part * choice_texts<T>::of.size()));
      else if constexpr (std::is_same_v<T, double>)
        field = low + part * span;
      else if constexpr (std::is_same_v<T, std::uint64_t>)
        field = (std::uint64_t{random()} << 32) + random();
      else if constexpr (std::is_same_v<T, std::optional<std::uint64_t>>)
        field = part < 0.2 ? std::nullopt : std::optional<std::uint64_t>((std::uint64_t{random()} << 32) + random());
      else if constexpr (std::is_integral_v<T>)
        field = static_cast<T>(low + part * span);
      else if constexpr (std::is_same_v<T, limit_of_time>)
        field.ms = part < 0.3 ? std::nullopt : std::optional<std::int64_t>(part * 1e6);
      else if constexpr (std::is_same_v<T, std::string>) {
        if (k.holds == configuration_key::content::path)
          field = "/a \"path\"\\with'\t\u00e9/" + std::to_string(random());
        else if (!k.allowed.empty())
          field = k.allowed[random() % k.allowed.size()];
      }
    };
    visit_sections(c, [&](const char*, auto& section) { visit_keys(section, change); });
    visit_keys(c.node[0], [&](const configuration_key& k, auto& field) {
      if (std::string_view(k.name) != "name" && std::string_view(k.name) != "host")
        change(k, field);
    });
    c.worker_group[0].options = {{"max-num-seqs", std::to_string(1 + random() % 4096)}, {"async", "false"}};
    c.engine["confidence-temperature"] = "1.5,2";
    c.engine["prefix-cache"] = random() % 2 == 0 ? "true" : "false";
    const auto again = read_text(to_toml(c)); // its values need not go together
    BOOST_CHECK(again.configuration == c);
    BOOST_TEST(to_toml(again.configuration) == to_toml(c));
    BOOST_TEST(configuration_hash(again.configuration) == configuration_hash(c));
  }
}

BOOST_AUTO_TEST_CASE(every_value_but_a_path_changes_the_hash) {
  const cluster_configuration base = read({loopback_example, {}, {}, default_model}).configuration;
  std::set<std::string> seen{configuration_hash(base)};
  int keys = 0;
  const auto hash_differs = [&](const cluster_configuration& c) { return seen.insert(configuration_hash(c)).second; };
  cluster_configuration changed = base;
  const auto each = [&](const configuration_key& k, auto& field) {
    using T = std::remove_reference_t<decltype(field)>;
    const T before = field;
    if constexpr (std::is_same_v<T, bool>)
      field = !field;
    else if constexpr (std::is_enum_v<T>)
      field = static_cast<T>(static_cast<int>(field) == 0 ? 1 : 0);
    else if constexpr (std::is_arithmetic_v<T>)
      field = field + 1;
    else if constexpr (std::is_same_v<T, std::string>)
      field += "x";
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      field.emplace_back("x");
    else if constexpr (std::is_same_v<T, limit_of_time>)
      field.ms = field.ms.value_or(0) + 1;
    else
      field = field.value_or(0) + 1;
    BOOST_TEST(hash_differs(changed) == (k.holds != configuration_key::content::path), k.name);
    field = before;
    ++keys;
  };
  visit_sections(changed, [&](const char*, auto& section) { visit_keys(section, each); });
  visit_keys(changed.node[0], each);
  visit_keys(changed.worker_group[1], each);
  BOOST_TEST(keys > 100);
  changed.engine["nextn"] = "4";
  BOOST_TEST(hash_differs(changed));
  changed.engine["spec-curve"] = "/var/curve.json";
  BOOST_TEST(!hash_differs(changed));
  changed.worker_group[0].options["threads"] = "2";
  BOOST_TEST(hash_differs(changed));
}

BOOST_AUTO_TEST_CASE(the_hash_is_that_of_the_text_without_its_paths) {
  const auto hash = [&](const std::string& text) { return configuration_hash(correct(text)); };
  const std::string shuffled = "# comment\n[[worker_group]]\nname = 'all'\ncount = 1\n[eplb]\nwindow = 100\n"
                               "[[node]]\nhost = \"127.0.0.1\"\nname = \"n0\"\n";
  BOOST_TEST(hash(small()) == hash(shuffled));
  std::istringstream lines(to_toml(correct(small())));
  std::string kept;
  const std::set<std::string> paths{"state_dir", "ca", "cert", "key", "curve_dir", "path", "config", "schedule"};
  for (std::string line; std::getline(lines, line);)
    if (!paths.contains(line.substr(0, line.find(" = "))))
      kept += line + "\n";
  BOOST_TEST(hash(small()) == to_hex(sha256_of(kept)));
}

// ---- faults, each with its whole text

BOOST_AUTO_TEST_CASE(files_that_are_none) {
  const std::string missing = folder / "none.toml";
  BOOST_TEST(texts(read({missing, {}, {}, {}})) ==
             missing + ": the file cannot be read; give an existing file to this command\n");
  const auto torn = read_text("[cluster]\nname = \"a\nstate_dir = 1\n");
  BOOST_TEST(texts(torn).starts_with("FILE:2: this is not TOML: "), texts(torn));
}

BOOST_AUTO_TEST_CASE(unknown_keys_are_refused_with_the_nearest_one) {
  refused("[clutser]\nname = \"x\"\n", "FILE:1: clutser: there is no table of this name; did you mean cluster?");
  refused("speed = 3\n",
          "FILE:1: speed = 3: there is no table of this name; there are cluster, control, data, elastic, engine, eplb, "
          "fault, gateway, ledger, model, node, security, timeouts and worker_group");
  refused("[cluster]\nnmae = \"x\"\n", "FILE:2: cluster.nmae = x: there is no key of this name; did you mean name?");
  refused("[security]\nspeed = 3\n",
          "FILE:2: security.speed = 3: there is no key of this name; there are mode, ca, cert, key and curve_dir");
  refused("[engine]\nmax_num_seq = 3\n",
          "FILE:2: engine.max_num_seq = 3: there is no engine option of this name; did you mean max_num_seqs?");
  refused("[engine]\nep = 2\n",
          "FILE:2: engine.ep = 2: a cluster file has this elsewhere; use worker_group.expert_parallel");
  refused("[engine]\nseed = 2\n", "FILE:2: engine.seed = 2: a cluster file has this elsewhere; use model.seed");
  refused_alone("[[node]]\nname = \"n0\"\nhots = \"127.0.0.1\"\nhost = \"127.0.0.1\"\n[[worker_group]]\nname = \"a\"\n",
                "FILE:3: node.n0.hots = 127.0.0.1: there is no key of this name; did you mean host?");
  const std::string group = "[[node]]\nname = \"n0\"\nhost = \"127.0.0.1\"\n[[worker_group]]\nname = \"a\"\n";
  refused_alone(group + "cuont = 3\n",
                "FILE:6: worker_group.a.cuont = 3: there is no key of this name; did you mean count?");
  refused_alone(
      group + "yoco = \"off\"\n",
      "FILE:6: worker_group.a.yoco = off: this engine option is the same for all groups; move it to [engine]");
  refused("[node]\nname = \"n0\"\n", "FILE:1: node: this is not a list of tables; write [[node]]", false);
  refused("[[cluster]]\nname = \"n0\"\n", "FILE:1: cluster: this is not one table; write [cluster]");
}

BOOST_AUTO_TEST_CASE(values_of_another_type_and_out_of_range) {
  refused("[cluster]\nname = 3\n", "FILE:2: cluster.name = 3: the value has the wrong type; give a text in quotes");
  refused("[cluster]\nadopt = 1\n", "FILE:2: cluster.adopt = 1: the value has the wrong type; give true or false");
  refused("[eplb]\nwindow = 1.5\n", "FILE:2: eplb.window = 1.5: the value has the wrong type; give a whole number");
  refused("[eplb]\nwindow = \"1\"\n", "FILE:2: eplb.window = \"1\": the value has the wrong type; give a whole number");
  refused("[eplb]\nmin_gain = \"x\"\n", "FILE:2: eplb.min_gain = \"x\": the value has the wrong type; give a number");
  refused("[eplb]\nwindow = 0\n",
          "FILE:2: eplb.window = 0: the value is outside of the legal range; give a number from 1 to 1048576");
  refused("[eplb]\nmin_gain = 1.01\n",
          "FILE:2: eplb.min_gain = 1.01: the value is outside of the legal range; give a number from 0 to 1");
  refused("[eplb]\nmin_gain = nan\n",
          "FILE:2: eplb.min_gain = nan: the value is outside of the legal range; give a number from 0 to 1");
  refused("[control]\nport = 65536\n",
          "FILE:2: control.port = 65536: the value is outside of the legal range; give a number from 0 to 65535");
  refused("[eplb]\npolicy = \"deepinfr\"\n",
          "FILE:2: eplb.policy = deepinfr: there is no such value; did you mean deepinfer?");
  refused("[security]\nmode = \"tls\"\n",
          "FILE:2: security.mode = tls: there is no such value; there are loopback and mutual");
  refused("[cluster]\nlauncher = \"slrum\"\n",
          "FILE:2: cluster.launcher = slrum: there is no such value; did you mean slurm?");
  refused("[ledger]\nfsync = 10\n",
          "FILE:2: ledger.fsync = 10: the value has the wrong type; give a text in quotes, like \"10ms\"");
  refused("[ledger]\nfsync = \"10\"\n",
          "FILE:2: ledger.fsync = 10: this is no span of time; give none, each or a number "
          "with ms, s, min or h, like 10ms");
  refused("[timeouts]\ndrain = \"each\"\n", "FILE:2: timeouts.drain = each: this is no span of time; give none or a "
                                            "number with ms, s, min or h, like 10ms");
  refused("[cluster]\ncoordinators = \"n0\"\n",
          "FILE:2: cluster.coordinators = \"n0\": the value has the wrong type; give a list of texts, like [\"n0\"]");
  refused(
      "[cluster]\ncoordinators = [\"n[0\"]\n",
      "FILE:2: cluster.coordinators: \"n[0\": between [ and ] there is no list of numbers or ascending ranges; write "
      "gpu[001-017], or gpu[1,3-5]");
  refused("[engine]\nmax_num_seqs = 0\n", "FILE:2: engine.max_num_seqs = 0: this is not a whole number in the legal "
                                          "range; give a number from 1 to 4096");
  const std::string waits =
      "ttft_bound_steps = 0: prompts that wait for no step wait for no prefill_fill_tokens either: "
      "the two contradict each other; give 1 or more; for prompts that do not wait leave both out";
  refused("[engine]\nprefill_fill_tokens = 64\nttft_bound_steps = 0\n", "FILE:3: engine." + waits);
  const std::string group = "[[node]]\nname = \"n0\"\nhost = \"127.0.0.1\"\n[[worker_group]]\nname = \"a\"\n";
  refused_alone(group + "prefill_fill_tokens = 64\nttft_bound_steps = 0\n", "FILE:7: worker_group.a." + waits);
  const std::string small_step =
      "max_num_batched_tokens = 127: the rows of a step do not fill one cache block, which has 128; give 128 or more";
  refused("[engine]\nmax_num_batched_tokens = 127\n", "FILE:2: engine." + small_step);
  refused_alone(group + "max_num_batched_tokens = 127\n", "FILE:6: worker_group.a." + small_step);
  refused("[engine]\nyoco = \"whole\"\n",
          "FILE:2: engine.yoco = whole: there is no such mode; use off, mask, compact or exact");
  refused("[engine]\nyoco = \"off\"\nyoco_keep = 140\n",
          "FILE:3: engine.yoco_keep = 140: this has no effect while yoco "
          "is off; choose mask or compact, or leave the option out");
  refused("[model]\nseed = -1\n",
          "FILE:2: model.seed = -1: this is not a whole number in the legal range; give a number "
          "from 0 to 18446744073709551615");
}

BOOST_AUTO_TEST_CASE(set_and_environment_name_themselves) {
  const auto with = [&](std::vector<std::string> set, environment_map environment = {}) {
    return texts(read_text(small(), std::move(set), std::move(environment)));
  };
  const std::string not_a_key = ": this is not a key with its value; write --set cluster.name=loop3 or --set "
                                "worker_group.decode.count=4\n";
  BOOST_TEST(with({"cluster.name"}) == "command line: --set = cluster.name" + not_a_key);
  BOOST_TEST(with({"name=x"}) == "command line: --set = name=x" + not_a_key);
  BOOST_TEST(with({"clutser.name=x"}) == "command line: clutser.name = x: there is no table clutser; did you mean "
                                         "cluster?\n");
  BOOST_TEST(with({"cluster.nmae=x"}) ==
             "command line: cluster.nmae = x: there is no key of this name; did you mean name?\n");
  BOOST_TEST(with({"worker_group.count=2"}) == "command line: worker_group.count = 2: a list has several tables; write "
                                               "worker_group.NAME.count\n");
  BOOST_TEST(with({"cluster.x.name=2"}) ==
             "command line: cluster.x.name = 2: this table has no tables of its own; write "
             "cluster.name\n");
  BOOST_TEST(with({"worker_group.al.count=2"}) ==
             "command line: worker_group.al.count = 2: there is no worker_group of "
             "this name; did you mean all?\n");
  BOOST_TEST(with({"eplb.window=many"}) ==
             "command line: eplb.window = many: the value has the wrong type; give a whole "
             "number\n");
  BOOST_TEST(with({}, {{"TROUPE_EPLB__WINDOW", "-1"}}) ==
             "environment: TROUPE_EPLB__WINDOW = -1: the value is outside of the legal range; give a number from 1 to "
             "1048576\n");
  BOOST_TEST(with({}, {{"TROUPE_EPLB__WINDWO", "1"}}) ==
             "environment: TROUPE_EPLB__WINDWO = 1: there is no key of this name; did you mean window?\n");
  BOOST_TEST(with({}, {{"DEEPINFER_NCCL_NUM_SMS", "1"}}) ==
             "environment: DEEPINFER_NCCL_NUM_SMS = 1: this variable has no effect here; unset it\n");
  BOOST_TEST(with({}, {{"TROUPE_LOG", "1"}}) == ""); // no table and key
}

BOOST_AUTO_TEST_CASE(nodes_and_groups) {
  const std::string node = "[[node]]\nname = \"n0\"\nhost = \"127.0.0.1\"\n", // lines 1 to 3
      group = "[[worker_group]]\nname = \"a\"\n";
  refused_alone(group, "FILE: node: there is no node; add [[node]] with name and host");
  refused_alone(node, "FILE: worker_group: there is no worker group; add [[worker_group]] with name, engine and count");
  refused_alone("[[node]]\nhost = \"127.0.0.1\"\n" + group, "FILE:1: node[0].name: the node has no name; give one");
  refused_alone(node + node + group,
                "FILE:4: node.n0: there is a node of this name at FILE:1; give each node a name of its own");
  refused_alone("[[node]]\nname = \"n/0\"\nhost = \"127.0.0.1\"\n" + group,
                "FILE:2: node.n/0.name = n/0: names of files are made of this; give letters, digits, -, _ and dots");
  refused_alone(
      "[[node]]\nname = \"n[0-2]\"\nhost = \"127.0.0.[1-2]\"\n" + node + group,
      "FILE:3: node.n[0-2].host = 127.0.0.[1-2]: 2 hosts stand beside 3 nodes; give a pattern for as many hosts "
      "as there are names");
  refused_alone(node + "[[worker_group]]\ncount = 1\n",
                "FILE:4: worker_group[0].name: a group needs a name of letters, digits, - and _; give one");
  refused_alone(node + group + group,
                "FILE:6: worker_group.a: there is a group of this name at FILE:4; give each group a name of its own");
  refused_alone(node + group + "node = [\"n1\"]\n",
                "FILE:6: worker_group.a.node = n1: there is no node of this name; did you mean n0?");
  refused_alone(node + group + "node = [\"n0\", \"n0\"]\n",
                "FILE:6: worker_group.a.node = n0: the node is named twice; leave one of them out");
  refused("[cluster]\ncoordinators = [\"nx\"]\n",
          "FILE:2: cluster.coordinators = nx: there is no node of this name; did you mean n0?");
  refused("[gateway]\nnode = [\"head\"]\n", "FILE:2: gateway.node = head: there is no node of this name; there are n0");
  refused("[cluster]\nname = \"a/b\"\n",
          "FILE:2: cluster.name = a/b: names of files and shared memory are made of this; "
          "give 1 to 32 letters, digits, - and _");
  refused("[cluster]\nstate_dir = \"state\"\n",
          "FILE:2: cluster.state_dir = state: processes start in different folders; give an absolute path");
}

BOOST_AUTO_TEST_CASE(parallelism_divides) {
  const std::string node = "[[node]]\nname = \"n0\"\nhost = \"127.0.0.1\"\ngpus = 4\n";
  const auto group = [&](const std::string& keys) { return node + "[[worker_group]]\nname = \"a\"\n" + keys; };
  refused_alone(group("count = 3\nexpert_parallel = 2\n"), "FILE:7: worker_group.a.count = 3: it is no multiple of "
                                                           "context_parallel x data_parallel = 1 x 2; give 2");
  refused_alone(group("count = 1\ncontext_parallel = 2\n"), "FILE:7: worker_group.a.count = 1: it is no multiple of "
                                                            "context_parallel x data_parallel = 2 x 1; give 2");
  refused_alone(
      group("count = 3\nexpert_parallel = 2\ndata_parallel = 3\n"),
      "FILE:8: worker_group.a.expert_parallel = 2: it does not divide context_parallel x data_parallel = 1 x 3; "
      "give a divisor of it, or another data_parallel");
  refused_alone(
      group("count = 5\ndevice = \"cuda\"\n"),
      "FILE:7: worker_group.a.count = 5: its node have 4 GPUs left for it; give fewer ranks, more nodes, or the "
      "node's gpus");
  refused_alone(group("engine = \"prompt\"\n"), "FILE:7: worker_group.a.engine = prompt: no group takes over its "
                                                "prompts; add a group with engine completion, or use normal");
  refused_alone(group("engine = \"completion\"\n"), "FILE:7: worker_group.a.engine = completion: no group computes "
                                                    "prompts for it; add a group with engine prompt, or use normal");
  refused_alone(
      group("engine = \"prompt\"\n") + "[[worker_group]]\nname = \"b\"\nengine = \"completion\"\ncount = 2\n"
                                       "context_parallel = 2\n",
      "FILE:12: worker_group.b.context_parallel = 2: an engine that computes no prompts has nothing to share; "
      "give 1");
  refused_alone(
      group("") + "[[worker_group]]\nname = \"b\"\ndevice = \"cuda\"\n",
      "FILE:9: worker_group.b.device = cuda: group a does the same work on cpu, whose results have other bits; "
      "use one of them for both");
}

BOOST_AUTO_TEST_CASE(what_listens_where) {
  refused(
      "[control]\nbind = \"0.0.0.0\"\n",
      "FILE:2: control.bind = 0.0.0.0: with security.mode loopback other machines must not reach it; use 127.0.0.1, "
      "or security.mode = \"mutual\" with keys");
  refused(
      "[data]\nbind = \"10.0.0.1\"\n",
      "FILE:2: data.bind = 10.0.0.1: with security.mode loopback other machines must not reach it; use 127.0.0.1, or "
      "security.mode = \"mutual\" with keys");
  refused("[gateway]\nbind = \"everywhere\"\n",
          "FILE:2: gateway.bind = everywhere: this is no address; give an IPv4 or "
          "IPv6 address, or {ip:eth0} for that of an interface");
  refused("[data]\nbind = \"{ip:nosuch0}\"\n",
          "FILE:2: data.bind = {ip:nosuch0}: this host has no interface nosuch0 with an address; name an interface of "
          "every host, or give an address");
  BOOST_TEST(texts(read_text("[data]\nbind = \"{ip:lo}\"\n[control]\nbind = \"::1\"\n" + small())) == "");
  refused_alone(
      "[[node]]\nname = \"far\"\nhost = \"203.0.113.1\"\n[[worker_group]]\nname = \"a\"\n",
      "FILE:3: node.far.host = 203.0.113.1: with security.mode loopback processes listen on this machine only; "
      "use 127.0.0.1, or security.mode = \"mutual\"");
  const std::string keys =
                        "[security]\nmode = \"mutual\"\nca = \"/x\"\ncert = \"/x\"\nkey = \"/x\"\ncurve_dir = \"/x\"\n"
                        "[control]\nbind = \"0.0.0.0\"\n[data]\nbind = \"0.0.0.0\"\n[gateway]\nbind = \"0.0.0.0\"\n",
                    far = "[[node]]\nname = \"far[1-2]\"\nhost = \"203.0.113.[1-2]\"\n[[worker_group]]\nname = \"a\"\n";
  refused_alone(keys + far,
                "FILE:15: node.far1.host = 203.0.113.1: launcher local starts processes on this machine only; "
                "use launcher ssh, slurm, k8s or manual");
  const auto manual = read_text(keys + "[cluster]\nlauncher = \"manual\"\n" + far);
  BOOST_TEST(texts(manual) == "");
  BOOST_TEST(manual.notes == std::vector<std::string>{"key files are not checked: none of the nodes is this machine"});
  BOOST_TEST(texts(read_text(keys + "[cluster]\nlauncher = \"manual\"\n" + far, {"control.bind=127.0.0.1"})) ==
             "command line: control.bind = 127.0.0.1: the other hosts cannot reach it; give an address of the network, "
             "or {ip:eth0}\n");
}

BOOST_AUTO_TEST_CASE(key_files_of_this_machine) {
  const std::string ca = folder / "ca.pem", key = folder / "n0.key", base = folder / "";
  test_support::write_text(ca, "");
  test_support::write_text(key, "");
  std::filesystem::permissions(key, std::filesystem::perms(0644));
  const std::string text = "[security]\nmode = \"mutual\"\nca = \"" + ca + "\"\ncert = \"" + base +
                           "{node}.pem\"\nkey = \"" + base + "{node}.key\"\n" + small();
  BOOST_TEST(texts(read_text(text)) ==
             "FILE: security.curve_dir: security.mode mutual needs it; give a path; troupe keygen DIR makes the files\n"
             "FILE:4: security.cert = " +
                 base +
                 "n0.pem: there is no such file on this machine; make it with troupe "
                 "keygen, or correct the path\n"
                 "FILE:5: security.key = " +
                 key + ": others than its owner may use the private key; chmod 600 " + key + "\n");
  test_support::write_text(base + "n0.pem", "");
  std::filesystem::permissions(key, std::filesystem::perms(0600));
  const std::string client = folder / "client.key";
  test_support::write_text(client, "");
  std::filesystem::permissions(client, std::filesystem::perms(0640));
  BOOST_TEST(texts(read_text(text, {"security.curve_dir=" + base})) ==
             "FILE:5: security.key = " + client + ": others than its owner may use the private key; chmod 600 " +
                 client + "\n");
  std::filesystem::permissions(client, std::filesystem::perms(0600));
  BOOST_TEST(texts(read_text(text, {"security.curve_dir=" + base})) == "");
}

BOOST_AUTO_TEST_CASE(ports_collide_or_end) {
  refused("[gateway]\ncount = 1\nport = 47003\n",
          "FILE:3: gateway.port = 47003: port 47003 of gateway 0 is also that of rank 0 "
          "(control.port = 47000); move one of them");
  refused("[data]\nport = 47000\n", "FILE:2: data.port = 47000: port 47000 of rank 0 is also that of node n0 "
                                    "(control.port = 47000); move one of them");
  refused("[control]\nport = 65534\n",
          "FILE:2: control.port = 65534: rank 0 would have port 65536; give a smaller one");
  BOOST_TEST(texts(read_text("[control]\nport = 0\n[data]\nport = 0\n[gateway]\nport = 0\n" + small())) == "");
  // Two addresses of one host may have the same port.
  BOOST_TEST(texts(read_text("[gateway]\ncount = 1\nbind = \"127.0.0.2\"\nport = 47003\n" + small())) == "");
}

BOOST_AUTO_TEST_CASE(times_and_numbers_that_belong_together) {
  refused("[timeouts]\nhb_ms = 1000\n", "FILE:2: timeouts.hb_ms = 1000: timeouts.suspect_ms = 1000: a worker would be "
                                        "suspected between two heartbeats; give less than 1000");
  refused("[timeouts]\ndead_ms = 1000\nsuspect_ms = 1000\n[control]\nconnection_timeout_ms = 900\n",
          "FILE:2: timeouts.dead_ms = 1000: timeouts.suspect_ms = 1000: a worker would be dead before it is suspected; "
          "give more than 1000");
  refused(
      "[control]\nheartbeat_ms = 2000\n",
      "FILE:2: control.heartbeat_ms = 2000: control.connection_timeout_ms = 2000: connections would be closed between "
      "two heartbeats; give less than 2000");
  refused(
      "[control]\nconnection_timeout_ms = 3001\n",
      "FILE:2: control.connection_timeout_ms = 3001: timeouts.dead_ms = 3000: a lost connection would be seen after "
      "its worker is dead; give at most 3000");
  refused("[timeouts]\nlease_ms = 1600\n",
          "FILE:2: timeouts.lease_ms = 1600: a leader stops lease_margin_ms = 600 before "
          "its lease ends and renews it every lease_renew_ms = 1000; give more than 1600");
  refused(
      "[timeouts]\nprepare_ms = 1000\n",
      "FILE:2: timeouts.prepare_ms = 1000: timeouts.suspect_ms = 1000: a process would be dead for a view that it has "
      "not prepared before it is suspected; give more than 1000");
  refused("[timeouts]\nkv_lease_ms = 10000\n",
          "FILE:2: timeouts.kv_lease_ms = 10000: timeouts.kv_renew_ms = 10000: reservations would end before they are "
          "renewed; give more than 10000");
  refused("[cluster]\nrestart_backoff_ms = 30001\n",
          "FILE:2: cluster.restart_backoff_ms = 30001: it is above restart_backoff_max_ms = 30000; give less");
  refused("[eplb]\nwindow = 100\ninterval = 99\n", "FILE:2: eplb.window = 100: more steps than lie between two plans "
                                                   "(eplb.interval = 99); give a window of at most the interval");
  refused("[elastic]\ndown_kv_use = 0.9\n",
          "FILE:2: elastic.down_kv_use = 0.9: it is not below up_kv_use = 0.85: nodes would come and go; give less");
  refused("[elastic]\nmax_decode_nodes = 2\n",
          "FILE:2: elastic.max_decode_nodes = 2: the groups that it is about name 1 nodes; give fewer, or add nodes to "
          "their group");
  refused("[fault]\nenabled = true\n[cluster]\nprofile = \"production\"\n",
          "FILE:2: fault.enabled = true: a production cluster injects no faults; set it to false, or cluster.profile = "
          "\"development\"");
  refused("[fault]\nenabled = true\nschedule = \"/nonexistent/a.toml\"\n",
          "FILE:3: fault.schedule = /nonexistent/a.toml: there is no such file; correct the path, or leave it out");
  const auto extra = read({loopback_example, {"eplb.min_extra=0"}, {}, default_model});
  BOOST_TEST(texts(extra) ==
             "command line: eplb.min_extra = 0: without a redundant expert no expert can move; give 1 or "
             "more, or eplb.policy = \"static\"\n");
  BOOST_TEST(texts(read({loopback_example, {"eplb.min_extra=0", "eplb.policy=static"}, {}, default_model})) == "");
}

BOOST_AUTO_TEST_CASE(all_faults_are_reported_at_once) {
  const std::string said = texts(read_text("[cluster]\nnmae = \"x\"\nlauncher = \"slrum\"\n[eplb]\nwindow = 2000\n"
                                           "[control]\nbind = \"0.0.0.0\"\n" +
                                               small(),
                                           {"data.port=99999"}, {{"TROUPE_EPLB__POLICY", "best"}}));
  for (const char* part : {"FILE:2: cluster.nmae", "FILE:3: cluster.launcher", "FILE:5: eplb.window",
                           "FILE:7: control.bind", "command line: data.port", "environment: TROUPE_EPLB__POLICY"})
    BOOST_TEST(said.find(part) != said.npos, part << " is missing in " << said);
  BOOST_TEST(std::count(said.begin(), said.end(), '\n') == 6);
}

BOOST_AUTO_TEST_CASE(what_acts_otherwise_than_one_may_think_is_noted) {
  BOOST_TEST(
      read({loopback_example, {}, {}, default_model}).notes ==
          (std::vector<std::string>{
              "eplb.backup peer_host has one host: lost experts come from the checkpoint",
              "nothing acts on these keys in this version: eplb.backup, eplb.interval, fault.enabled, fault.schedule, "
              "fault.seed"}),
      boost::test_tools::per_element());
  const auto large = read({large_example, {}, {}, default_model}).notes;
  BOOST_REQUIRE(large.size() == 3u);
  BOOST_TEST(large[0] == "key files are not checked: none of the nodes is this machine");
  BOOST_TEST(large[1] == "group prefill lies on one node: eplb.spread node keeps copies on different ranks there");
  BOOST_TEST(large[2].starts_with("nothing acts on these keys in this version: elastic.max_decode_nodes, "));
  BOOST_TEST(read_text(small()).notes.empty());
}

// A right configuration that this version cannot start: where, what, why, what to do.
BOOST_AUTO_TEST_CASE(what_cannot_be_launched_is_named_with_its_line) {
  const auto why = [&](const std::string& text) {
    const auto r = read_text(text);
    BOOST_TEST(texts(r) == "");
    configuration_reading one;
    if (const auto fault = launch_fault(r))
      one.faults.push_back(*fault);
    return texts(one);
  };
  BOOST_TEST(why(small()) == "");
  BOOST_TEST(why("[cluster]\nlauncher = \"slurm\"\n" + small()) ==
             "FILE:2: cluster.launcher = slurm: is not built yet; use launcher = \"local\", \"ssh\" or \"manual\"\n");
  BOOST_TEST(why("[cluster]\nlauncher = \"ssh\"\n[control]\n\nport = 0\n" + small())
                 .starts_with("FILE:5: control.port = 0: other hosts cannot know which ports are free here; "));
  const std::string hosts = "[[node]]\nname = \"n0\"\nhost = \"127.0.0.1\"\n"
                            "[[node]]\nname = \"n1\"\nhost = \"127.0.0.2\"\n";
  BOOST_TEST(why(hosts + "[[worker_group]]\nname = \"all\"\ncount = 2\nexpert_parallel = 2\n")
                 .starts_with("FILE:10: worker_group.all.expert_parallel = 2: caches and rows would travel between "
                              "hosts unencrypted; "));
}

BOOST_AUTO_TEST_CASE(names_are_parts_of_names_of_segments) {
  const std::string longest(64, 'n'), longer(65, 'n');
  BOOST_TEST(texts(read_text(small(longest))) == "");
  BOOST_TEST(texts(read_text(small(longer)))
                 .find(": names of shared memory and of files are made of this; give at most "
                       "64 characters") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
