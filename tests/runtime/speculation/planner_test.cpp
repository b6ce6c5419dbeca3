#include "runtime/speculation/planner.hpp"

#include "runtime/speculation/confidences.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <map>
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

// Steps of one kind of sequences until the planner stops or begins to draft, at most so many.
struct rounds {
  explicit rounds(draft_planner& p) : planner(p) { plan.draft = true; }
  draft_planner& planner;
  draft_plan plan;
  int until(bool drafting, const floats& c, int most, int sequences = 1) {
    int n = 0;
    for (bool had_drafts = plan.draft; plan.draft != drafting && n < most; had_drafts = plan.draft, ++n)
      planner.plan(1,
                   std::vector<draft_candidate>(static_cast<std::size_t>(sequences),
                                                {had_drafts ? 5 : 0, 0, had_drafts ? c : floats{}, {}}),
                   plan);
    return n;
  }
};

BOOST_AUTO_TEST_CASE(drafting_stops_where_nothing_is_worth_verifying_and_is_tried_for_a_share_of_the_time) {
  const floats bad(5, .01f), good(5, .95f);
  // A row 1 ms, four more 1 ms together; drafting 1 ms: a block of .95 gives 5.5 tokens in 3.25 ms.
  const std::vector<timed_size> curve{{1, 1.0}, {6, 2.25}, {64, 64.0}};
  draft_planner planner({.nextn = 5}, step_cost(curve, {.first = 1}));
  rounds r(planner);
  BOOST_TEST(r.until(false, bad, 1000) <= 8); // a first block, and a look every four plans
  for (int first = 0; first < draft_switch::first_tries; ++first) {
    BOOST_TEST(std::abs(r.until(true, bad, 10000) - draft_switch::least_pause) <= 4);
    BOOST_TEST(std::abs(r.until(false, bad, 1000) - draft_switch::try_blocks) <= 4);
  }
  // A try of 8 blocks, all verified, takes 18 ms and brings next to nothing: half a percent of 2095 plain steps, of
  // which the first tries left some over.
  BOOST_TEST(std::abs(r.until(true, bad, 10000) - 2095) <= 3 * draft_switch::least_pause);
  BOOST_TEST(std::abs(r.until(false, bad, 1000) - draft_switch::try_blocks) <= 4);
  BOOST_TEST(std::abs(r.until(true, bad, 10000) - 2095) <= 8);
  r.until(false, good, 100); // the try's blocks were better: it goes on
  BOOST_TEST(r.plan.draft);
  r.until(false, bad, 100);
  BOOST_TEST(!r.plan.draft);
}

BOOST_AUTO_TEST_CASE(the_load_decides_before_any_draft_is_made) {
  // Drafting takes 2 ms for each sequence. Alone a sequence gains with any usable draft; of eight each row costs a ms.
  const step_cost cost({{1, 10.0}, {8, 10.5}, {64, 66.5}}, {.first = 2, .further = 2});
  draft_planner planner({.nextn = 5}, cost);
  const floats fair(5, .7f);
  draft_plan p;
  planner.plan(1, std::vector<draft_candidate>(8, {0, 0, {}, {}}), p);
  BOOST_TEST(!p.draft);
  BOOST_TEST(!planner.drafts_behind_prompt(8, 0));
  planner.plan(2, std::vector<draft_candidate>(1, {0, 0, {}, {}}), p);
  BOOST_TEST(p.draft);
  BOOST_TEST(planner.drafts_behind_prompt(1, 0));
  for (int n = 0; n < 40; ++n)
    planner.plan(3, std::vector<draft_candidate>(1, {5, 0, fair, fair}), p);
  BOOST_TEST(p.draft);
  planner.plan(4, std::vector<draft_candidate>(8, {5, 0, fair, fair}), p); // at once, not after losing some steps
  BOOST_TEST(!p.draft);
}

// Every row costs as much as the first one: even drafts that are all right only add the time of drafting. That may be
// wrong: a step of all drafts loses 5.1 ms, and 10 of them are a thousandth of 51000 plain ones.
BOOST_AUTO_TEST_CASE(what_cannot_pay_is_tried_for_a_much_smaller_share_of_the_time_and_verified_whole) {
  draft_planner planner({.nextn = 5}, step_cost({{1, 1.0}, {6, 6.0}, {64, 64.0}}, {.first = .1}));
  const floats c(5, .01f);
  draft_plan p;
  for (int n = 0; n < 50900; ++n) {
    planner.plan(1, std::vector<draft_candidate>(1, {0, 0, {}, {}}), p);
    BOOST_REQUIRE(!p.draft);
  }
  int drafted = 0;
  for (int n = 0; n < 200; ++n) {
    const bool had_drafts = p.draft;
    planner.advise({1, 1, 1});
    planner.plan(1, std::vector<draft_candidate>(1, {had_drafts ? 5 : 0, 0, had_drafts ? c : floats{}, {}}), p);
    drafted += p.draft;
    BOOST_TEST(p.total_rows == (had_drafts ? 6 : 1));
  }
  BOOST_TEST(drafted == draft_switch::cost_steps);
}

BOOST_AUTO_TEST_CASE(steps_without_room_for_drafts_hardly_ever_try_them) {
  draft_planner planner({.nextn = 5, .most_rows = 2}, step_cost({{1, 1.0}, {4, 4.0}, {64, 64.0}}, {.first = .1}));
  draft_plan p;
  int drafted = 0;
  constexpr int steps = 5000;
  for (int n = 0; n < steps; ++n) {
    planner.plan(1, std::vector<draft_candidate>(4, {p.draft ? 5 : 0, 0, {}, {}}), p);
    BOOST_REQUIRE(p.total_rows == 4);
    drafted += p.draft;
  }
  BOOST_TEST(drafted * .1 <= draft_switch::cost_share * steps * 4);
}

BOOST_AUTO_TEST_CASE(without_times_steps_of_several_sizes_teach_them) {
  std::vector<std::int32_t> sizes(64);
  std::iota(sizes.begin(), sizes.end(), 1);
  draft_planner planner({.nextn = 5}, step_cost::untimed(sizes));
  const floats fair(5, .5f);
  draft_plan p;
  std::map<std::int64_t, int> seen;
  for (int n = 0; n < step_cost::first_steps; ++n) {
    BOOST_REQUIRE(!planner.cost().known());
    planner.advise({static_cast<std::uint64_t>(n), 4, 24}); // a group that knows nothing either
    planner.plan(static_cast<std::uint64_t>(n), std::vector<draft_candidate>(4, {5, 0, fair, fair}), p);
    BOOST_REQUIRE(p.draft);
    BOOST_TEST(p.total_rows == 4 + n % 3 * 10); // the first one, which is the coldest, says nothing of drafts
    ++seen[p.total_rows];
    planner.observe({.rows = static_cast<std::int32_t>(p.total_rows),
                     .sequences = 4,
                     .forward_ms = 3.0 + .5 * static_cast<double>(p.total_rows),
                     .sampler_ms = 1.25},
                    p.expected_tokens, p.expected_ms, 4);
  }
  BOOST_TEST((seen == std::map<std::int64_t, int>{{4, 8}, {14, 8}, {24, 8}}));
  BOOST_REQUIRE(planner.cost().known());
  std::vector<timed_size> times;
  planner.cost().times(4, 0, times);
  for (const timed_size& t : times)
    BOOST_TEST(t.ms == 3 + .5 * t.rows + 1.25, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_SUITE_END()
