// Batches on a cluster whose requests are on disk: killed, and continued by the same command.
#include "tests/process/running_cluster.hpp"
#include <sys/file.h>

using namespace process_test;
using test_support::read_text;
using test_support::write_text;

namespace {

const std::string on_disk = "[ledger]\nmode = \"disk\"\nfsync = \"each\"\n";

finished_process killed(const file_batch& b) {
  return b.run_until([](pid_t pid) { ::kill(pid, SIGKILL); });
}

} // namespace

BOOST_AUTO_TEST_SUITE(batch_ledgers)

BOOST_AUTO_TEST_CASE(a_killed_batch_goes_on_behind_the_tokens_that_it_had) {
  for (const int prompts : {0, 1}) {
    running_cluster c({.workers = 1, .prompts = prompts, .other_keys = on_disk});
    c.require_launch();
    const file_batch b{c};
    const std::string lines = mixed_lines(24);
    write_text(b.in, lines);
    BOOST_TEST(killed(b).exit_code == 128 + SIGKILL);
    BOOST_REQUIRE(std::filesystem::exists(b.ledger));
    const auto second = killed(b);
    BOOST_TEST(second.exit_code == 128 + SIGKILL);
    BOOST_TEST(contains(second.err, b.ledger + ": "));
    BOOST_TEST(contains(second.err, " requests go on behind "));
    const auto last = b.run();
    BOOST_TEST(last.exit_code == 0, last.err);
    BOOST_TEST(contains(last.err, " requests go on behind "));
    BOOST_TEST(!contains(last.err, "warning"));
    const std::string results = read_text(b.out);
    check_equal(by_id(results), alone(lines));
    BOOST_TEST(some_went_on(results));
    BOOST_TEST(!std::filesystem::exists(b.ledger));
    BOOST_TEST(!std::filesystem::exists(b.ledger + ".lock"));
    BOOST_TEST(b.run().exit_code == 0); // nothing is left to do
    BOOST_TEST(read_text(b.out) == results);
    BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
    c.expect_nothing_left();
  }
}

BOOST_AUTO_TEST_CASE(a_ledger_has_one_writer_and_is_not_there_in_memory) {
  running_cluster c({.workers = 1, .other_keys = on_disk});
  c.require_launch();
  const file_batch b{c};
  write_text(b.in, mixed_lines(3));
  const int lock = ::open((b.ledger + ".lock").c_str(), O_RDWR | O_CREAT, 0600);
  BOOST_REQUIRE(::flock(lock, LOCK_EX) == 0);
  const auto refused = b.run();
  BOOST_TEST(refused.exit_code == 2);
  BOOST_TEST(contains(refused.err, b.ledger + ".lock: another process writes this ledger"));
  ::close(lock);
  write_text(b.ledger, "something else, longer than a header");
  const auto damaged = b.run();
  BOOST_TEST(damaged.exit_code == 2);
  BOOST_TEST(contains(damaged.err, b.ledger + ": is no request ledger"));
  std::filesystem::remove(b.ledger);
  // Results that do not stay have no ledger beside them.
  const auto piped = troupe_reading(mixed_lines(3), {"batch", "-", "-", "--cluster", c.file});
  BOOST_TEST(piped.exit_code == 0);
  BOOST_TEST(piped.err == "");
  const auto run = b.run();
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST(run.err == "");
  check_equal(by_id(read_text(b.out)), by_id(piped.out));
  BOOST_TEST(!std::filesystem::exists(b.ledger));
}

BOOST_AUTO_TEST_SUITE_END()
