// Who is held for silent, dead or stuck, and who only rests, waits or is slow.
#include "cluster/liveness.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

using verdict = liveness::verdict;
constexpr liveness_limits limits{1000, 3000, 60000};

bool is(const liveness& l, std::int64_t now, verdict v) {
  return l.judge(limits, now) == v;
}

} // namespace

BOOST_AUTO_TEST_SUITE(process_liveness)

BOOST_AUTO_TEST_CASE(silence_makes_suspect_then_dead_and_a_word_ends_it) {
  liveness l(500);
  BOOST_TEST(is(l, 1499, verdict::well));
  BOOST_TEST(is(l, 1500, verdict::suspect));
  l.hear(0, false, true, 1600);
  BOOST_TEST(is(l, 1600, verdict::well));
  BOOST_TEST(is(l, 4599, verdict::suspect));
  BOOST_TEST(is(l, 4600, verdict::dead));
  BOOST_TEST(l.silent_ms(4600) == 3000);
}

BOOST_AUTO_TEST_CASE(work_without_a_step_is_stuck) {
  liveness l(0);
  std::int64_t now = 0;
  const auto speak = [&](std::uint64_t steps, bool works, bool able, std::int64_t until) {
    for (; now < until; now += 200)
      l.hear(steps, works, able, now);
  };
  speak(0, false, true, 200000); // rests
  BOOST_TEST(is(l, now - 200, verdict::well));
  speak(7, true, true, 259800); // works since 200000, and moved then
  BOOST_TEST(is(l, 259999, verdict::well));
  l.hear(7, true, true, 260000);
  BOOST_TEST(is(l, 260000, verdict::stuck));
  l.hear(8, true, true, 260100);
  BOOST_TEST(is(l, 260100, verdict::well));
  now = 260200;
  speak(8, true, false, 400000); // waits for others of its group
  BOOST_TEST(is(l, now - 200, verdict::well));
  l.hear(8, true, true, now); // able again: it has its time from here on
  now += 200;
  speak(8, true, true, 459800);
  BOOST_TEST(is(l, 459800, verdict::well));
  BOOST_TEST(is(l, 463000, verdict::dead)); // silent is worse than stuck
}

BOOST_AUTO_TEST_CASE(the_first_step_may_take_longer) {
  liveness_limits limits;
  limits.stuck_ms = 6000, limits.first_step_ms = 90000;
  liveness l(0);
  std::int64_t now = 0;
  for (; now <= 89800; now += 200)
    l.hear(0, true, true, now);
  BOOST_TEST((l.judge(limits, 89999) == verdict::well));
  l.hear(0, true, true, 90000);
  BOOST_TEST((l.judge(limits, 90000) == verdict::stuck));
  for (; now <= 96000; now += 200)
    l.hear(1, true, true, now);
  BOOST_TEST((l.judge(limits, 95999) == verdict::well)); // since 90000
  BOOST_TEST((l.judge(limits, 96000) == verdict::stuck));
  limits.first_step_ms = 0;
  liveness other(0);
  for (now = 0; now <= 6000; now += 200)
    other.hear(0, true, true, now);
  BOOST_TEST((other.judge(limits, 6000) == verdict::stuck));
}

BOOST_AUTO_TEST_CASE(a_process_started_anew_counts_from_zero) {
  liveness l(0);
  l.hear(900, true, true, 1000);
  l.hear(3, true, true, 50000); // fewer steps than before: another count, not standing still
  l.hear(3, true, true, 109999);
  BOOST_TEST(is(l, 109999, verdict::well));
  l.hear(3, true, true, 110000);
  BOOST_TEST(is(l, 110000, verdict::stuck));
}

// As on a machine that is shared by too many.
BOOST_AUTO_TEST_CASE(time_without_a_cpu_is_no_standing_still) {
  liveness l(0);
  std::int64_t now = 0;
  std::uint64_t starved = 5000; // before it had any work
  for (; now < 120000; now += 200, starved += 150)
    l.hear(7, true, true, now, starved);
  BOOST_TEST(is(l, now - 200, verdict::well)); // 30000 of them it could have used
  BOOST_TEST(l.still_ms(now) == 200 + 50 * (now - 200) / 200);
  for (; now < 160000; now += 200)
    l.hear(7, true, true, now, starved);
  BOOST_TEST(is(l, now - 200, verdict::stuck));
  l.hear(7, true, true, now, starved + 10000000); // no more than there was
  BOOST_TEST(l.still_ms(now) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
