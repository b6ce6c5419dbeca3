// Clusters of real processes on loopback: the bytes of one process whatever is killed, and nothing left behind.
#include "tests/process/troupe_process.hpp"
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

using namespace process_test;
using namespace std::chrono_literals;

namespace {

// A port that nothing listens on at the moment.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  BOOST_REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&a), size) == 0);
  BOOST_REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size) == 0);
  ::close(fd);
  return ntohs(a.sin_port);
}

struct running_cluster {
  temporary_folder folder;
  std::string name = "t" + std::to_string(::getpid()), state = folder / "state", file = folder / "cluster.toml";

  struct shape {
    int workers = 2, port = 0, nodes = 1; // nodes n0, n1, ... are all this host; the workers run on n0
    int prompts = 0;                      // workers before them that compute prompts for them
    std::string coordinators = "\"n0\"", launcher = "local";
    std::string security{}, group_keys{}; // of [security]; of the workers' group
  };
  explicit running_cluster(const shape& s) {
    std::ofstream out(file);
    out << "[cluster]\nname = \"" << name << "\"\nstate_dir = \"" << state << "\"\nlauncher = \"" << s.launcher
        << "\"\nrestart_backoff_ms = 100\ncoordinators = [" << s.coordinators << "]\n[security]\n"
        << s.security << "\n[control]\nport = " << s.port << "\n[model]\npath = \"" << TROUPE_SOURCE_DIR
        << "/models/tiny-v41\"\nseed = 5\nmax_model_len = 1024\n";
    for (int i = 0; i < s.nodes; ++i)
      out << "[[node]]\nname = \"n" << i << "\"\nhost = \"127.0.0.1\"\n";
    if (s.prompts > 0)
      out << "[[worker_group]]\nname = \"prefill\"\nengine = \"prompt\"\nnode = [\"n0\"]\ncount = " << s.prompts
          << "\ndevice = \"cpu\"\nthreads = 1\n";
    out << "[[worker_group]]\nname = \"decode\"\nengine = \"" << (s.prompts > 0 ? "completion" : "normal")
        << "\"\nnode = [\"n0\"]\ncount = " << s.workers << "\ndevice = \"cpu\"\nthreads = 1\nmax_num_seqs = 8\n"
        << s.group_keys << "[eplb]\nmin_extra = 4\n"
        << "[timeouts]\nlease_ms = 900\nlease_renew_ms = 200\nlease_margin_ms = 150\n";
  }
  ~running_cluster() { run_troupe({"stop", file, "--now"}); }

  finished_process launch(const process_options& options = {}) { return run_troupe({"launch", file}, options); }
  // Null while nobody leads.
  nlohmann::json status() {
    const std::string out = run_troupe({"status", file, "--json"}).out;
    return out.empty() ? nlohmann::json() : nlohmann::json::parse(out);
  }
  nlohmann::json record(const std::string& process) const {
    std::ifstream in(state + "/run/" + process + ".json");
    return nlohmann::json::parse(in);
  }
  template <class Condition> void wait_until(const Condition& condition) {
    for (int i = 0; i < 1200; ++i) {
      if (const auto s = status(); !s.is_null() && condition(s))
        return;
      std::this_thread::sleep_for(50ms);
    }
    BOOST_FAIL("not within a minute: " << status().dump());
  }
  void kill(const std::string& process) const { ::kill(record(process)["pid"].get<pid_t>(), SIGKILL); }
  // Nothing of the cluster is left on this machine.
  void expect_nothing_left() const {
    BOOST_TEST(std::filesystem::is_empty(state + "/run"));
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream in(entry.path() / "cmdline");
      std::string line((std::istreambuf_iterator<char>(in)), {});
      BOOST_TEST((!contains(line, state) && !contains(line, file)), line);
    }
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      BOOST_TEST(!contains(entry.path().filename().string(), "troupe." + name + "."));
  }
};

// That all workers have taken.
std::uint64_t steps_of(const nlohmann::json& status) {
  std::uint64_t steps = 0;
  for (const auto& m : status["members"])
    steps += m["steps"].get<std::uint64_t>();
  return steps;
}

