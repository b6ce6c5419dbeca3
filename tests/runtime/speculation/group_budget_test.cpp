#include "runtime/speculation/group_budget.hpp"

#include "runtime/speculation/group_planner.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <random>

using namespace troupe;

namespace {

struct rank_data {
  std::int32_t sequences = 0;
  std::vector<float> survivals;
  std::vector<timed_size> times;
  std::int64_t fixed_rows = 0;
};

std::vector<rank_load> loads_of(const std::vector<rank_data>& ranks) {
  std::vector<rank_load> out;
  for (const rank_data& r : ranks)
    out.push_back({r.sequences, r.survivals, r.times, r.fixed_rows});
  return out;
}

std::vector<std::int64_t> rows(const std::vector<rank_data>& ranks) {
  return best_group_budget(loads_of(ranks)).rows;
}

group_planner::load load_of(std::uint64_t round, std::int32_t sequences, std::vector<float> survivals) {
  return {round, sequences, 0, std::move(survivals)};
}

using list = std::vector<std::int64_t>;

const std::vector<timed_size> steps{{4, 10.0}, {8, 12.0}, {16, 20.0}};

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_group)

BOOST_AUTO_TEST_CASE(a_group_of_one_is_the_rule_of_one) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int trial = 0; trial < 500; ++trial) {
    rank_data r;
    r.sequences = 1 + static_cast<std::int32_t>(random() % 5);
    r.survivals.resize(random() % 20);
    for (float& v : r.survivals)
      v = uniform(random);
    std::ranges::sort(r.survivals, std::greater<>());
    double ms = 5;
    for (int size = 8; size < 40; size += 8)
      r.times.push_back({size, ms += uniform(random) * 2}); // rising: then the largest budget of a time is the best
    const row_budget want = best_budget(r.sequences, r.survivals, r.times);
    const group_budget got = best_group_budget(loads_of({r}));
    BOOST_REQUIRE(got.expected / got.ms == static_cast<double>(want.expected) / want.ms);
    // Of a size the rule of one takes the smallest budget of equal rate, the group the largest of equal time.
    BOOST_REQUIRE(got.rows[0] >= want.rows);
    if (r.survivals.empty() || r.survivals.back() > 0)
      BOOST_REQUIRE(got.rows[0] == want.rows);
  }
}

BOOST_AUTO_TEST_CASE(time_that_the_slowest_takes_anyway_is_used_by_all) {
  // Alone the second rank stays at 4 rows: 4.4 tokens in 12 ms are fewer a ms than 4 in 10. Next to a rank that needs
  // 20 ms for its sequences it verifies all it has.
  const rank_data light{4, {.1f, .1f, .1f, .1f, .1f, .1f}, steps, 0};
  const rank_data heavy{16, {}, steps, 0};
  BOOST_TEST(rows({light}) == (list{4}), boost::test_tools::per_element());
  BOOST_TEST(rows({heavy, light}) == (list{16, 10}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nobody_is_slowed_down_for_little) {
  // 8 more rows of 0.5 each would be worth it for one rank (8 tokens in 20 ms against 4 in 12: no), but not for a group
  // whose other ranks would wait.
  const rank_data eager{4, std::vector<float>(12, .9f), steps, 0};
  const rank_data plain{4, {}, steps, 0};
  BOOST_TEST(rows({eager}) == (list{16}), boost::test_tools::per_element());                              // 14.8 / 20
  BOOST_TEST(rows({eager, plain, plain, plain}) == (list{8, 4, 4, 4}), boost::test_tools::per_element()); // 19.6 / 12
}

BOOST_AUTO_TEST_CASE(smaller_times_win_ties) {
  // 2 tokens in 1 ms, 4 in 2 ms.
  const rank_data r{2, {1, 1}, {{2, 1.0}, {4, 2.0}}, 0};
  BOOST_TEST(rows({r}) == (list{2}), boost::test_tools::per_element());
  BOOST_TEST(rows({r, r}) == (list{2, 2}), boost::test_tools::per_element());
}

// Every combination of budgets, on curves that rise: no better rate, and of those with the best rate none is faster.
BOOST_AUTO_TEST_CASE(no_combination_of_budgets_is_better) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<rank_data> ranks(1 + random() % 3);
    for (rank_data& r : ranks) {
      r.sequences = static_cast<std::int32_t>(random() % 4);
      r.survivals.resize(r.sequences * 2u);
      for (float& v : r.survivals)
        v = uniform(random);
      std::ranges::sort(r.survivals, std::greater<>());
      double ms = 2;
      for (int size = 1; size <= 12; size += 1 + static_cast<int>(random() % 3))
        r.times.push_back({size, ms += .05 + .6 * uniform(random)});
      if (random() % 4 == 0 && r.sequences > 0)
        r.fixed_rows = r.sequences + static_cast<std::int64_t>(random() % 3);
    }
    const group_budget got = best_group_budget(loads_of(ranks));
    const double best = got.ms > 0 ? got.expected / got.ms : 0;
    list b(ranks.size());
    const std::function<void(std::size_t, double, double)> visit = [&](std::size_t i, double expected, double ms) {
      if (i == ranks.size()) {
        BOOST_REQUIRE((ms == 0 || expected / ms <= best + 1e-9));
        return;
      }
      const rank_data& r = ranks[i];
      if (r.sequences == 0)
        return visit(i + 1, expected, ms);
      for (std::size_t n = 0; n <= r.survivals.size(); ++n) {
        const auto total = r.sequences + static_cast<std::int64_t>(n);
        const row_budget one = budget_of(r.sequences, std::span(r.survivals).first(n), r.times);
        if ((r.fixed_rows > 0 && total != r.fixed_rows) || (n > 0 && total > r.times.back().rows))
          continue;
        visit(i + 1, expected + static_cast<double>(one.expected), std::max(ms, one.ms));
      }
    };
    visit(0, 0, 0);
  }
}

