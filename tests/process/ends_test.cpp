// How clusters of real processes end, wholly or in parts, and start again: what runs, clients, workers that load, and
// what nobody can go on with.
#include "tests/process/running_cluster.hpp"
#include <future>
#include <optional>

using namespace process_test;
using namespace std::chrono_literals;

namespace {

using steady = std::chrono::steady_clock;

const std::string one_gateway = "[gateway]\ncount = 1\nport = 0\n";

std::future<finished_process> batch_beside(const running_cluster& c, const std::string& lines,
                                           const process_options& options = {}, const std::string& metrics = {}) {
  return std::async(std::launch::async, [file = c.file, lines, options, metrics] {
    process_options o = options;
    o.input = lines;
    std::vector<std::string> arguments{"batch", "-", "-", "--cluster", file};
    if (!metrics.empty())
      arguments.insert(arguments.end(), {"--metrics", metrics});
    return run_troupe(arguments, o);
  });
}

std::string logs(const running_cluster& c, const std::string& process) {
  return run_troupe({"logs", c.file, process}).out;
}

// Results of some of the requests, none of them an error.
void check_some(const std::map<std::string, std::string>& got, const std::map<std::string, std::string>& expected) {
  BOOST_TEST(!got.empty());
  for (const auto& [id, line] : got)
    BOOST_CHECK_MESSAGE(expected.at(id) == line, id << " differs");
}

pid_t dead_process() {
  const pid_t p = ::fork();
  if (p == 0)
    ::_exit(0);
  ::waitpid(p, nullptr, 0);
  return p;
}

// Somebody else's.
class taken_port {
public:
  explicit taken_port(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1; // connections of a former owner may still be closing
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    BOOST_REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
    BOOST_REQUIRE(::listen(fd_, 1) == 0);
  }
  ~taken_port() { ::close(fd_); }
  taken_port(const taken_port&) = delete;
  taken_port& operator=(const taken_port&) = delete;

private:
  int fd_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(ends)

BOOST_AUTO_TEST_CASE(c19_a_stop_lets_what_runs_end_and_the_batch_says_that_more_was_wanted) {
  for (const std::string& gateways : {std::string(), one_gateway}) {
    running_cluster c({.other_keys = gateways});
    const std::string lines = mixed_lines(120);
    const auto expected = alone(lines);
    c.require_launch();
    process_options waiting; // a client that wants nothing is not waited for
    waiting.keep_input_open = true;
    std::promise<void> over;
    waiting.watch = [gone = over.get_future().share()](pid_t pid, const std::string&, const std::string&) {
      if (gone.wait_for(0s) == std::future_status::ready)
        ::kill(pid, SIGKILL);
    };
    auto idle = batch_beside(c, "", waiting);
    auto batch = batch_beside(c, lines);
    c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
    BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
    const auto run = batch.get();
    BOOST_TEST(run.exit_code == 1);
    BOOST_TEST(contains(run.err, "the cluster is being stopped"), run.err);
    BOOST_TEST(contains(run.err, "not all requests were computed"), run.err);
    check_some(by_id(run.out), expected);
    over.set_value();
    idle.get();
    c.expect_nothing_left();
  }
}

BOOST_AUTO_TEST_CASE(a_stop_waits_for_what_runs_as_long_as_the_file_says) {
  for (const bool now : {false, true}) {
    running_cluster c({.timeout_keys = "drain = \"100ms\"\n"});
    const std::string lines =
        R"({"id": "a", "prompt": "def main():", "params": {"max_tokens": 900, "ignore_eos": true}})"
        "\n";
    c.require_launch();
    auto batch = batch_beside(c, lines);
    c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
    // As if it had been killed while it wrote.
    test_support::write_text(c.state + "/lease.n0.partial-" + std::to_string(dead_process()), "");
    const std::string another = c.state + "/poetry.lock"; // of whoever keeps other things there
    test_support::write_text(another, "");
    const auto stop = now ? run_troupe({"stop", c.file, "--now"}) : run_troupe({"stop", c.file});
    BOOST_TEST(stop.exit_code == 0);
    BOOST_TEST(std::filesystem::remove(another));
    const auto told = steady::now();
    const auto run = batch.get();
    BOOST_TEST((steady::now() - told < 10s));
    BOOST_TEST(run.exit_code == 1);
    BOOST_TEST(run.out == "");
    BOOST_TEST(contains(run.err, "the cluster was stopped"), run.err);
    c.expect_nothing_left();
  }
}

// A process takes its record away before it is gone. This one seems to hang in between.
BOOST_AUTO_TEST_CASE(a_stop_waits_for_who_has_taken_its_record_away) {
  running_cluster c({.timeout_keys = "stop_ms = 2000\n"});
  c.require_launch();
  c.kill("coordinator.0", SIGSTOP);
  const std::string worker = "/proc/" + std::to_string(c.record("decode.0")["pid"].get<pid_t>());
  auto stop = std::async(std::launch::async, [&] { return run_troupe({"stop", c.file}); });
  for (int i = 0; i < 6000 && std::filesystem::exists(worker); ++i) // then it has looked who is there
    std::this_thread::sleep_for(10ms);
  std::filesystem::remove(c.state + "/run/coordinator.0.json");
  const auto run = stop.get();
  BOOST_TEST(run.exit_code == 0, run.err);
  c.expect_nothing_left();
}

// For longer than workers take steps without one, and than they would live without their node agent. They keep what
// they have computed.
BOOST_AUTO_TEST_CASE(long_without_a_coordinator_nothing_is_lost) {
  running_cluster c({.cluster_keys = "orphan_exit_s = 1\n", .timeout_keys = "headless_max_s = 1\n"});
  const std::string lines = mixed_lines(60);
  const auto expected = alone(lines);
  c.require_launch();
  auto batch = batch_beside(c, lines);
  c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
  c.kill("coordinator.0");
  const auto worker = c.record("decode.0")["pid"], agent = c.record("node.n0")["pid"];
  BOOST_TEST(run_troupe({"status", c.file}).exit_code != 0);
  std::this_thread::sleep_for(5s);
  BOOST_TEST((batch.wait_for(0s) == std::future_status::timeout));
  BOOST_TEST(contains(logs(c, "decode.0"), "event=parked"));
  BOOST_TEST(c.launch().exit_code == 0);
  const auto run = batch.get();
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.err == "");
  check_equal(by_id(run.out), expected);
  BOOST_TEST(!some_went_on(run.out)); // at another attempt
  BOOST_TEST(c.record("decode.0")["pid"] == worker);
  BOOST_TEST(c.record("node.n0")["pid"] == agent);
  c.kill("coordinator.0"); // without their agent too, workers end
  c.kill("node.n0");
  for (int i = 0; i < 6000 && std::filesystem::exists(c.state + "/run/decode.0.json"); ++i)
    std::this_thread::sleep_for(50ms);
  BOOST_TEST(contains(logs(c, "decode.0"), "neither a coordinator nor its node agent was there for 1000 ms"));
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

// Without their node agent too workers end at last, with what they have; others compute it again.
BOOST_AUTO_TEST_CASE(what_waits_for_too_long_is_computed_again_elsewhere) {
  running_cluster c({.cluster_keys = "orphan_exit_s = 10\n", .timeout_keys = "headless_max_s = 1\n"});
  const std::string lines = mixed_lines(60);
  const auto expected = alone(lines);
  c.require_launch();
  auto batch = batch_beside(c, lines);
  c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
  c.kill("coordinator.0");
  c.kill("node.n0");
  const auto there = [&](const std::string& name) { return std::filesystem::exists(c.state + "/run/" + name); };
  for (int i = 0; i < 6000 && (there("decode.0.json") || there("decode.1.json")); ++i)
    std::this_thread::sleep_for(50ms);
  BOOST_TEST(contains(logs(c, "decode.0"), "event=parked"));
  BOOST_TEST(contains(logs(c, "decode.0"), "neither a coordinator nor its node agent was there for 10000 ms"));
  BOOST_TEST((batch.wait_for(0s) == std::future_status::timeout));
  c.require_launch();
  const auto run = batch.get();
  BOOST_TEST(run.exit_code == 0);
  check_equal(by_id(run.out), expected);
  BOOST_TEST(some_went_on(run.out));
}

BOOST_AUTO_TEST_CASE(a_batch_goes_on_when_everything_was_killed_and_launched_again) {
  running_cluster c({.port = free_port()});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  c.require_launch();
  auto batch = batch_beside(c, lines);
  c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
  for (const std::string process : {"node.n0", "coordinator.0", "decode.0", "decode.1"})
    c.kill(process);
  c.require_launch();
  const auto run = batch.get();
  BOOST_TEST(run.exit_code == 0);
  check_equal(by_id(run.out), expected);
}

// Nobody waits for cluster.join_timeout_s, which is 300.
BOOST_AUTO_TEST_CASE(without_any_worker_requests_end_and_everybody_says_why) {
  for (const std::string& gateways : {std::string(), one_gateway}) {
    running_cluster c({.other_keys = gateways, .cluster_keys = "max_restarts = 0\n"});
    c.require_launch();
    auto batch = batch_beside(c, mixed_lines(60));
    c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
    c.kill("decode.0");
    c.kill("decode.1");
    const std::string why = "no engine is left that could take the request: decode.0 is not started again (ended by "
                            "signal 9";
    const auto run = batch.get();
    BOOST_TEST(run.exit_code == 1);
    BOOST_TEST(contains(run.err, why), run.err);
    BOOST_TEST(contains(run.err, "mend that, then troupe stop and troupe launch"), run.err);
    BOOST_TEST(contains(run.err, "the same command continues the batch"), run.err);
    const auto late = run_troupe({"generate", "x", "--max-tokens", "3", "--cluster", c.file});
    BOOST_TEST(late.exit_code != 0);
    BOOST_TEST(contains(late.err, why), late.err);
    const auto status = run_troupe({"status", c.file});
    BOOST_TEST(status.exit_code == 1);
    BOOST_TEST(contains(status.out, ": unavailable, led by coordinator.0"), status.out);
    BOOST_TEST(contains(status.out, "not started again: decode.0: ended by signal 9"), status.out);
    const auto again = c.launch();
    BOOST_TEST(again.exit_code == 4);
    BOOST_TEST(contains(again.err, "decode.1 is not started again: ended by signal 9"), again.err);
    BOOST_TEST(contains(again.err, "then troupe stop " + c.file + " and troupe launch " + c.file), again.err);
    c.kill("coordinator.0");
    const auto headless = run_troupe({"status", c.file, "--json"});
    BOOST_TEST(headless.exit_code != 0);
    BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
    c.expect_nothing_left();
  }
}

// Without its node agent a worker that has ended may still come back: requests wait for it.
BOOST_AUTO_TEST_CASE(a_client_that_waits_says_so_and_ends_as_soon_as_it_is_told) {
  for (const std::string& gateways : {std::string(), one_gateway}) {
    running_cluster c({.workers = 1, .other_keys = gateways, .cluster_keys = "join_timeout_s = 60\n"});
    c.require_launch();
    process_options told;
    told.watch = [once = false](pid_t pid, const std::string&, const std::string& err) mutable {
      if (!once && contains(err, " requests wait: no engine that gives out tokens is connected (decode.0 has ended)")) {
        once = true;
        ::kill(pid, SIGTERM);
      }
    };
    auto batch = batch_beside(c, mixed_lines(60), told);
    c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
    c.kill("node.n0");
    c.kill("decode.0");
    const auto run = batch.get();
    BOOST_TEST(run.exit_code == 130);
    BOOST_TEST(contains(run.err, " requests that wait are left: no engine that gives out tokens"), run.err);
    BOOST_TEST(!contains(run.err, "no engine took the request"), run.err);
  }
}

// Nor does it say anything: the client hears of no loss.
BOOST_AUTO_TEST_CASE(who_wants_an_end_waits_for_no_gateway_that_does_not_answer) {
  running_cluster c({.workers = 1,
                     .other_keys = one_gateway,
                     .control_keys = "connection_timeout_ms = 600000\n",
                     .timeout_keys = "dead_ms = 600000\n"});
  c.require_launch();
  std::atomic<bool> silent = false;
  process_options impatient;
  impatient.watch = [&silent, sent = 0](pid_t pid, const std::string&, const std::string& err) mutable {
    if ((sent == 0 && silent) || (sent == 1 && contains(err, "Ctrl-C again stops at once"))) {
      ++sent;
      ::kill(pid, SIGINT);
    }
  };
  auto batch = batch_beside(c, mixed_lines(60), impatient, c.folder / "metrics.txt");
  c.wait_until([](const nlohmann::json& s) { return steps_of(s) > 10; });
  c.kill("gateway.0", SIGSTOP);
  silent = true;
  const auto asked_at = steady::now();
  const auto run = batch.get();
  BOOST_TEST((steady::now() - asked_at < std::chrono::seconds(40))); // its metrics would take 60 s
  BOOST_TEST(run.exit_code == 130);
  BOOST_TEST(contains(run.err, "interrupted: finishing "), run.err);
  BOOST_TEST(!contains(run.err, "gateway_lost"), run.err);
  BOOST_TEST(!contains(run.err, "does not answer"), run.err);
  c.kill("gateway.0", SIGCONT);
}

// It may be what ends them: the others go on, and it does not end those of the next run as well.
BOOST_AUTO_TEST_CASE(a_request_that_lost_all_its_engines_has_that_for_a_result) {
  running_cluster c({.workers = 1, .other_keys = "[gateway]\nmax_attempts = 1\n"});
  c.require_launch();
  const file_batch b{c};
  const std::string lines = mixed_lines(24);
  test_support::write_text(b.in, lines);
  const auto expected = alone(lines);
  const auto first = b.run_until([&](pid_t) { c.kill("decode.0"); });
  BOOST_TEST(first.exit_code == 1);
  BOOST_TEST(!contains(first.err, "the same command continues the batch"), first.err);
  const std::string text = test_support::read_text(b.out);
  std::size_t given_up = 0;
  for (const auto& [id, line] : by_id(text)) {
    const bool ended = contains(line, "\"code\":\"attempts_exhausted\"");
    given_up += ended;
    if (ended)
      BOOST_TEST(contains(line, "1 engines were tried (max_attempts)"), line);
    else
      BOOST_TEST(line == expected.at(id));
  }
  BOOST_TEST(given_up > 0u);
  BOOST_TEST(by_id(text).size() == expected.size());
  const auto second = b.run();
  BOOST_TEST(second.exit_code == 1, second.err);
  BOOST_TEST(test_support::read_text(b.out) == text);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(workers_that_load_are_found) {
  running_cluster c({});
  auto up = std::async(std::launch::async, [&] { return c.launch(); });
  const auto started = [&] { return contains(logs(c, "node.n0"), "event=worker_started worker=decode.1"); };
  for (int i = 0; i < 600 && !started(); ++i)
    std::this_thread::sleep_for(10ms);
  BOOST_TEST(run_troupe({"stop", c.file, "--now"}).exit_code == 0);
  BOOST_TEST(up.get().exit_code != 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(a_node_agent_that_is_killed_while_workers_load_finds_them_again) {
  running_cluster c({});
  auto interrupted = std::async(std::launch::async, [&] { return c.launch(); });
  const auto there = [&](const std::string& name) { return std::filesystem::exists(c.state + "/run/" + name); };
  for (int i = 0; i < 6000 && !(there("decode.1.json") && there("node.n0.json")); ++i)
    std::this_thread::sleep_for(5ms);
  const auto pid = c.record("decode.1")["pid"];
  c.kill("node.n0");
  BOOST_TEST(interrupted.get().exit_code == 2); // an agent that ends is a start that failed
  const auto up = c.launch();
  BOOST_TEST(up.exit_code == 0, up.err);
  BOOST_TEST(c.record("decode.1")["pid"] == pid);
  BOOST_TEST(contains(logs(c, "node.n0"), "event=worker_adopted worker=decode.1"));
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_tried_again_and_then_named) {
  running_cluster c({.workers = 1, .port = free_port(), .cluster_keys = "max_restarts = 2\n"});
  const int port = c.port + 2; // of decode.0
  {
    std::optional<taken_port> other(port);
    auto up = std::async(std::launch::async, [&] { return c.launch(); });
    for (int i = 0; i < 1200 && !contains(logs(c, "node.n0"), "event=worker_down worker=decode.0"); ++i)
      std::this_thread::sleep_for(20ms);
    other.reset();
    const auto launched = up.get();
    BOOST_TEST(launched.exit_code == 0, launched.err);
    BOOST_TEST(contains(logs(c, "node.n0"), "status=\"exit code 75\""));
    BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  }
  const taken_port other(port);
  const auto up = c.launch();
  BOOST_TEST(up.exit_code == 4);
  BOOST_TEST(contains(up.err, "decode.0 is not started again: exit code 75: "), up.err);
  BOOST_TEST(contains(up.err, "control.port = " + std::to_string(port)), up.err);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_SUITE_END()
