// Threads of this process share one CPU: what they wait for it is seen.
#include "cluster/cpu_wait.hpp"
#include "tests/support/crowded_cpu.hpp"
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <optional>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(waits_for_a_cpu)

BOOST_AUTO_TEST_CASE(threads_that_share_a_cpu_wait_and_count_once) {
  if (!std::filesystem::exists("/proc/self/schedstat")) {
    BOOST_TEST_MESSAGE("this system does not say how long threads wait for a CPU: not tested");
    return;
  }
  std::optional<crowded_cpu> crowd(std::in_place, 3);
  cpu_wait waits;
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t before = waits.total_ms();
  std::uint64_t waited = 0;
  for (int i = 0; i < 6000 && waited < 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    waited = waits.total_ms() - before;
  }
  const auto passed = std::chrono::steady_clock::now() - began;
  crowd.reset();
  BOOST_TEST(waited >= 200u);
  // Each call sees at most what passed since a thread was on the CPU last, which may be before the call ahead of it.
  BOOST_TEST(waited <=
             2 * static_cast<std::uint64_t>(std::chrono::milliseconds(passed / std::chrono::milliseconds(1)).count()));
  BOOST_TEST(waits.total_ms() >= before + waited); // threads that have ended take nothing back
}

BOOST_AUTO_TEST_SUITE_END()