std::string mixed_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    nlohmann::json p{{"max_tokens", 40 + 11 * (i % 4)}, {"temperature", i % 2 == 0 ? 0.0 : 0.8}};
    if (i % 3 == 0)
      p["n"] = 2;
    if (i % 4 == 1)
      p["prompt_logprobs"] = true;
    if (i % 5 == 2)
      p["so_args"] = {{"schema_type", "regex"}, {"schema", "[a-z ]{5,60}"}};
    lines += nlohmann::json{{"id", "r" + std::to_string(i)},
                            {"prompt", "def function_" + std::to_string(i % 6) + "(argument):\n    return "},
                            {"params", p}}
                 .dump() +
             "\n";
  }
  return lines;
}

// By (id, index), without what may differ between two runs of the same request.
std::map<std::string, std::string> by_id(const std::string& text) {
  std::map<std::string, std::string> results;
  for (auto line : json_lines(text)) {
    line.erase("usage");
    line.erase("cached_tokens");
    BOOST_TEST(results.emplace(line["id"].get<std::string>() + "/" + line["index"].dump(), line.dump()).second);
  }
  return results;
}

std::map<std::string, std::string> alone(const std::string& lines) {
  const auto run = troupe_reading(lines, {"batch", "-", "-", "--seed", "5", "--max-model-len", "1024"});
  BOOST_REQUIRE(run.exit_code == 0);
  return by_id(run.out);
}

void check_equal(const std::map<std::string, std::string>& got, const std::map<std::string, std::string>& expected) {
  BOOST_TEST(got.size() == expected.size());
  for (const auto& [id, line] : expected)
    BOOST_CHECK_MESSAGE(got.contains(id) && got.at(id) == line, id << " differs");
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
  for (const std::string& where : {c.file, endpoint}) {
    const auto run = troupe_reading(lines, {"batch", "-", "-", "--cluster", where});
    BOOST_TEST(run.exit_code == 0);
    BOOST_TEST(run.err == "");
    check_equal(by_id(run.out), expected);
  }
  const auto other = run_troupe({"launch", c.file, "--set", "timeouts.dead_ms=4000"});
  BOOST_TEST(other.exit_code == 2);
  BOOST_TEST(contains(other.err, "a cluster of another configuration runs there"));
  BOOST_TEST(contains(run_troupe({"logs", c.file, "decode.1"}).out, "event=worker_up worker=decode.1 rank=1"));
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0); // nothing to stop is no fault
  BOOST_TEST(run_troupe({"status", c.file}).exit_code == 2);
}

