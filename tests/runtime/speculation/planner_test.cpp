#include "runtime/speculation/planner.hpp"

#include "runtime/speculation/confidences.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

using floats = std::vector<float>;
using q = std::vector<std::int32_t>;

floats copy(std::span<const float> s) {
  return {s.begin(), s.end()};
}

// Costs nothing up to 8 rows, then a lot.
const std::vector<timed_size> flat_to_eight{{8, 1.0}, {64, 100.0}};

draft_plan plan_of(draft_planner& planner, std::uint64_t round, const std::vector<draft_candidate>& c) {
  draft_plan p;
  planner.plan(round, c, p);
  return p;
}

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_planner)

BOOST_AUTO_TEST_CASE(two_generations_of_confidences) {
  confidence_history h;
  h.schedule(); // prefill
  BOOST_TEST(h.for_budget().empty());
  h.process({});
  h.schedule(); // round 1
  h.process(floats{.9f, .8f});
  BOOST_TEST(h.for_budget().empty()); // those of the prefill
  BOOST_TEST(copy(h.for_split()) == (floats{.9f, .8f}));
  h.schedule(); // round 2 is planned and out: round 3 is planned ahead of its result
  BOOST_TEST(h.in_flight());
  BOOST_TEST(copy(h.for_budget()) == (floats{.9f, .8f}));
  h.process(floats{.3f});
  BOOST_TEST(!h.in_flight());
  BOOST_TEST(copy(h.for_budget()) == (floats{.9f, .8f}));
  BOOST_TEST(copy(h.for_split()) == (floats{.3f}));
  h.schedule();
  BOOST_TEST(copy(h.for_budget()) == (floats{.3f}));
  h.process({}); // ended, or drafting paused
  BOOST_TEST(h.for_split().empty());
  h.reset();
  BOOST_TEST((h.scheduled() == 0 && h.processed() == 0 && h.for_budget().empty()));
}

BOOST_AUTO_TEST_CASE(confidences_that_are_no_numbers_are_clamped_and_counted) {
  confidence_history h;
  h.schedule();
  const float inf = std::numeric_limits<float>::infinity();
  BOOST_TEST(h.process(floats{std::numeric_limits<float>::quiet_NaN(), inf, -inf, 1.5f, -.5f, .25f}) == 3);
  BOOST_TEST(copy(h.for_split()) == (floats{0, 1, 0, 1, 0, .25f}));
}

