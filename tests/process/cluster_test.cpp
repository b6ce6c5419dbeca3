// Clusters of real processes on loopback: the bytes of one process whatever is killed, and nothing left behind.
#include "tests/process/running_cluster.hpp"
#include "tests/support/metric_text.hpp"
#include <regex>
#include <set>

using namespace process_test;
using namespace std::chrono_literals;

namespace {

// Sums over the workers.
std::uint64_t handoffs_of(const nlohmann::json& status, const char* what) {
  std::uint64_t sum = 0;
  for (const auto& m : status["members"])
    if (!m["handoffs"].is_null())
      sum += m["handoffs"][what].get<std::uint64_t>();
  return sum;
}

// The steps that a worker has taken.
std::uint64_t steps_of(const nlohmann::json& status, const std::string& name) {
  for (const auto& m : status["members"])
    if (m["name"] == name)
      return m["steps"].get<std::uint64_t>();
  return 0;
}

// Drafts that the workers' verifiers have heard of.
std::uint64_t drafts_known(const nlohmann::json& status) {
  std::uint64_t drafts = 0;
  for (const auto& m : status["members"])
    if (!m["speculation"].is_null())
      drafts += m["speculation"]["drafts"].get<std::uint64_t>();
  return drafts;
}

// What the workers' verifiers know is of the drafts that the results count, and its parts agree.
void check_speculation(const nlohmann::json& status, std::uint64_t verified, std::uint64_t right) {
  std::uint64_t accepted = 0;
  for (const auto& m : status["members"]) {
    const nlohmann::json& s = m["speculation"];
    if (s.is_null())
      continue;
    accepted += s["accepted"].get<std::uint64_t>();
    BOOST_TEST(s["budgets"] > 0);
    BOOST_REQUIRE(s["engines"].size() == 1u);
    BOOST_TEST(s["engines"][0]["rows"] >= s["engines"][0]["sequences"]);
    BOOST_TEST(s["not_finite"] == 0);
    BOOST_TEST(s["positions"].size() > 1u);
    double by_position = 0;
    for (const auto& p : s["positions"]) {
      std::uint64_t in_curve = 0;
      for (const auto& bin : p["curve"]) {
        in_curve += bin["drafts"].get<std::uint64_t>();
        BOOST_TEST((bin["confidence"] >= bin["from"] && bin["confidence"] <= bin["to"]), bin.dump());
      }
      BOOST_TEST(p["drafts"] == in_curve);
      BOOST_TEST((p["confidence"] >= 0 && p["confidence"] <= 1));
      by_position += p["accepted"].get<double>() * p["drafts"].get<double>();
    }
    BOOST_TEST(std::abs(by_position - s["accepted"].get<double>()) < 1e-6);
  }
  BOOST_TEST((verified > 0 && right > 0));
  BOOST_TEST(drafts_known(status) == verified);
  BOOST_TEST((accepted >= right && accepted <= verified)); // drafts behind an end are judged, but not given out
}

// Requests of every kind, half of them with long prompts that have nothing in common.
std::string long_lines(int count) {
  std::string lines;
  for (auto line : json_lines(mixed_lines(count))) {
    const int i = std::stoi(line["id"].get<std::string>().substr(1));
    std::string prompt = "Notes of day " + std::to_string(i) + ". ";
    for (int k = 0; i % 2 == 0 && k < 44; ++k)
      prompt += "The quick brown fox jumps over the lazy dog. ";
    line["prompt"] = prompt + line["prompt"].get<std::string>();
    lines += line.dump() + "\n";
  }
  return lines;
}

// Decode workers 0 and 1 are ranks of one engine. It serves, and each has computed every step.
void compute_together(running_cluster& c, const std::string& lines,
                      const std::map<std::string, std::string>& expected) {
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  BOOST_TEST(up.err == "");
  const auto run = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file});
  BOOST_TEST(run.err == "");
  check_equal(by_id(run.out), expected);
  c.wait_until([](const nlohmann::json& s) {
    return steps_of(s, "decode.0") > 20 && steps_of(s, "decode.0") == steps_of(s, "decode.1");
  });
}

