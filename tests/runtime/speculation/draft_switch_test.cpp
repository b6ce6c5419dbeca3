#include "runtime/speculation/draft_switch.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(speculation_draft_switch)

// Drafting that loses a twentieth and may be better than it looks goes on until a try's worth is lost: for one
// sequence a try is 8 steps, each of which loses as much as a plain step takes.
BOOST_AUTO_TEST_CASE(hope_is_paid_for) {
  const draft_switch::prospect p{.gain = .95, .hope = .2, .plain_ms = 1, .try_ms = 1, .whole_ms = 2, .sequences = 1};
  draft_switch s;
  int steps = 0;
  while (steps < 1000 && s.next(p) && s.on())
    ++steps;
  BOOST_TEST(steps > 150);
  BOOST_TEST(steps < 180); // 8 / .05
  int on = 0, turns = 0;   // from then on it is saved for
  for (int i = 0; i < 20'000; ++i) {
    const bool before = s.on();
    s.next(p);
    on += s.on() ? 1 : 0;
    turns += s.on() != before ? 1 : 0;
  }
  BOOST_TEST(on < 3'500);
  BOOST_TEST(turns < 40);
  draft_switch hopeless;
  draft_switch::prospect without = p;
  without.hope = 0;
  BOOST_TEST((!hopeless.next(without) || !hopeless.on()));
  draft_switch pays;
  draft_switch::prospect good = p;
  good.gain = 1.05;
  for (int i = 0; i < 2000; ++i)
    BOOST_REQUIRE((pays.next(good) && pays.on()));
}

BOOST_AUTO_TEST_SUITE_END()
