// Clusters with gateway processes: requests through them, and clients and gateways that are killed.
#include "tests/process/running_cluster.hpp"

using namespace process_test;
using test_support::read_text;
using test_support::write_text;

namespace {

const std::string one_gateway = "[gateway]\ncount = 1\nport = 0\n", on_disk = "[ledger]\nmode = \"disk\"\n";

std::size_t clients_of(const running_cluster& c, const std::string& gateway) {
  const std::string log = run_troupe({"logs", c.file, gateway}).out;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = log.find("event=client_attached", at)) != log.npos; ++at)
    ++count;
  return count;
}

std::int64_t work_of(const nlohmann::json& status) {
  std::int64_t work = 0;
  for (const auto& m : status["members"])
    work += m["running"].get<std::int64_t>() + m["waiting"].get<std::int64_t>();
  return work;
}

finished_process with_killed_gateway(const file_batch& b) {
  return b.run_until([&](pid_t) { b.cluster.kill("gateway.0"); });
}

} // namespace

BOOST_AUTO_TEST_SUITE(gateway_processes)

BOOST_AUTO_TEST_CASE(requests_through_a_gateway_give_the_bytes_of_one_process) {
  running_cluster c({.other_keys = one_gateway});
  const std::string lines = mixed_lines(24);
  const auto expected = alone(lines);
  const auto up = c.launch();
  BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  const auto status = c.status();
  BOOST_TEST(status["status"] == "ok");
  bool there = false;
  for (const auto& m : status["members"])
    there =
        there || (m["name"] == "gateway.0" && m["role"] == "gateway" && m["state"] == "active" && m["node"] == "n0");
  BOOST_TEST(there);
  const auto through = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file});
  BOOST_TEST(through.exit_code == 0);
  BOOST_TEST(through.err == "");
  check_equal(by_id(through.out), expected);
  BOOST_TEST(clients_of(c, "gateway.0") == 1u);
  std::string endpoint = up.out;
  endpoint.pop_back();
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", endpoint, "--gateway", "gateway.0"}).out),
              expected);
  BOOST_TEST(clients_of(c, "gateway.0") == 2u);
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file, "--gateway", "none"}).out),
              expected);
  BOOST_TEST(clients_of(c, "gateway.0") == 2u);
  const std::vector<std::string> generate{"generate", "--temperature", "0", "--max-tokens", "20", "def main():"};
  auto on_cluster = generate;
  on_cluster.insert(on_cluster.end(), {"--cluster", c.file, "--metrics", c.folder / "metrics"});
  const auto text = run_troupe(on_cluster);
  BOOST_TEST(text.exit_code == 0, text.err);
  BOOST_TEST(text.out == run_troupe(generate).out);
  BOOST_TEST(clients_of(c, "gateway.0") == 3u);
  BOOST_TEST(contains(read_text(c.folder / "metrics"), "troupe:request_success_total"));

  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const auto run = run_troupe(arguments);
    BOOST_TEST(run.exit_code == 2);
    BOOST_TEST(contains(run.err, why), run.err);
  };
  refused({"generate", "x", "--cluster", c.file, "--gateway", "gateway.7"},
          "--gateway = gateway.7: the cluster has no gateway of this name; one of: none, gateway.0");
  refused({"generate", "x", "--gateway", "none"}, "there is no cluster whose gateway this could be");
  refused({"gateway", c.file, "--index", "3"}, "the configuration has none of that name; one of: gateway.0");
  refused({"gateway", c.file}, "gateway.0 runs here already as process");
  refused({"gateway", c.file, "--set", "gateway.count=0"}, "the cluster has no gateway");
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(a_killed_gateway_that_forgets_ends_its_requests_and_the_same_command_goes_on) {
  running_cluster c({.workers = 1, .other_keys = one_gateway});
  c.require_launch();
  const file_batch b{c};
  const std::string lines = mixed_lines(24);
  write_text(b.in, lines);
  const auto first = with_killed_gateway(b);
  BOOST_TEST(first.exit_code == 1);
  BOOST_TEST(contains(first.err, "gateway.0 was lost ("), first.err);
  BOOST_TEST(contains(first.err, "the same command continues the batch"), first.err);
  c.wait_until([](const nlohmann::json& s) { return s["status"] == "ok" && work_of(s) == 0; });
  const auto second = b.run();
  BOOST_TEST(second.exit_code == 0, second.err);
  check_equal(by_id(read_text(b.out)), alone(lines));
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(a_killed_gateway_with_a_ledger_goes_on_with_its_requests) {
  running_cluster c({.workers = 1, .other_keys = one_gateway + on_disk});
  c.require_launch();
  const file_batch b{c};
  const std::string lines = mixed_lines(24);
  write_text(b.in, lines);
  const auto run = with_killed_gateway(b);
  BOOST_TEST(run.exit_code == 0, run.err);
  BOOST_TEST(contains(run.err, "event=gateway_lost gateway=gateway.0"), run.err);
  const std::string results = read_text(b.out);
  check_equal(by_id(results), alone(lines));
  BOOST_TEST(some_went_on(results));
  BOOST_TEST(!std::filesystem::exists(b.out + ".ledger"));
  BOOST_TEST(std::filesystem::exists(c.state + "/gateway.0.ledger"));
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_CASE(c07_what_a_killed_client_asked_for_does_not_run_on) {
  running_cluster c({.workers = 1, .other_keys = one_gateway + "[engine]\nnextn = 0\n"});
  c.require_launch();
  std::string lines;
  for (int i = 0; i < 32; ++i)
    lines += nlohmann::json{{"id", std::to_string(i)},
                            {"prompt", "def main():"},
                            {"params", {{"max_tokens", 900}, {"ignore_eos", true}}}}
                 .dump() +
             "\n";
  for (const char* const gateway : {"gateway.0", "none"}) {
    const std::uint64_t before = steps_of(c.status());
    process_options options;
    options.input = lines;
    options.watch = [&](pid_t pid, const std::string&, const std::string&) {
      if (const auto s = c.status(); work_of(s) == 32 && steps_of(s) > before + 20)
        ::kill(pid, SIGKILL);
    };
    const auto killed = run_troupe({"batch", "-", "-", "--cluster", c.file, "--gateway", gateway}, options);
    BOOST_TEST(killed.exit_code == 128 + SIGKILL);
    c.wait_until([](const nlohmann::json& s) { return work_of(s) == 0; });
    BOOST_TEST(steps_of(c.status()) < before + 900); // all of them would take 3600
  }
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

BOOST_AUTO_TEST_SUITE_END()