BOOST_AUTO_TEST_CASE(killed_workers_are_started_anew_and_no_byte_changes) {
  running_cluster c({});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  BOOST_REQUIRE(c.launch().exit_code == 0);
  std::string output;
  std::thread batch([&] { output = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out; });
  const auto incarnation = c.record("decode.0")["incarnation"].get<std::uint64_t>();
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill("decode.0");
  c.kill("decode.1"); // for a while nobody is there
  batch.join();
  check_equal(by_id(output), expected);
  c.wait_until([](const nlohmann::json& status) { return status["status"] == "ok"; });
  BOOST_TEST(c.record("decode.0")["incarnation"].get<std::uint64_t>() != incarnation);
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
  std::string output;
  std::thread batch([&] { output = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out; });
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  const auto move = [&](const std::string& layer, const std::string& expert, const std::string& to) {
    return run_troupe({"migrate", "--cluster", c.file, "--layer", layer, "--expert", expert, "--to", to});
  };
  const auto moved = move("3", "5", "1:11");
  BOOST_TEST(moved.exit_code == 0, moved.err);
  BOOST_TEST(contains(moved.out, "expert 5 of layer 3 is in slot 11 of rank 1, version "));
  const auto last = move("3", "5", "1:0");
  BOOST_TEST(last.exit_code == 6);
  BOOST_TEST(contains(last.err, "slot 0 of rank 1 holds the last copy of expert 14"));
  BOOST_TEST(contains(move("0", "0", "7").err, "rank 7 shares experts with no other"));
  BOOST_TEST(move("0", "0", "x").exit_code == 2);
  c.kill("decode.1");
  batch.join();
  check_equal(by_id(output), expected);
  c.wait_until([&](const nlohmann::json& s) { return s["status"] == "ok" && group_of(s)["state"] == "serving"; });
  BOOST_TEST(group_of(c.status())["pver"].get<int>() > group["pver"].get<int>());
  BOOST_TEST(contains(run_troupe({"status", c.file}).out, "expert group decode.0: ranks 0 to 1, serving"));
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(work_goes_on_without_a_coordinator_and_launch_brings_one_back) {
  running_cluster c({.port = free_port()});
  const std::string lines = mixed_lines(16);
  const auto expected = alone(lines);
  BOOST_REQUIRE(c.launch().exit_code == 0);
  std::string output;
  std::thread batch([&] { output = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out; });
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill("coordinator.0");
  batch.join();
  check_equal(by_id(output), expected);
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
  BOOST_REQUIRE(c.launch().exit_code == 0);
  const auto before = c.status();
  const std::string first = before["leader"], second = first == "coordinator.0" ? "coordinator.1" : "coordinator.0";
  std::string output;
  std::thread batch([&] { output = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out; });
  c.wait_until([](const nlohmann::json& status) { return steps_of(status) > 10; });
  c.kill(first);
  c.wait_until([&](const nlohmann::json& s) { return s["leader"] == second && s["status"] == "ok"; });
  c.kill("decode.0"); // the new leader sees to it, as the old one would have
  batch.join();
  check_equal(by_id(output), expected);
  c.wait_until([&](const nlohmann::json& s) { return s["leader"] == second && s["status"] == "ok"; });
  BOOST_TEST(c.status()["term"].get<std::uint64_t>() > before["term"].get<std::uint64_t>());
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(keys_are_made_and_launch_does_not_use_them_yet) {
  const temporary_folder folder;
  const auto made = run_troupe({"keygen", folder / "keys", "--node", "n0"});
  BOOST_REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  BOOST_TEST(contains(made.out, folder / "keys/n0.pem"));
  const auto again = run_troupe({"keygen", folder / "keys", "--node", "n0"});
  BOOST_TEST(again.exit_code == 2);
  BOOST_TEST(contains(again.err, "n0.key"));
  running_cluster c({.workers = 1, .security = made.out.substr(made.out.find("mode = "))});
  const auto refused = c.launch();
  BOOST_TEST(refused.exit_code == 2);
  BOOST_TEST(contains(refused.err, "security.mode = mutual"), refused.err);
  const auto by_hand = run_troupe({"coordinator", c.file});
  BOOST_TEST(by_hand.exit_code == 2);
  BOOST_TEST(contains(by_hand.err, "security.mode = mutual"), by_hand.err);
}

// Sums over the workers.
std::uint64_t handoffs_of(const nlohmann::json& status, const char* what) {
  std::uint64_t sum = 0;
  for (const auto& m : status["members"])
    if (!m["handoffs"].is_null())
      sum += m["handoffs"][what].get<std::uint64_t>();
  return sum;
}

BOOST_AUTO_TEST_CASE(prompts_and_outputs_are_computed_by_workers_of_their_own) {
  running_cluster c({.prompts = 1});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  c.wait_until([](const nlohmann::json& s) { return handoffs_of(s, "received") == 18; }); // the others ask for rows
  BOOST_TEST(handoffs_of(c.status(), "failed") == 0u);
  BOOST_TEST(contains(run_troupe({"status", c.file}).out, "tail ms"));
  // Killed while they work: prefill.0 with prompts and their caches, decode.0 with outputs.
  for (const char* const victim : {"prefill.0", "decode.0"}) {
    std::string output;
    std::thread batch([&] { output = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out; });
    const std::uint64_t before = steps_of(c.status());
    c.wait_until([&](const nlohmann::json& s) { return steps_of(s) > before + 10; });
    c.kill(victim);
    batch.join();
    check_equal(by_id(output), expected);
    c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok"; });
  }
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
