// The threads beside a scheduler: shared loops, work for later, and their end.
#include "actors/mask_threads.hpp"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <latch>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(mask_thread_pool)

BOOST_AUTO_TEST_CASE(a_loop_visits_everything_once_with_any_number_of_threads) {
  for (const int threads : {0, 1, 3}) {
    mask_threads pool(threads, [] {});
    for (const std::size_t n : {0u, 1u, 2u, 3u, 50u, 1000u})
      for (int again = 0; again < 20; ++again) {
        std::vector<std::atomic<int>> visits(n);
        pool.all(n, [&](std::size_t i) { ++visits[i]; });
        for (const auto& v : visits)
          BOOST_REQUIRE(v == 1);
      }
  }
}

// A step waits for nobody whose work is not its own.
BOOST_AUTO_TEST_CASE(a_loop_ends_though_all_threads_have_other_work) {
  std::latch hold(1), begun(2);
  std::atomic<int> made{0};
  {
    mask_threads pool(2, [&] { ++made; });
    for (int i = 0; i < 2; ++i)
      pool.later([&] {
        begun.count_down();
        hold.wait();
      });
    begun.wait();
    std::atomic<int> visits{0};
    pool.all(100, [&](std::size_t) { ++visits; });
    BOOST_TEST(visits == 100);
    BOOST_TEST(made == 0);
    hold.count_down();
  }
  BOOST_TEST(made == 2); // what was under way was waited for
}

BOOST_AUTO_TEST_CASE(work_for_later_is_done_and_told) {
  for (const int threads : {0, 2}) {
    std::latch told(8);
    std::atomic<int> done{0};
    mask_threads pool(threads, [&] { told.count_down(); });
    for (int i = 0; i < 8; ++i)
      pool.later([&] { ++done; });
    told.wait();
    BOOST_TEST(done == 8);
  }
}

BOOST_AUTO_TEST_CASE(its_clock_goes_on) {
  const mask_threads pool(0, [] {});
  const double before = pool.seconds();
  BOOST_TEST(before > 0);
  BOOST_TEST(pool.seconds() >= before);
}

BOOST_AUTO_TEST_SUITE_END()
