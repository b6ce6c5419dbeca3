#include "runtime/speculation/budget.hpp"

#include "runtime/base/draft_split.hpp"
#include "runtime/speculation/planner.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>

using namespace troupe;

namespace {

using table = std::vector<std::vector<float>>; // [sequences][drafts]

// speculation.md §6.6
const table spec_confidences{{.95f, .9f, .8f, .7f, .6f}, {.9f, .5f, .4f, .3f, .2f}, {.6f, .5f, .5f, .5f, .5f}};
const std::vector<timed_size> spec_curve{{1, 10.0}, {2, 10.2}, {4, 10.5}, {8, 11.2}, {16, 13.0}, {24, 15.5}};
// engine.md §9.1; cumulative rates there, the confidences that give them here
const std::vector<timed_size> other_curve{{1, 10.0}, {2, 10.1}, {4, 10.4}, {8, 11.0}, {16, 20.0}};

table confidences_of(const table& rates) {
  table out = rates;
  for (auto& row : out)
    for (std::size_t j = row.size(); j-- > 1;)
      row[j] = row[j - 1] > 0 ? row[j] / row[j - 1] : 0;
  return out;
}

std::vector<timed_size> with_slope(std::vector<timed_size> curve, double slope, double sampler) {
  for (timed_size& t : curve)
    t.ms += slope * t.rows + sampler;
  return curve;
}

std::vector<float> survivals(const table& confidences) {
  std::vector<float> out, scratch;
  for (const auto& row : confidences) {
    std::vector<float> s(row.size());
    const auto n = static_cast<std::int32_t>(row.size());
    survivals_of(row.data(), n, n, s.data());
    out.insert(out.end(), s.begin(), s.end());
  }
  sort_descending(out, scratch);
  return out;
}

std::vector<std::int32_t> rows_of(const draft_plan& p) {
  std::vector<std::int32_t> q = p.lengths;
  for (std::int32_t& n : q)
    ++n;
  return q;
}

draft_plan planned(step_cost cost, const table& budget, const table& split, std::int32_t nextn,
                   std::vector<std::int32_t> drafts = {}) {
  std::vector<draft_candidate> c;
  for (std::size_t i = 0; i < budget.size(); ++i)
    c.push_back({drafts.empty() ? nextn : drafts[i], 0, budget[i], split[i]});
  draft_planner planner({.nextn = nextn, .varlen = true, .most_rows = 512}, std::move(cost));
  draft_plan p;
  planner.plan(7, c, p);
  return p;
}
draft_plan planned(const std::vector<timed_size>& times, const table& budget, const table& split, std::int32_t nextn,
                   std::vector<std::int32_t> drafts = {}) {
  return planned(step_cost(times), budget, split, nextn, std::move(drafts));
}

using q = std::vector<std::int32_t>;

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_budget)

