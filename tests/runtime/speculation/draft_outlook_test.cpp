#include "runtime/speculation/draft_outlook.hpp"
#include "runtime/speculation/draft_switch.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

using namespace troupe;

namespace {

using floats = std::vector<float>;

// A row 2 ms, each further one 1 ms; drafting 1 ms a sequence.
const acceptance_forecast none_seen(2);
const step_cost even({{1, 2.0}, {2, 3.0}, {3, 4.0}, {4, 5.0}, {12, 13.0}}, {.first = 1, .further = 1});

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_draft_outlook)

BOOST_AUTO_TEST_CASE(the_gain_is_that_of_the_best_steps_of_the_newest_blocks) {
  draft_outlook o(2);
  const auto gain = [&](std::int32_t sequences, std::int64_t most_rows = 100) {
    return o.expect(sequences, 0, most_rows, even, none_seen).gain;
  };
  const auto near = boost::test_tools::tolerance(1e-6);
  // Before any block: .8, .64. One sequence: 2.44 tokens in 5 ms against 1 in 2.
  BOOST_TEST(gain(1) == 2.44 / 5 * 2, near);
  BOOST_TEST(gain(1, 2) == 1.8 / 4 * 2, near); // no step of three rows
  o.add(floats{1, 1});
  BOOST_TEST(gain(1) == 3.0 / 5 * 2, near); // the first guess is gone
  o.add(floats{0, 0});
  // Half of the steps have 3 tokens in 5 ms, the others one in 3: rates are of all tokens and all ms.
  BOOST_TEST(gain(1) == (3.0 + 1) / (5 + 3) * 2, near);
  BOOST_TEST(o.expect(1, 0, 100, even, none_seen).ms == 4.0, near);
  // Two sequences, one of each kind: 4 rows for 4 tokens in 5 + 2 ms; without drafts 2 in 3.
  BOOST_TEST(gain(2) == 4.0 / 7 * 3 / 2, near);
  o.start_anew();
  BOOST_TEST(gain(1) == 1.0, near); // until one comes
  o.add(floats{.5f});
  BOOST_TEST(gain(1) == 1.5 / 4 * 2, near); // drafts that did not come count for nothing
  BOOST_TEST(o.blocks() == 3u);
}

BOOST_AUTO_TEST_CASE(blocks_are_worth_what_such_blocks_were) {
  draft_outlook o(2);
  acceptance_forecast never(2);
  const floats sure{.9f, .9f};
  o.add(sure);
  for (int i = 0; i < 10000; ++i)
    never.observe(sure, 2, i % 10 == 0 ? 2 : 0);
  // A tenth of the blocks is right as a whole: .1 + prior of what remains; no draft is worth a row.
  BOOST_TEST(o.expect(1, 0, 100, even, never).gain == 1.0 / 3 * 2, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(o.expect(1, 0, 100, even, none_seen).gain == 2.71 / 5 * 2, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(old_blocks_are_forgotten) {
  draft_outlook o(2);
  for (int i = 0; i < 3 * draft_outlook::most; ++i)
    o.add(floats{0, 0});
  const double bad = o.expect(1, 0, 100, even, none_seen).gain;
  BOOST_TEST(bad == 1.0 / 3 * 2, boost::test_tools::tolerance(1e-6));
  for (int i = 0; i < draft_outlook::fewest; ++i)
    o.add(floats{1, 1});
  BOOST_TEST(o.expect(1, 0, 100, even, none_seen).gain == 3.0 / 5 * 2, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(the_highest_gain_is_that_of_right_drafts) {
  draft_outlook o(2);
  o.add(floats{0, 0});
  BOOST_TEST(o.highest_gain(1, 0, 100, even) == 3.0 / 5 * 2, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(o.highest_gain(1, 0, 1, even) == 1.0 / 3 * 2, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(std::isinf(o.expect(1, 0, 100, step_cost(), none_seen).gain)); // no times: everything is worth it
  BOOST_TEST(std::isinf(o.highest_gain(1, 0, 100, step_cost())));
}

BOOST_AUTO_TEST_CASE(the_switch_keeps_to_its_share_of_the_time) {
  draft_switch s;
  draft_switch::prospect bad{
      .gain = .5, .can_pay = true, .plain_ms = 2, .try_ms = 1.5, .whole_ms = 1e9, .sequences = 3};
  int tries = 0, drafting = 0;
  constexpr int steps = 100000;
  for (int i = 0; i < steps; ++i) {
    drafting += s.next(bad) ? 1 : 0;
    tries += s.begins_try() ? 1 : 0;
  }
  BOOST_TEST(drafting == 3 * tries);                             // of three sequences 8 blocks
  const double later = drafting - 3 * draft_switch::first_tries; // but for the first ones
  BOOST_TEST(later * bad.try_ms <= draft_switch::try_share * steps * bad.plain_ms);
  BOOST_TEST(later * bad.try_ms >= .95 * draft_switch::try_share * steps * bad.plain_ms);
  // Cheap tries have a pause between them all the same.
  bad.try_ms = 0;
  tries = 0;
  for (int i = 0; i < 6700; ++i) {
    s.next(bad);
    tries += s.begins_try() ? 1 : 0;
  }
  BOOST_TEST(std::abs(tries - 100) <= 3);
}

BOOST_AUTO_TEST_CASE(costs_are_tried_for_a_share_of_their_own) {
  draft_switch s;
  const draft_switch::prospect hopeless{
      .gain = .5, .can_pay = false, .plain_ms = 2, .try_ms = 1, .whole_ms = 3, .sequences = 3};
  int drafting = 0;
  constexpr int steps = 100000;
  for (int i = 0; i < steps; ++i) {
    const bool drafts = s.next(hopeless);
    drafting += drafts ? 1 : 0;
    BOOST_TEST(s.verifies_all() == drafts);
  }
  BOOST_TEST(drafting * hopeless.whole_ms <= draft_switch::cost_share * steps * hopeless.plain_ms);
  BOOST_TEST(drafting * hopeless.whole_ms >= .8 * draft_switch::cost_share * steps * hopeless.plain_ms);
}

BOOST_AUTO_TEST_CASE(between_off_and_on_lies_a_margin) {
  draft_switch s;
  draft_switch::prospect p{.gain = 1.01, .can_pay = false};
  BOOST_TEST(s.next(p)); // on from the beginning
  p.gain = .99;
  BOOST_TEST(!s.next(p));
  p.gain = 1.01;
  BOOST_TEST(!s.next(p));
  p.gain = 1.05;
  BOOST_TEST(s.next(p));
  p.gain = 1.01;
  BOOST_TEST(s.next(p));
}

BOOST_AUTO_TEST_SUITE_END()