// Whichever of them is killed, both are started anew, and no byte changes.
void end_together(running_cluster& c, const std::string& lines, const std::map<std::string, std::string>& expected) {
  for (const std::string victim : {"decode.1", "decode.0"}) {
    const auto incarnations = [&] {
      return std::pair(c.record("decode.0")["incarnation"].get<std::uint64_t>(),
                       c.record("decode.1")["incarnation"].get<std::uint64_t>());
    };
    const auto before = incarnations();
    const std::uint64_t steps = steps_of(c.status(), "decode.0");
    running_batch batch(c, lines);
    c.wait_until([&](const nlohmann::json& s) { return steps_of(s, "decode.0") > steps + 10; });
    c.kill(victim);
    check_equal(batch.results(), expected);
    c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
    BOOST_TEST(incarnations().first != before.first); // the whole engine was started anew
    BOOST_TEST(incarnations().second != before.second);
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(cluster_verbs)

BOOST_AUTO_TEST_CASE(a_cluster_gives_the_bytes_of_one_process_and_leaves_nothing) {
  running_cluster c({.workers = 3});
  const std::string lines = mixed_lines(16);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  const std::string endpoint = up.out.substr(0, up.out.find('\n'));
  BOOST_TEST(endpoint.starts_with("127.0.0.1:"));
  BOOST_TEST(c.launch().out == up.out); // runs already
  const auto status = c.status();
  BOOST_TEST(status["status"] == "ok");
  BOOST_TEST(status["members"].size() == 4u);
  const auto expected = alone(lines);
  const temporary_folder folder;
  const std::string metrics = folder / "m.prom";
  BOOST_TEST(!contains(run_troupe({"status", c.file}).out, "accepted/confidence"));
  std::uint64_t drafted = 0, right = 0;
  for (const std::string& where : {c.file, endpoint}) {
    const auto run = troupe_reading(lines, {"batch", "-", "-", "--cluster", where, "--metrics", metrics});
    BOOST_TEST(run.exit_code == 0);
    BOOST_TEST(run.err == "");
    check_equal(by_id(run.out), expected);
    for (const auto& line : json_lines(run.out)) {
      drafted += line["usage"]["drafted"].get<std::uint64_t>();
      right += line["usage"]["accepted"].get<std::uint64_t>();
    }
    // What only the workers know is left out: constants would look like measurements.
    const std::string text = test_support::read_text(metrics);
    BOOST_TEST(test_support::metric(text, "request_success_total") == static_cast<double>(expected.size()));
    BOOST_TEST(test_support::metric(text, "steps_total") > 0);
    for (const char* elsewhere :
         {"grammar_", "spec_decode_budget_rows", "spec_decode_reliability", "spec_decode_useless"})
      BOOST_TEST(!contains(text, std::string("troupe:") + elsewhere), elsewhere);
  }
  c.wait_until([&](const nlohmann::json& s) { return drafts_known(s) >= drafted; });
  check_speculation(c.status(), drafted, right);
  BOOST_TEST(contains(run_troupe({"status", c.file}).out, "accepted/confidence by position\ndecode."));
  const auto other = run_troupe({"launch", c.file, "--set", "timeouts.dead_ms=4000"});
  BOOST_TEST(other.exit_code == 2);
  BOOST_TEST(contains(other.err, "a cluster of another configuration runs there"));
  const std::string log = run_troupe({"logs", c.file, "decode.1"}).out;
  BOOST_TEST(
      std::regex_search(log, std::regex("\n[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z troupe: event=worker_up "
                                        "worker=decode.1 rank=1 ")),
      log);
  for (const std::string& where : {c.file, endpoint}) {
    const auto asked = run_troupe({"status", "--cluster", where, "--json"});
    BOOST_TEST(asked.exit_code == 0, asked.err);
    BOOST_TEST(contains(asked.out, "\"name\":\"decode.2\",\"role\":\"worker\",\"state\":\"active\""), asked.out);
  }
  BOOST_TEST(contains(run_troupe({"status", "127.0.0.1"}).err, "is neither a file nor an address with a port"));
  BOOST_TEST(
      contains(run_troupe({"status", endpoint, "--set", "cluster.name=x"}).err, "--set = cluster.name=x: has no"));
  const auto stopped = run_troupe({"stop", c.file});
  BOOST_TEST(stopped.exit_code == 0);
  BOOST_TEST(stopped.err == "");
  BOOST_TEST(contains(run_troupe({"stop", c.file}).err, "nothing of it runs on this host"));
  c.expect_nothing_left();
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0); // nothing to stop is no fault
  // Whom they asked is not there: no fault of the question.
  const auto asked_in_vain = [](const std::vector<std::string>& arguments, const std::string& why) {
    const auto run = run_troupe(arguments);
    BOOST_TEST(run.exit_code == 5, run.err);
    BOOST_TEST(contains(run.err, why), run.err);
  };
  const std::vector<std::string> move{"--layer", "0", "--expert", "0", "--to", "1"};
  for (const auto& [where, why] :
       {std::pair<std::string, std::string>{c.file, "no coordinator of " + c.name + " runs on"},
        {endpoint, "give the address and port that troupe launch printed"}}) {
    asked_in_vain({"status", where}, why);
    asked_in_vain({"migrate", where, move[0], move[1], move[2], move[3], move[4], move[5]}, why);
  }
}

BOOST_AUTO_TEST_CASE(who_only_asks_leaves_nothing_on_his_machine) {
  running_cluster c({.workers = 1, .port = free_port()});
  const auto names = [](const std::string& folder) {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      all.insert(entry.path().filename());
    return all;
  };
  BOOST_TEST(run_troupe({"status", c.file}).exit_code == 5);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  BOOST_TEST(run_troupe({"logs", c.file}).out == "");
  BOOST_TEST((names(c.folder / "") == std::set<std::string>{"cluster.toml"}));
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  const temporary_folder elsewhere; // another machine has no such folder yet
  process_options options;
  options.environment["TROUPE_CLUSTER__STATE_DIR"] = elsewhere / "state";
  const auto asked = run_troupe({"status", up.out.substr(0, up.out.find('\n')), "--json"}, options);
  BOOST_TEST(asked.exit_code == 0, asked.err);
  BOOST_TEST(contains(asked.out, "\"leader\":\"coordinator.0\""), asked.out);
  BOOST_TEST(names(elsewhere / "").empty());
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(c19_killed_workers_are_started_anew_and_no_byte_changes) {
  running_cluster c({});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  c.require_launch();
  running_batch batch(c, lines);
  const auto incarnation = c.record("decode.0")["incarnation"].get<std::uint64_t>();
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill("decode.0");
  c.kill("decode.1"); // for a while nobody is there
  check_equal(batch.results(), expected);
  c.wait_until([](const nlohmann::json& status) { return status["status"] == "ok"; });
  BOOST_TEST(c.record("decode.0")["incarnation"].get<std::uint64_t>() != incarnation);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

// It is silent and holds its connections; nobody but its node agent can make room for another.
BOOST_AUTO_TEST_CASE(a_frozen_worker_is_replaced_and_no_byte_changes) {
  running_cluster c({});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  c.require_launch();
  running_batch batch(c, lines);
  const auto incarnation = c.record("decode.0")["incarnation"].get<std::uint64_t>();
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill("decode.0", SIGSTOP);
  check_equal(batch.results(), expected);
  c.wait_until([&](const nlohmann::json& s) {
    for (const auto& m : s["members"])
      if (m["name"] == "decode.0" && m["state"] == "active")
        return m["incarnation"].get<std::uint64_t>() != incarnation;
    return false;
  });
  BOOST_TEST(contains(run_troupe({"logs", c.file, "node.n0"}).out, "event=worker_held_for_dead worker=decode.0"));
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(ranks_share_experts_that_move_and_one_of_them_is_killed) {
  running_cluster c({.group_keys = "expert_parallel = 2\n"});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  BOOST_TEST(up.err == "");
  const auto group_of = [](const nlohmann::json& status) { return status["expert_groups"].at(0); };
  c.wait_until([&](const nlohmann::json& s) { return group_of(s)["state"] == "serving"; });
  const auto group = group_of(c.status());
  BOOST_TEST(group["name"] == "decode.0");
  BOOST_TEST(group["ranks"] == 2);
  BOOST_TEST(group["slots_per_rank"] == 14); // 24 experts and 4 redundant ones
  const auto move = [&](const std::string& layer, const std::string& expert, const std::string& to) {
    return run_troupe({"migrate", "--cluster", c.file, "--layer", layer, "--expert", expert, "--to", to});
  };
  {
    running_batch batch(c, lines);
    c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
    for (const std::string layer : {"3", "2", "1"})
      for (const auto& [expert, slot] : {std::pair("5", "11"), std::pair("6", "12")}) { // where a second copy lies
        const auto moved = move(layer, expert, std::string("1:") + slot);
        BOOST_TEST(moved.exit_code == 0, moved.err);
        BOOST_TEST(contains(moved.out, std::string("expert ") + expert + " of layer " + layer + " is in slot " + slot +
                                           " of rank 1, version "));
      }
    BOOST_TEST(!batch.ended());
    check_equal(batch.results(), expected);
  }
  running_batch batch(c, lines);
  const std::uint64_t steps = steps_of(c.status());
  c.wait_until([&](const nlohmann::json& status) { return steps_of(status) > steps + 10; });
  const auto last = move("3", "5", "1:0");
  BOOST_TEST(last.exit_code == 6);
  BOOST_TEST(contains(last.err, "slot 0 of rank 1 holds the last copy of expert 14"));
  BOOST_TEST(contains(move("0", "0", "7").err, "rank 7 shares experts with no other"));
  BOOST_TEST(move("0", "0", "x").exit_code == 2);
  c.kill("decode.1");
  check_equal(batch.results(), expected);
  c.wait_until([&](const nlohmann::json& s) { return s["status"] == "ok" && group_of(s)["state"] == "serving"; });
  BOOST_TEST(group_of(c.status())["pver"].get<int>() > group["pver"].get<int>());
  BOOST_TEST(contains(run_troupe({"status", c.file}).out, "expert group decode.0: ranks 0 to 1, serving"));
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

// The verifier in the first rank decides for both, and again when its process was killed and started anew.
BOOST_AUTO_TEST_CASE(ranks_that_share_experts_have_one_verifier) {
  running_cluster c({.group_keys = "expert_parallel = 2\n"});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  const auto batch = [&] { return by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out); };
  const auto both = [](const nlohmann::json& status) {
    for (const auto& m : status["members"])
      if (m["name"] == "decode.0" && !m["speculation"].is_null())
        return m["speculation"]["engines"].size() == 2;
    return false;
  };
  check_equal(batch(), expected);
  c.wait_until(both);
  BOOST_TEST(contains(run_troupe({"status", c.file}).out, "of 2 engines"));
  const std::uint64_t steps = steps_of(c.status(), "decode.1");
  running_batch during(c, lines);
  c.wait_until([&](const nlohmann::json& s) { return steps_of(s, "decode.1") > steps + 10; });
  c.kill("decode.0");
  check_equal(during.results(), expected);
  c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
  check_equal(batch(), expected);
  c.wait_until(both);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(two_workers_compute_prompts_together_and_end_together) {
  running_cluster c({.group_keys = "context_parallel = 2\n"});
  const std::string lines = long_lines(16);
  const auto expected = alone(lines);
  compute_together(c, lines, expected);
  const auto members = c.status()["members"];
  for (const auto& m : members)
    if (m["role"] == "worker")
      BOOST_TEST(m["cp_rank"] == m["rank"]);
  BOOST_TEST(contains(run_troupe({"status", c.file}).out,
                      "engine 0 of decode: ranks 0 to 1 compute prompts together, decode.0 takes requests"));
  end_together(c, lines, expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

// Nodes share no memory, whatever host they are on: steps go over a TCP link, rows over ZeroMQ. The ranks of an engine
// are one failure unit all the same.
BOOST_AUTO_TEST_CASE(workers_on_two_nodes_compute_prompts_together_and_end_together) {
  running_cluster c({.nodes = 2, .group_keys = "context_parallel = 2\n", .on = "\"n0\", \"n1\""});
  const std::string lines = long_lines(16);
  const auto expected = alone(lines);
  compute_together(c, lines, expected);
  for (const auto& m : c.status()["members"])
    if (m["role"] == "worker")
      BOOST_TEST(m["node"] == "n" + m["rank"].dump());
  BOOST_TEST(contains(run_troupe({"logs", c.file, "decode.0"}).out, "event=steps_linked to=decode.1 at=127.0.0.1:"));
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) // only the board of the steps on n1
    if (const std::string name = entry.path().filename(); name.starts_with("troupe." + c.name + "."))
      BOOST_TEST((name.starts_with("troupe." + c.name + ".n1.cp0.") && name.ends_with("-steps")), name);
  end_together(c, lines, expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(engines_of_two_workers_share_experts_and_outlive_one_of_them) {
  running_cluster c({.workers = 4, .group_keys = "context_parallel = 2\nexpert_parallel = 4\ndata_parallel = 2\n"});
  const std::string lines = long_lines(16);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  c.wait_until([](const nlohmann::json& s) {
    return steps_of(s, "decode.1") > 0 && steps_of(s, "decode.0") == steps_of(s, "decode.1") &&
           steps_of(s, "decode.2") == steps_of(s, "decode.3");
  });
  running_batch batch(c, lines);
  const std::uint64_t before = steps_of(c.status());
  c.wait_until([&](const nlohmann::json& s) { return steps_of(s) > before + 10; });
  c.kill("decode.3"); // all others miss its experts
  check_equal(batch.results(), expected);
  c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(work_goes_on_without_a_coordinator_and_launch_brings_one_back) {
  running_cluster c({.port = free_port()});
  const std::string lines = mixed_lines(16);
  const auto expected = alone(lines);
  c.require_launch();
  running_batch batch(c, lines);
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill("coordinator.0");
  check_equal(batch.results(), expected);
  BOOST_TEST(run_troupe({"status", c.file}).exit_code == 5);
  BOOST_TEST(c.launch().exit_code == 0);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(another_coordinator_takes_over_and_no_byte_changes) {
  running_cluster c({.nodes = 3, .coordinators = "\"n0\", \"n1\"", .group_keys = "expert_parallel = 2\n"});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  c.require_launch();
  const auto before = c.status();
  const std::string first = before["leader"], second = first == "coordinator.0" ? "coordinator.1" : "coordinator.0";
  running_batch batch(c, lines);
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill(first);
  c.wait_until([&](const nlohmann::json& s) { return s["leader"] == second && s["status"] == "ok"; });
  c.kill("decode.0"); // the new leader sees to it, as the old one would have
  check_equal(batch.results(), expected);
  c.wait_until([&](const nlohmann::json& s) { return s["leader"] == second && s["status"] == "ok"; });
  BOOST_TEST(c.status()["term"].get<std::uint64_t>() > before["term"].get<std::uint64_t>());
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

// Control over TLS; caches of prompts and rows for experts over ZeroMQ with CURVE.
BOOST_AUTO_TEST_CASE(processes_with_keys_trust_nobody_else) {
  const temporary_folder keys, others;
  const auto security = [](const temporary_folder& folder) {
    const auto made = run_troupe({"keygen", folder / "keys", "--node", "n0"});
    BOOST_REQUIRE_MESSAGE(made.exit_code == 0, made.err);
    return made.out.substr(made.out.find("mode = "));
  };
  running_cluster c({.prompts = 1,
                     .security = security(keys),
                     .group_keys = "expert_parallel = 2\n",
                     .other_keys = "[data]\nport = 0\nintra_host = \"tcp\"\n"});
  const std::string lines = mixed_lines(8);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  BOOST_TEST(c.status()["status"] == "ok");
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  c.wait_until([](const nlohmann::json& s) { return handoffs_of(s, "received") > 0; }); // told with the next beat
  std::ifstream in(c.file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto refused = [&](const std::string& other) {
    const std::string file = c.folder / "other.toml";
    std::ofstream(file) << other;
    const auto run = troupe_reading(lines, {"batch", "-", "-", "--cluster", file});
    BOOST_TEST(run.exit_code == 2);
    BOOST_TEST(run.out == "");
    BOOST_TEST(run_troupe({"status", file}).exit_code == 5);
  };
  const auto by_address = run_troupe({"status", up.out.substr(0, up.out.find('\n'))});
  BOOST_TEST(by_address.exit_code == 5);
  BOOST_TEST(contains(by_address.err, "an address brings no keys: with security.mode mutual give the cluster's file"),
             by_address.err);
  const auto security_at = text.find("[security]\n") + 11;
  const auto replaced = [&](const std::string& by) {
    return text.substr(0, security_at) + by + text.substr(text.find("[control]"));
  };
  const auto with_key_of = [&](const std::string& role) {
    const std::string file = c.folder / (role + ".toml"), base = keys / "keys/";
    std::ofstream(file) << replaced("mode = \"mutual\"\nca = \"" + base + "ca.pem\"\ncert = \"" + base + role +
                                    ".pem\"\nkey = \"" + base + role + ".key\"\ncurve_dir = \"" + base + "\"\n");
    return file;
  };
  for (const std::string role : {"observer", "client"}) {
    const std::string file = with_key_of(role);
    BOOST_TEST(run_troupe({"status", file}).exit_code == 0);
    for (const auto& arguments :
         {std::vector<std::string>{"stop", file}, std::vector<std::string>{"stop", file, "--now"},
          std::vector<std::string>{"migrate", file, "--layer", "0", "--expert", "0", "--to", "1"}}) {
      const auto run = run_troupe(arguments);
      BOOST_TEST(run.exit_code == 6, run.err);
      BOOST_TEST(
          contains(run.err, "refused: the key of role " + role + " is not good for this; use that of role admin"),
          run.err);
    }
  }
  // On a machine where no other key is.
  const temporary_folder lesser;
  std::filesystem::create_directory(lesser / "keys");
  for (const char* name : {"ca.pem", "observer.pem", "observer.key"})
    std::filesystem::copy_file(keys / "keys/" + name, lesser / "keys/" + name);
  std::string of_lesser = text; // whose nodes are other machines: no key of theirs has to be here
  for (const auto& [from, to] : {std::pair<std::string, std::string>{keys / "keys", lesser / "keys"},
                                 {"host = \"127.0.0.1\"", "host = \"192.0.2.1\""},
                                 {"launcher = \"local\"", "launcher = \"manual\""}})
    for (std::size_t at = 0; (at = of_lesser.find(from, at)) != std::string::npos; at += to.size())
      of_lesser.replace(at, from.size(), to);
  const std::string lesser_file = c.folder / "lesser.toml";
  std::ofstream(lesser_file) << of_lesser;
  BOOST_TEST(run_troupe({"status", lesser_file}).exit_code == 0);
  for (const auto& arguments :
       {std::vector<std::string>{"stop", lesser_file}, std::vector<std::string>{"stop", lesser_file, "--now"},
        std::vector<std::string>{"migrate", lesser_file, "--layer", "0", "--expert", "0", "--to", "1"}}) {
    const auto run = run_troupe(arguments);
    BOOST_TEST(run.exit_code == 6, run.err);
    BOOST_TEST(contains(run.err, "refused: the key of role observer is not good for this; use that of role admin"),
               run.err);
  }
  const auto unasked = troupe_reading(lines, {"batch", "-", "-", "--cluster", with_key_of("observer")});
  BOOST_TEST(unasked.exit_code == 2);
  BOOST_TEST(contains(unasked.err, "the key of role observer is not good for this; use that of role client"),
             unasked.err);
  BOOST_TEST(run_troupe({"migrate", c.file, "--layer", "0", "--expert", "5", "--to", "2"}).exit_code == 0);
  refused(replaced(security(others)));        // keys of another authority
  refused(replaced("mode = \"loopback\"\n")); // none
  BOOST_TEST(c.status()["status"] == "ok");   // who is refused harms nobody's connections
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  for (const auto& m : c.status()["members"])
    BOOST_TEST((m["role"] == "gateway" || m["state"] == "active"), m.dump());
  const auto again = run_troupe({"keygen", keys / "keys", "--node", "n0"});
  BOOST_TEST(again.exit_code == 2);
  BOOST_TEST(contains(again.err, "n0.key"));
  BOOST_TEST(run_troupe({"keygen", keys / "keys", "--node", "admin"}).exit_code == 2);
  std::filesystem::remove(keys / "keys/admin.key"); // a node's is as good, where there is one
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(prompts_and_outputs_are_computed_by_workers_of_their_own) {
  running_cluster c({.prompts = 1});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  // 18 of 24 ask for no rows of their prompts; on a crowded machine an engine for prompts may be missed for a while.
  c.wait_until([](const nlohmann::json& s) { return handoffs_of(s, "received") >= 12; });
  BOOST_TEST(handoffs_of(c.status(), "received") <= 18u);
  BOOST_TEST(handoffs_of(c.status(), "failed") == 0u);
  BOOST_TEST(contains(run_troupe({"status", c.file}).out, "tail ms"));
  // Killed while they work: prefill.0 with prompts and their caches, decode.0 with outputs.
  for (const char* const victim : {"prefill.0", "decode.0"}) {
    running_batch batch(c, lines);
    const std::uint64_t before = steps_of(c.status());
    c.wait_until([&](const nlohmann::json& s) { return steps_of(s) > before + 10; });
    c.kill(victim);
    check_equal(batch.results(), expected);
    c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
  }
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(a_prompt_that_two_workers_compute_goes_on_at_a_third) {
  running_cluster c({.workers = 1, .prompts = 2, .prompt_keys = "context_parallel = 2\n"});
  const std::string lines = long_lines(12);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  c.wait_until([](const nlohmann::json& s) {
    return steps_of(s, "prefill.1") > 0 && steps_of(s, "prefill.0") == steps_of(s, "prefill.1");
  });
  c.wait_until([](const nlohmann::json& s) { return handoffs_of(s, "received") > 0; }); // told with the next beat
  BOOST_TEST(handoffs_of(c.status(), "failed") == 0u);
  running_batch batch(c, lines);
  const std::uint64_t before = steps_of(c.status());
  c.wait_until([&](const nlohmann::json& s) { return steps_of(s) > before + 10; });
  c.kill("prefill.1");
  check_equal(batch.results(), expected);
  c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

// A stand-in for ssh runs what it is given on this host.
BOOST_AUTO_TEST_CASE(hosts_are_started_through_ssh_and_end_with_it) {
  const temporary_folder bin;
  std::filesystem::create_symlink(TROUPE_BINARY, bin / "troupe");
  std::ofstream(bin / "ssh") << "#!/bin/sh\n[ \"$1 $2 $3\" = '-o BatchMode=yes 127.0.0.1' ] || exit 9\nshift 3\n"
                                "exec env \"$@\"\n";
  std::filesystem::permissions(bin / "ssh", std::filesystem::perms::owner_all);
  process_options with_stand_in;
  with_stand_in.environment["PATH"] = bin / "" + ":" + std::getenv("PATH");
  running_cluster c({.workers = 1, .port = free_port(), .nodes = 2, .launcher = "ssh"});
  const auto up = c.launch(with_stand_in);
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  BOOST_TEST(c.status()["status"] == "ok");
  const std::string lines = mixed_lines(4);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), alone(lines));
  c.kill("remote.node.n1"); // its agent ends with it
  c.wait_until([](const nlohmann::json& s) { return s["status"] == "degraded"; });
  BOOST_TEST(c.launch(with_stand_in).exit_code == 0);
  c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(by_hand_the_commands_are_printed) {
  running_cluster c({.port = 47000, .nodes = 2, .launcher = "manual"});
  const auto printed = c.launch();
  BOOST_TEST(printed.exit_code == 0);
  for (const std::string& command : {"troupe coordinator " + c.file + " --index 0   # coordinator.0 on 127.0.0.1\n",
                                     "troupe node " + c.file + " --name n0   # node.n0 on 127.0.0.1\n",
                                     "troupe node " + c.file + " --name n1   # node.n1 on 127.0.0.1\n"})
    BOOST_TEST(contains(printed.out, command), printed.out);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_done_is_said) {
  running_cluster c({.workers = 1});
  const auto said = [](const finished_process& p, int code, const std::string& part) {
    BOOST_TEST(p.exit_code == code);
    BOOST_TEST(contains(p.err, part), p.err);
  };
  said(run_troupe({"generate", "--cluster", "nowhere"}), 2, "is neither a file nor an address with a port");
  said(run_troupe({"generate", "--cluster", "127.0.0.1:1"}), 2, "nothing answers at 127.0.0.1:1");
  said(run_troupe({"generate", "--cluster", c.file, "--ep", "2"}), 2, "--ep has no effect on a running cluster");
  said(run_troupe({"generate", "--cluster", c.file}), 2, "no coordinator of " + c.name + " runs on this host");
  said(run_troupe({"worker", c.file, "--rank", "7"}), 2, "one of: 0");
  said(run_troupe({"node", c.file, "--name", "n9"}), 2, "one of: n0");
  said(run_troupe({"launch", c.file, "--set", "cluster.colour=1"}), 2, "colour");
  const int port = free_port();
  const std::string set = "control.port=" + std::to_string(port);
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(static_cast<std::uint16_t>(port + 1)); // of the coordinator
  BOOST_REQUIRE(::bind(taken, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  BOOST_REQUIRE(::listen(taken, 1) == 0);
  said(run_troupe({"launch", c.file, "--set", set}), 2, "cannot listen on 127.0.0.1:" + std::to_string(port + 1));
  ::close(taken);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_SUITE_END()