BOOST_AUTO_TEST_CASE(vectors_of_the_specification) {
  struct row {
    double slope;
    std::int64_t best;
    q lengths;
    std::map<std::int64_t, double> rate; // by budget
  };
  for (const row& r : {row{0, 16, {6, 5, 5}, {{3, .26087}, {8, .57287}, {9, .53341}, {16, .64029}, {18, .54620}}},
                       row{.05, 16, {6, 5, 5}, {{3, .25641}, {8, .55468}, {9, .50458}, {16, .60568}, {18, .50917}}},
                       row{.3, 8, {4, 2, 2}, {{3, .23622}, {8, .47870}, {9, .39722}, {16, .47681}, {18, .38027}}}}) {
    const auto times = with_slope(spec_curve, r.slope, 1.0);
    const auto values = survivals(spec_confidences);
    for (const auto& [rows, rate] : r.rate) {
      const row_budget b = budget_of(3, std::span(values).first(static_cast<std::size_t>(rows - 3)), times);
      BOOST_TEST(b.rows == rows);
      BOOST_TEST(std::round(b.expected / b.ms * 1e5) == std::round(rate * 1e5));
    }
    BOOST_TEST(best_budget(3, values, times).rows == r.best);
    const draft_plan p = planned(times, spec_confidences, spec_confidences, 5);
    BOOST_TEST(p.total_rows == r.best);
    BOOST_TEST(rows_of(p) == r.lengths, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_steep_curve_leaves_few_drafts) {
  const std::vector<timed_size> steep{{1, 10.0}, {2, 14.0}, {4, 20.0}, {8, 38.0}, {16, 70.0}};
  const draft_plan p = planned(steep, spec_confidences, spec_confidences, 5);
  BOOST_TEST(p.total_rows == 4);
  BOOST_TEST(rows_of(p) == (q{2, 1, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_sequence_without_drafts_has_one_row) {
  table numbers = spec_confidences;
  numbers[0].clear();
  const draft_plan p = planned(spec_curve, numbers, numbers, 5, {0, 5, 5});
  BOOST_TEST(p.total_rows == 8);
  BOOST_TEST(rows_of(p) == (q{1, 4, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(drafts_without_numbers_count_as_certain) {
  table numbers = spec_confidences;
  numbers[2].clear();
  const draft_plan p = planned(with_slope(spec_curve, .3, 1.0), numbers, numbers, 5);
  BOOST_TEST(p.lengths[2] == 5); // ahead of every draft that has one
}

BOOST_AUTO_TEST_CASE(vectors_of_the_engine) {
  const table r = confidences_of({{.9f, .8f, .6f, .3f}, {.5f, .2f, .1f, .05f}, {.95f, .9f, .85f, .8f}});
  BOOST_TEST(rows_of(planned(other_curve, r, r, 4)) == (q{3, 1, 4}), boost::test_tools::per_element());
  const auto slower = with_slope(other_curve, .5, 2.0);
  BOOST_TEST(rows_of(planned(slower, r, r, 4)) == (q{3, 1, 4}), boost::test_tools::per_element());
  step_cost taught(other_curve); // the same slope and sampler, learnt from steps
  for (std::size_t i = 0; i < step_cost::least_samples * slower.size(); ++i) {
    const timed_size& size = other_curve[i % other_curve.size()];
    taught.observe({.rows = size.rows, .sequences = 3, .forward_ms = size.ms + .5 * size.rows, .sampler_ms = 2});
  }
  BOOST_TEST(taught.slope() == .5, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(taught.sampler_ms(3) == 2);
  std::vector<timed_size> times;
  taught.times(3, 0, times);
  for (std::size_t g = 0; g < slower.size(); ++g)
    BOOST_TEST(times.at(g).ms == slower[g].ms, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(rows_of(planned(taught, r, r, 4)) == (q{3, 1, 4}), boost::test_tools::per_element());
  const table now = confidences_of({{.4f, .1f, .05f, .01f}, {.99f, .98f, .97f, .96f}, {0, 0, 0, 0}});
  BOOST_TEST(rows_of(planned(other_curve, r, now, 4)) == (q{2, 5, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_device_corrects_the_split_by_raw_confidences) {
  const table raw{{.9f, .9f, .9f}, {.5f, .99f, .99f}};
  const std::vector<int> remap{1, 0, -1};
  std::vector<float> values(9);
  for (std::size_t i = 0; i < 3; ++i)
    survivals_of(remap[i] < 0 ? nullptr : raw[static_cast<std::size_t>(remap[i])].data(), remap[i] < 0 ? 0 : 3, 3,
                 &values[3 * i]);
  q lengths(3);
  split_drafts(values.data(), 3, 3, 8 - 3, lengths.data());
  BOOST_TEST(lengths == (q{2, 3, 0}), boost::test_tools::per_element());
}

// The definition, by sorting everything and by trying everything.
BOOST_AUTO_TEST_CASE(budget_and_split_are_what_the_rules_say) {
  std::mt19937 random(1);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<>(low, high)(random); };
  for (int trial = 0; trial < 3000; ++trial) {
    const int sequences = pick(1, 7), nextn = pick(1, 6);
    const bool coarse = trial % 3 == 0; // many equal values
    std::vector<timed_size> times;
    double ms = 1;
    for (int rows = pick(1, 3), last = 0; rows < 60 && (times.size() < 2 || pick(0, 9) > 0); rows += pick(1, 9)) {
      ms += pick(-1, 6) * .3 + (rows - last) * .02; // not always rising
      last = rows;
      times.push_back({rows, std::max(ms, .5)});
    }
    table values(static_cast<std::size_t>(sequences));
    std::vector<float> all;
    std::vector<std::int32_t> drafts;
    for (auto& row : values) {
      drafts.push_back(pick(0, nextn));
      float product = 1;
      for (int j = 0; j < nextn; ++j) {
        const float c = coarse ? static_cast<float>(pick(0, 2)) / 2 : static_cast<float>(pick(0, 1000)) / 1000;
        row.push_back(c);
        if (j < drafts.back())
          all.push_back(product *= c);
      }
    }
    std::ranges::sort(all, std::greater<>());
    std::int64_t want = sequences;
    double best = -1;
    float expected = static_cast<float>(sequences);
    for (std::size_t n = 0; n <= all.size(); ++n) {
      if (n > 0)
        expected += all[n - 1];
      const auto rows = static_cast<std::int32_t>(n) + sequences;
      const auto size = std::ranges::find_if(times, [&](const timed_size& t) { return t.rows >= rows; });
      if (size == times.end())
        break;
      if (const double rate = static_cast<double>(expected) / size->ms; rate > best) {
        best = rate;
        want = rows;
      }
    }
    const draft_plan p = planned(times, values, values, nextn, drafts);
    BOOST_REQUIRE(p.total_rows == want);

    struct entry {
      float value;
      int flat;
    };
    std::vector<entry> order;
    for (int r = 0; r < sequences; ++r) {
      float product = 1;
      for (int j = 0; j < drafts[static_cast<std::size_t>(r)]; ++j)
        order.push_back({product *= values[static_cast<std::size_t>(r)][static_cast<std::size_t>(j)], r * nextn + j});
    }
    std::ranges::stable_sort(order, std::greater<>(), &entry::value);
    q lengths(static_cast<std::size_t>(sequences));
    for (std::int64_t n = 0; n < want - sequences; ++n)
      ++lengths[static_cast<std::size_t>(order[static_cast<std::size_t>(n)].flat / nextn)];
    BOOST_REQUIRE(p.lengths == lengths);

    std::vector<float> flat; // one entry at a time, as a device does it
    for (std::size_t r = 0; r < values.size(); ++r) {
      flat.resize(flat.size() + static_cast<std::size_t>(nextn));
      survivals_of(values[r].data(), drafts[r], nextn, flat.data() + flat.size() - nextn);
    }
    q by_rank(static_cast<std::size_t>(sequences));
    for (int i = 0; i < sequences * nextn; ++i)
      if (flat[static_cast<std::size_t>(i)] >= 0 && draft_rank(flat.data(), sequences * nextn, i) < want - sequences)
        ++by_rank[static_cast<std::size_t>(i / nextn)];
    BOOST_REQUIRE(by_rank == lengths);
  }
}

// Every way to give out rows: none emits more per time than the plan.
BOOST_AUTO_TEST_CASE(no_distribution_of_rows_is_better) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int trial = 0; trial < 200; ++trial) {
    const int sequences = 1 + trial % 4, nextn = 1 + trial % 3;
    table c(static_cast<std::size_t>(sequences), std::vector<float>(static_cast<std::size_t>(nextn)));
    for (auto& row : c)
      for (float& v : row)
        v = uniform(random);
    std::vector<timed_size> times;
    for (int rows = 1; rows <= sequences * (nextn + 1); ++rows)
      times.push_back({rows, 1 + uniform(random) * 2.0});
    const auto rate_of = [&](const q& lengths) {
      double expected = 0;
      int rows = 0;
      for (std::size_t r = 0; r < c.size(); ++r) {
        double survival = 1;
        expected += 1;
        rows += 1 + lengths[r];
        for (int j = 0; j < lengths[r]; ++j)
          expected += survival *= c[r][static_cast<std::size_t>(j)];
      }
      return expected / times[static_cast<std::size_t>(rows - 1)].ms;
    };
    const draft_plan p = planned(times, c, c, nextn);
    const double best = rate_of(p.lengths);
    q lengths(static_cast<std::size_t>(sequences));
    for (std::size_t at = 0; at < lengths.size();) {
      BOOST_REQUIRE(rate_of(lengths) <= best * (1 + 1e-6));
      for (at = 0; at < lengths.size() && ++lengths[at] > nextn; ++at)
        lengths[at] = 0;
    }
  }
}

BOOST_AUTO_TEST_CASE(permuting_sequences_permutes_lengths) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int trial = 0; trial < 50; ++trial) {
    table c(9, std::vector<float>(5));
    for (auto& row : c)
      for (float& v : row)
        v = .2f + .8f * uniform(random);
    const auto times = with_slope({{8, 1}, {16, 1.2}, {32, 1.6}, {54, 2.4}}, .01 * trial, 0);
    const draft_plan p = planned(times, c, c, 5);
    std::vector<std::size_t> order{8, 3, 5, 0, 7, 1, 6, 2, 4};
    std::ranges::shuffle(order, random);
    table moved;
    q want;
    for (const std::size_t i : order) {
      moved.push_back(c[i]);
      want.push_back(p.lengths[i]);
    }
    BOOST_TEST(planned(times, moved, moved, 5).lengths == want, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(sorting_is_sorting) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> scratch;
  for (int n = 0; n < 2000; n += 1 + n / 3) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values)
      v = uniform(random) < .1f ? 0.0f : uniform(random) < .1f ? 1.0f : std::pow(uniform(random), 30.0f);
    std::vector<float> want = values;
    std::ranges::sort(want, std::greater<>());
    sort_descending(values, scratch);
    BOOST_TEST(values == want);
  }
}

BOOST_AUTO_TEST_CASE(without_a_curve_or_beyond_it) {
  const auto values = survivals(spec_confidences);
  BOOST_TEST(best_budget(3, values, {}).rows == 18);
  const std::vector<timed_size> tiny{{1, 10.0}, {2, 10.1}};
  BOOST_TEST(best_budget(3, values, tiny).rows == 3); // never fewer rows than sequences
  BOOST_TEST(best_budget(2, values, tiny).rows == 2); // budgets beyond the curve are not considered
  BOOST_TEST(best_budget(1, std::vector<float>{1.0f, 1.0f, 1.0f}, tiny).rows == 2);
  BOOST_TEST(best_budget(0, {}, tiny).rows == 0);
}

BOOST_AUTO_TEST_CASE(numbers_that_are_none_do_not_break_the_order) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const float raw[] = {2.0f, inf, .5f, nan, .9f, -0.0f};
  float s[6];
  survivals_of(raw, 6, 6, s);
  const float want[] = {1, 1, .5f, 0, 0, 0};
  BOOST_TEST(s == want, boost::test_tools::per_element());
  for (const float v : s)
    BOOST_TEST(!std::signbit(v)); // bits are ordered like values only from +0 on
}

BOOST_AUTO_TEST_SUITE_END()