BOOST_AUTO_TEST_CASE(without_speculation_every_sequence_has_one_row) {
  draft_planner planner({.nextn = 0});
  const draft_plan p = plan_of(planner, 3, {{5, 10, {}, {}}, {0, 10, {}, {}}});
  BOOST_TEST((p.round == 3 && p.total_rows == 2 && !p.draft));
  BOOST_TEST(p.lengths == (q{0, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(fixed_lengths_verify_what_there_is_and_fits) {
  draft_planner planner({.nextn = 5, .varlen = false, .most_rows = 16}, step_cost(flat_to_eight));
  const floats low(5, .01f);
  draft_plan p = plan_of(planner, 1, {{5, 0, low, low}, {2, 0, {}, {}}, {0, 0, {}, {}}});
  BOOST_TEST(p.lengths == (q{5, 2, 0}), boost::test_tools::per_element());
  BOOST_TEST((p.total_rows == 10 && p.draft));
  p = plan_of(planner, 2, std::vector<draft_candidate>(4, {5, 0, low, low}));
  BOOST_TEST(p.lengths == (q{3, 3, 3, 3}), boost::test_tools::per_element()); // 16 rows
  p = plan_of(planner, 3, std::vector<draft_candidate>(6, {5, 0, low, low}));
  BOOST_TEST(p.lengths == (q{2, 2, 2, 2, 1, 1}), boost::test_tools::per_element());
  p = plan_of(planner, 4, std::vector<draft_candidate>(20, {5, 0, low, low}));
  BOOST_TEST(p.total_rows == 20); // every sequence has its row
}

BOOST_AUTO_TEST_CASE(advice_counts_while_it_is_new_and_meant_for_as_many_sequences) {
  const floats c(5, .5f);
  const std::vector<draft_candidate> two(2, {5, 0, c, c});
  draft_planner planner({.nextn = 5, .most_rows = 64}, step_cost(flat_to_eight));
  planner.advise({10, 2, 4});
  BOOST_TEST(plan_of(planner, 9, two).total_rows == 8); // for a later round
  BOOST_TEST(plan_of(planner, 10, two).total_rows == 4);
  const draft_plan p = plan_of(planner, 11, two);
  BOOST_TEST(p.total_rows == 4);
  BOOST_TEST(p.expected_tokens == 3.0f); // of what is done, not of the best
  BOOST_TEST(plan_of(planner, 12, two).total_rows == 8);
  planner.advise({12, 3, 4});
  BOOST_TEST(plan_of(planner, 12, two).total_rows == 8);
  planner.advise({12, 2, 1000});
  BOOST_TEST(plan_of(planner, 12, two).total_rows == 12); // all there are
  planner.advise({12, 2, -5});
  BOOST_TEST(plan_of(planner, 12, two).total_rows == 8);
}

BOOST_AUTO_TEST_CASE(a_plan_is_current_in_its_round_and_the_next) {
  BOOST_TEST((plan_is_current(7, 7) && plan_is_current(7, 8)));
  BOOST_TEST((!plan_is_current(7, 9) && !plan_is_current(7, 6)));
}

BOOST_AUTO_TEST_CASE(a_step_never_has_more_rows_than_it_may) {
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<>(low, high)(random); };
  for (int trial = 0; trial < 2000; ++trial) {
    const planner_settings settings{.nextn = pick(0, 6), .varlen = pick(0, 1) == 1, .most_rows = pick(1, 40)};
    draft_planner planner(settings, pick(0, 1) == 1 ? step_cost(flat_to_eight) : step_cost());
    std::vector<floats> numbers(static_cast<std::size_t>(pick(0, 12)), floats(6));
    std::vector<draft_candidate> c;
    for (floats& n : numbers) {
      for (float& v : n)
        v = static_cast<float>(pick(0, 8)) / 8;
      n.resize(static_cast<std::size_t>(pick(0, 6)));
      c.push_back(
          {pick(0, 8), pick(0, 1000), n, pick(0, 1) == 1 ? std::span<const float>(n) : std::span<const float>{}});
    }
    if (pick(0, 1) == 1)
      planner.advise({5, static_cast<std::int32_t>(c.size()), pick(0, 60)});
    const draft_plan p = plan_of(planner, 5, c);
    BOOST_REQUIRE(p.lengths.size() == c.size());
    const auto sum = std::accumulate(p.lengths.begin(), p.lengths.end(), static_cast<std::int64_t>(c.size()));
    BOOST_REQUIRE(sum == p.total_rows);
    BOOST_REQUIRE(sum <= std::max<std::int64_t>(settings.most_rows, static_cast<std::int64_t>(c.size())));
    for (std::size_t i = 0; i < c.size(); ++i)
      BOOST_REQUIRE((p.lengths[i] >= 0 && p.lengths[i] <= std::min(c[i].drafts, settings.nextn)));
  }
}

BOOST_AUTO_TEST_CASE(drafting_pauses_where_nothing_is_worth_verifying_and_tries_again) {
  const floats bad(5, .01f), good(5, .95f);
  draft_planner planner({.nextn = 5}, step_cost({{1, 1.0}, {64, 64.0}}));
  draft_plan p;
  const auto rounds_until = [&](bool drafting, const floats& c, int most) {
    int n = 0;
    for (bool had_drafts = p.draft; p.draft != drafting && n < most; had_drafts = p.draft, ++n)
      planner.plan(1, std::vector<draft_candidate>(1, {had_drafts ? 5 : 0, 0, had_drafts ? c : floats{}, {}}), p);
    return n;
  };
  p.draft = true;
  BOOST_TEST(rounds_until(false, bad, 1000) == draft_switch::patience);
  BOOST_TEST(rounds_until(true, bad, 1000) == draft_switch::first_pause);
  BOOST_TEST(rounds_until(false, bad, 1000) == draft_switch::patience);
  BOOST_TEST(rounds_until(true, bad, 1000) == 2 * draft_switch::first_pause); // ever longer
  // Rounds whose drafts have no numbers yet say nothing either way.
  planner.plan(1, std::vector<draft_candidate>(1, {5, 0, {}, {}}), p);
  BOOST_TEST(rounds_until(false, bad, 1000) == draft_switch::patience);
  BOOST_TEST(rounds_until(true, bad, 1000) == 4 * draft_switch::first_pause);
  draft_planner cheap({.nextn = 5}, step_cost({{64, 1.0}}));
  for (int n = 0; n < 100; ++n) {
    cheap.plan(1, std::vector<draft_candidate>(1, {5, 0, good, {}}), p);
    BOOST_REQUIRE(p.draft);
  }
}

BOOST_AUTO_TEST_CASE(a_draft_round_that_costs_more_than_it_brings_is_not_worth_it) {
  // Verifying pays (1.5 tokens in 1.1 ms), but not with 1 ms of drafting on top.
  step_cost cost({{1, 1.0}, {2, 1.1}});
  for (int i = 0; i < 9; ++i) {
    cost.observe({.rows = 1, .sequences = 1, .forward_ms = 1.0, .sampler_ms = 1.2, .drafted = true});
    cost.observe({.rows = 1, .sequences = 1, .forward_ms = 1.0, .sampler_ms = .2, .drafted = false});
  }
  BOOST_TEST(cost.drafting_ms(1) == 1.0, boost::test_tools::tolerance(1e-12));
  draft_planner planner({.nextn = 1}, cost);
  const floats half{.5f};
  draft_plan p;
  for (int n = 1; n <= draft_switch::patience; ++n) {
    planner.plan(1, std::vector<draft_candidate>(1, {1, 0, half, half}), p);
    BOOST_REQUIRE(p.total_rows == 2);
    BOOST_REQUIRE(p.draft == (n < draft_switch::patience));
  }
}

BOOST_AUTO_TEST_CASE(what_drafting_takes_is_known_before_any_real_step) {
  // 1 row 1 ms, each further one .1: two drafts of confidence .9 give 2.71 tokens in 1.2 ms. Drafting adds 2 ms for one
  // sequence and 10 for each further.
  const step_cost cost({{1, 1.0}, {2, 1.1}, {3, 1.2}, {6, 1.5}, {12, 2.1}}, {.first = 2, .further = 10});
  BOOST_TEST(cost.sampler_ms(1) == 2.0);
  BOOST_TEST(cost.drafting_ms(3) == 22.0);
  std::vector<timed_size> times;
  cost.times(2, 0, times);
  BOOST_TEST(times[0].ms == 13.0, boost::test_tools::tolerance(1e-12));
  const floats good(2, .9f);
  draft_plan alone;
  draft_planner dear({.nextn = 2}, cost);
  for (int n = 0; n < draft_switch::patience; ++n)
    dear.plan(1, std::vector<draft_candidate>(1, {2, 0, good, good}), alone);
  BOOST_TEST(!alone.draft); // 2.71 tokens in 3.2 ms, plain one in 1 ms
  draft_planner planner({.nextn = 2}, step_cost({{1, 1.0}, {3, 1.2}, {12, 2.1}}, {.first = .5, .further = 10}));
  draft_plan p;
  for (int n = 0; n < draft_switch::patience; ++n)
    planner.plan(1, std::vector<draft_candidate>(4, {2, 0, good, good}), p);
  BOOST_TEST(!p.draft); // four sequences draft for 30 ms
  planner.plan(1, std::vector<draft_candidate>(3, {0, 0, {}, {}}), p);
  BOOST_TEST(!p.draft);
  planner.plan(1, std::vector<draft_candidate>(2, {0, 0, {}, {}}), p); // half of them are left: another try
  BOOST_TEST(p.draft);
  for (int n = 0; n < 20; ++n)
    planner.plan(1, std::vector<draft_candidate>(1, {2, 0, good, good}), p);
  BOOST_TEST(p.draft); // one alone gets 2.71 tokens in 1.7 ms
}

BOOST_AUTO_TEST_SUITE_END()
