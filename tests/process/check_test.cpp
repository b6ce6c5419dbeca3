// troupe check as a command.
#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>

using namespace process_test;

namespace {

const std::string configs = std::string(TROUPE_SOURCE_DIR) + "/configs/";

std::string hash_in(const finished_process& run) {
  const std::string mark = "# hash ";
  const std::size_t at = run.out.find(mark);
  return at == std::string::npos ? "" : run.out.substr(at + mark.size(), 64);
}

} // namespace

BOOST_AUTO_TEST_SUITE(check_cluster)

BOOST_AUTO_TEST_CASE(the_loopback_example) {
  const auto run = run_troupe({"check", configs + "loopback-1p2d.toml"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.err == "");
  for (const char* part :
       {"[cluster]\nname = \"loop3\"\n", "kv_lease_ms = 30000\n",
        "#   prefill: prompt on cpu, rank 0; 1 engine of 1 rank, 1 in step; 1 expert group of 1 rank\n"
        "#     24 experts of each layer on every rank\n"
        "#   decode: completion on cpu, ranks 1 to 2; 2 engines of 1 rank, 2 in step; 1 expert group of 2 ranks\n"
        "#     24 + 4 redundant experts of each layer, 14 slots a rank\n",
        "#   n0 (127.0.0.1): node agent port 47000; coordinator 0 port 47001; gateway 0 port 47002, for clients port "
        "47800\n",
        "#   rank 2: decode 1 on n0, engine 1, experts 1, control port 47005, data port 48002\n",
        "# memory of a rank of decode\n", "#   routed experts, 14 slots in each layer ", "#   256 KV blocks of ",
        "# note: eplb.backup peer_host has one host: lost experts come from the checkpoint\n"})
    BOOST_TEST(contains(run.out, part), "\"" + std::string(part) + "\" is missing in: " + run.out);
}

BOOST_AUTO_TEST_CASE(what_is_printed_is_a_file_of_the_same_cluster) {
  const temporary_folder folder;
  for (const char* example : {"loopback-1p2d.toml", "loopback-cp2.toml", "prefill4-decode64.toml"}) {
    const auto run = run_troupe({"check", configs + example});
    test_support::write_text(folder / "printed.toml", run.out);
    const auto again = run_troupe({"check", folder / "printed.toml"});
    BOOST_TEST(again.exit_code == 0);
    BOOST_TEST(again.out == run.out);
    BOOST_TEST(hash_in(again).size() == 64u);
  }
}

BOOST_AUTO_TEST_CASE(the_large_example_without_its_hosts_and_weights) {
  const auto run = run_troupe({"check", configs + "prefill4-decode64.toml", "--json"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.err == "");
  const auto report = json_lines(run.out).at(0);
  const auto &prefill = report["groups"][0], &decode = report["groups"][1];
  BOOST_TEST(prefill["extra_experts"] == 32);
  BOOST_TEST(prefill["expert_slots"] == 104);
  BOOST_TEST(prefill["engines"] == 1);
  BOOST_TEST(decode["extra_experts"] == 64);
  BOOST_TEST(decode["expert_slots"] == 7);
  BOOST_TEST(decode["engines"] == 64);
  BOOST_TEST(decode["rank_memory"]["experts"] == 5264179200);
  BOOST_TEST(report["ranks"].size() == 68u);
  BOOST_TEST(report["ranks"][67]["node"] == "gpu017");
  BOOST_TEST(report["ranks"][67]["gpu"] == 3);
  BOOST_TEST(report["ranks"][67]["data_port"] == 48067);
  BOOST_TEST(report["coordinators"][2]["node"] == "gpu003");
  BOOST_TEST(report["gateways"][1]["port"] == 47801);
  BOOST_TEST(report["configuration"]["eplb"]["min_extra"] == 32);
  BOOST_TEST(report["configuration"]["node"].size() == 17u);
  std::string notes;
  for (const auto& note : report["notes"])
    notes += note.get<std::string>() + "\n";
  for (const char* part : {"key files are not checked", "the checkpoint is not checked: /models/DeepSeek-V4.1-Flash",
                           "this build has no device cuda: it checks groups prefill and decode, but cannot run them"})
    BOOST_TEST(contains(notes, part), notes);
}

BOOST_AUTO_TEST_CASE(sources_and_the_hash) {
  const std::string file = configs + "loopback-1p2d.toml";
  const std::string base = hash_in(run_troupe({"check", file}));
  BOOST_TEST(base == hash_in(run_troupe({"check", file, "--set", "cluster.state_dir=/srv/troupe"})));
  BOOST_TEST(base != hash_in(run_troupe({"check", file, "--set", "eplb.window=21"})));
  process_options options;
  options.environment = {{"TROUPE_EPLB__WINDOW", "22"}};
  const auto run = run_troupe({"check", file, "--set", "eplb.window=21"}, options);
  BOOST_TEST(contains(run.out, "\nwindow = 22\n"));
}

BOOST_AUTO_TEST_CASE(all_faults_on_standard_error_and_exit_code_2) {
  const std::string file = configs + "loopback-1p2d.toml";
  const std::vector<std::string> bad{
      "check", file, "--set", "worker_group.decode.count=3", "--set", "cluster.launcher=slrum"};
  const std::string first = "command line: cluster.launcher = slrum: there is no such value; did you mean slurm?",
                    second = "command line: worker_group.decode.count = 3: it is no multiple of context_parallel x "
                             "data_parallel = 1 x 2; give 2";
  const auto run = run_troupe(bad);
  BOOST_TEST(run.exit_code == 2);
  BOOST_TEST(run.out == "");
  BOOST_TEST(run.err == "troupe: error: " + first + "\ntroupe: error: " + second + "\n");

  auto with_json = bad;
  with_json.push_back("--json");
  const auto json = run_troupe(with_json);
  BOOST_TEST(json.exit_code == 2);
  const auto faults = json_lines(json.out).at(0)["faults"];
  BOOST_REQUIRE(faults.size() == 2u);
  BOOST_TEST(faults[0]["key"] == "cluster.launcher");
  BOOST_TEST(faults[0]["message"] == first);
  BOOST_TEST(faults[1]["value"] == "3");

  const auto missing = run_troupe({"check", "/nonexistent/a.toml"});
  BOOST_TEST(missing.exit_code == 2);
  BOOST_TEST(missing.err ==
             "troupe: error: /nonexistent/a.toml: the file cannot be read; give an existing file to this command\n");
  BOOST_TEST(run_troupe({"check"}).exit_code == 2);
}

BOOST_AUTO_TEST_CASE(what_engines_refuse_is_refused_here) {
  const std::string file = configs + "loopback-1p2d.toml";
  const auto said = [&](const std::string& setting) {
    const auto run = run_troupe({"check", file, "--set", setting});
    BOOST_TEST(run.exit_code == 2);
    return run.err;
  };
  BOOST_TEST(said("engine.nextn=6") ==
             "troupe: error: command line: engine.nextn = 6: the drafter was trained for blocks of 5 tokens "
             "(dspark_block_size); more of them are hardly ever right; give a number from 0 to 5\n");
  for (const std::string key : {"engine.max_num_batched_tokens", "worker_group.decode.max_num_batched_tokens"})
    BOOST_TEST(said(key + "=100") == "troupe: error: command line: " + key +
                                         " = 100: the rows of a step do not fill one cache block, which has 128; give "
                                         "128 or more\n");
  BOOST_TEST(said("worker_group.prefill.ttft_bound_steps=0") ==
             "troupe: error: command line: worker_group.prefill.ttft_bound_steps = 0: prompts that wait for no step "
             "wait for no prefill_fill_tokens either: the two contradict each other; give 1 or more; for prompts that "
             "do not wait leave both out\n");
  const std::string keep = said("engine.yoco_keep=139");
  BOOST_TEST(contains(keep, "command line: engine.yoco_keep = 139: "), keep);
  BOOST_TEST(
      said("model.path=/nonexistent/model") ==
      "troupe: error: command line: model.path = /nonexistent/model: it has no config.json on this machine, which "
      "is node n0; give the folder of a checkpoint, or leave it out for the embedded model\n");
}

BOOST_AUTO_TEST_SUITE_END()