BOOST_AUTO_TEST_CASE(ranks_without_steps_without_curves_and_beyond_them) {
  BOOST_TEST(rows({}).empty());
  BOOST_TEST(rows({{}}) == (list{0}), boost::test_tools::per_element());
  BOOST_TEST(rows({{}, {4, {}, steps, 0}}) == (list{0, 4}), boost::test_tools::per_element());
  BOOST_TEST(rows({{3, {.1f, .1f}, {}, 0}}) == (list{5}), boost::test_tools::per_element());
  BOOST_TEST(rows({{20, {.9f}, steps, 0}, {4, {.1f, .1f}, steps, 0}}) == (list{20, 6}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_decision_waits_for_everyone_who_reported_lately) {
  group_planner g({.ranks = 2, .curve = steps});
  BOOST_TEST(g.take(0, load_of(1, 4, {.9f, .9f, .9f, .9f}))); // nobody else ever reported
  g.decide();
  BOOST_TEST(g.ranks()[0].total_q == 8);
  BOOST_TEST(g.ranks()[1].total_q == 0);
  BOOST_TEST(!g.take(1, load_of(1, 4, {}))); // rank 0 will report again
  BOOST_TEST(g.take(0, load_of(2, 4, {})));
  BOOST_TEST(!g.take(7, {}));
}

BOOST_AUTO_TEST_CASE(a_late_rank_keeps_its_budget_then_counts_as_idle) {
  group_planner g({.ranks = 2, .curve = steps});
  g.take(0, load_of(1, 4, {}));
  g.take(1, load_of(1, 16, {}));
  g.decide();
  BOOST_TEST(g.ranks()[1].total_q == 16);
  const std::vector<float> low{.1f, .1f};
  for (std::uint64_t round = 2; round <= 3; ++round) {
    BOOST_TEST(!g.take(0, load_of(round, 4, low))); // rank 1 may still come
    BOOST_TEST(g.take(0, load_of(round, 4, low)));  // but nobody waits any longer
    g.decide();
    BOOST_TEST(g.ranks()[0].total_q == 6); // the 20 ms of rank 1's last budget leave room
    BOOST_TEST(g.ranks()[1].total_q == 16);
  }
  BOOST_TEST(g.late() == 2u);
  g.take(0, load_of(4, 4, low));
  BOOST_TEST(g.take(0, load_of(4, 4, low)));
  g.decide();
  BOOST_TEST(g.ranks()[0].total_q == 4); // rank 1 is gone
  BOOST_TEST(g.take(0, load_of(5, 4, low)));
  g.decide();
  BOOST_TEST(!g.take(1, load_of(9, 16, {}))); // and back
  BOOST_TEST(g.take(0, load_of(6, 4, low)));
  g.decide();
  BOOST_TEST(g.ranks()[0].total_q == 6);
  BOOST_TEST(g.decisions() == 6u);
}

BOOST_AUTO_TEST_CASE(a_draining_rank_ends_at_nothing) {
  group_planner g({.ranks = 1, .curve = steps});
  for (std::int32_t sequences = 16; sequences >= 0; --sequences) {
    BOOST_TEST(g.take(0, load_of(1, sequences, std::vector<float>(static_cast<std::size_t>(sequences), .9f))));
    g.decide();
    BOOST_TEST(g.ranks()[0].total_q >= sequences);
    BOOST_TEST(g.ranks()[0].total_q <= std::max(16, sequences));
  }
  BOOST_TEST(g.ranks()[0].total_q == 0);
}

// Skewed loads: engines that each serve themselves, against one decision for all (speculation.md §12, target 8).
BOOST_AUTO_TEST_CASE(one_decision_for_all_beats_one_for_each) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<timed_size> curve;
  for (int size = 8; size <= 384; size += 8)
    curve.push_back({size, 8 + .055 * size});
  double together = 0, alone = 0, ms_together = 0, ms_alone = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<rank_data> ranks;
    for (const int sequences : {60, 20, 8, 4}) {
      rank_data r{sequences, {}, curve, 0};
      for (int s = 0; s < sequences; ++s) {
        float survival = 1;
        for (int j = 0; j < 5; ++j)
          r.survivals.push_back(survival *= .4f + .58f * uniform(random));
      }
      std::ranges::sort(r.survivals, std::greater<>());
      ranks.push_back(std::move(r));
    }
    const group_budget g = best_group_budget(loads_of(ranks));
    together += g.expected;
    ms_together += g.ms;
    double slowest = 0;
    for (const rank_data& r : ranks) {
      const row_budget b = best_budget(r.sequences, r.survivals, r.times);
      alone += static_cast<double>(b.expected);
      slowest = std::max(slowest, b.ms);
    }
    ms_alone += slowest;
  }
  const double gain = together / ms_together / (alone / ms_alone);
  BOOST_TEST_MESSAGE("tokens a ms, one decision for all against one for each: " << gain);
  BOOST_TEST(gain > 1.02);
}

BOOST_AUTO_TEST_SUITE_END()
