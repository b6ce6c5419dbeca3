#include "runtime/speculation/step_cost.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <random>

using namespace troupe;

namespace {

double sorted_median(std::vector<double> v) {
  if (v.empty())
    return 0;
  std::ranges::sort(v);
  const std::size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// The estimators by their definition: everything kept, everything sorted anew.
class reference {
public:
  explicit reference(std::vector<timed_size> curve) : curve_(std::move(curve)) {}

  void observe(const step_observation& o) {
    for (std::size_t g = 0; g < curve_.size(); ++g) {
      if (curve_[g].rows < o.rows)
        continue;
      sampler_[o.sequences].push_back(o.sampler_ms);
      all_sampler_.push_back(o.sampler_ms);
      steps_.push_back({g, (o.forward_ms - curve_[g].ms) / curve_[g].rows});
      if (steps_.size() > step_cost::window)
        steps_.pop_front();
      return;
    }
  }
  double slope() const {
    std::map<std::size_t, std::vector<double>> by_size;
    for (const auto& [g, residual] : steps_)
      by_size[g].push_back(residual);
    std::vector<double> medians;
    for (const auto& [g, residuals] : by_size)
      if (residuals.size() >= step_cost::least_samples)
        medians.push_back(sorted_median(residuals));
    return std::max(0.0, sorted_median(medians));
  }
  double sampler_ms(std::int32_t sequences) {
    for (const auto& list : {sampler_[sequences], all_sampler_})
      if (list.size() >= step_cost::least_sampler)
        return sorted_median(
            {list.end() - static_cast<std::ptrdiff_t>(std::min(list.size(), step_cost::sampler_window)), list.end()});
    return 0;
  }

private:
  std::vector<timed_size> curve_;
  std::deque<std::pair<std::size_t, double>> steps_;
  std::map<std::int32_t, std::vector<double>> sampler_;
  std::vector<double> all_sampler_;
};

const std::vector<timed_size> curve{{1, 10.0}, {2, 10.2}, {4, 10.5}, {8, 11.2}, {16, 13.0}, {24, 15.5}};

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_step_cost)

BOOST_AUTO_TEST_CASE(a_running_median_is_the_median_of_the_newest) {
  std::mt19937 random(1);
  for (const std::size_t capacity : {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{100}}) {
    running_median m(capacity);
    std::deque<double> kept;
    BOOST_TEST(m.median() == 0);
    for (int i = 0; i < 1000; ++i) {
      if (!kept.empty() && random() % 5 == 0) {
        m.drop_oldest();
        kept.pop_front();
      }
      kept.push_back(static_cast<double>(random() % 20)); // many equal values
      m.add(kept.back());
      if (kept.size() > capacity)
        kept.pop_front();
      BOOST_REQUIRE(m.size() == kept.size());
      BOOST_REQUIRE(m.median() == sorted_median({kept.begin(), kept.end()}));
    }
  }
}

BOOST_AUTO_TEST_CASE(estimators_equal_sorted_arrays_over_20000_steps) {
  std::mt19937 random(2);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  step_cost cost(curve);
  reference want(curve);
  for (int i = 0; i < 20000; ++i) {
    // Loads drift, so that sizes come and go out of the window; some steps are larger than the curve.
    const int centre = 1 + i / 800, rows = std::max(1, centre + static_cast<int>(uniform(-6, 6)));
    const double drift = i < 8000 ? .1 : i < 14000 ? -.2 : .02;
    const step_observation o{.rows = rows,
                             .sequences = 1 + rows / 6,
                             .kv_tokens = 0,
                             .forward_ms = std::max(.1, 10 + (drift + uniform(-.1, .2)) * rows),
                             .sampler_ms = uniform(.1, 2)};
    cost.observe(o);
    want.observe(o);
    if (i % 97 == 0 || i < 120) {
      BOOST_REQUIRE(cost.slope() == want.slope());
      for (std::int32_t r = 0; r < 8; ++r)
        BOOST_REQUIRE(cost.sampler_ms(r) == want.sampler_ms(r));
    }
  }
  BOOST_TEST(cost.ms_per_kv_token() == 0);
}

BOOST_AUTO_TEST_CASE(too_few_samples_say_nothing) {
  step_cost cost(curve);
  const step_observation o{.rows = 8, .sequences = 3, .forward_ms = 19.2, .sampler_ms = 2};
  for (int i = 1; i <= 10; ++i) {
    cost.observe(o);
    BOOST_TEST(cost.sampler_ms(3) == (i < 5 ? 0.0 : 2.0));
    BOOST_TEST(cost.sampler_ms(4) == (i < 5 ? 0.0 : 2.0)); // of all steps
    BOOST_TEST(cost.slope() == (i < 10 ? 0.0 : 1.0), boost::test_tools::tolerance(1e-12));
  }
  std::vector<timed_size> times;
  cost.times(3, 0, times);
  BOOST_REQUIRE(times.size() == curve.size());
  for (std::size_t g = 0; g < curve.size(); ++g) {
    BOOST_TEST(times[g].rows == curve[g].rows);
    // All sizes are slower than the curve by as much as the one that ran.
    BOOST_TEST(times[g].ms == curve[g].ms * (1 + 8 / 11.2) + 2.0, boost::test_tools::tolerance(1e-12));
  }
}

// A curve measured in a bad moment, too slow and of the wrong shape, is right wherever enough steps ran.
BOOST_AUTO_TEST_CASE(sizes_that_ran_have_times_of_their_own) {
  const auto truth = [](std::int32_t rows) { return 5 + .1 * rows; };
  step_cost cost(curve, {.first = 2, .further = 1});
  for (int i = 0; i < 10; ++i)
    for (const std::int32_t rows : {2, 16})
      cost.observe({.rows = rows, .sequences = 2, .forward_ms = truth(rows), .sampler_ms = 4.5});
  std::vector<timed_size> times;
  cost.times(2, 0, times);
  const auto ms = [&](std::size_t g) { return times[g].ms - 4.5; };
  BOOST_TEST(ms(1) == truth(2), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(ms(4) == truth(16), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(ms(0) == 10 * truth(2) / 10.2, boost::test_tools::tolerance(1e-12)); // as much quicker as size 2
  const double at2 = truth(2) / 10.2, at16 = truth(16) / 13;
  BOOST_TEST(ms(3) == 11.2 * (at2 + (at16 - at2) * 6 / 14), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(ms(5) == 15.5 * at16, boost::test_tools::tolerance(1e-12));
  // Draft rounds of two sequences took half as long again as at the start: so do those of others.
  BOOST_TEST(cost.sampler_ms(2) == 4.5);
  BOOST_TEST(cost.sampler_ms(5) == 9.0);
}

// Large steps ran while the machine was quiet, small ones since it has been half as fast: both sizes and draft rounds
// are compared at the present pace.
BOOST_AUTO_TEST_CASE(what_ran_at_another_pace_is_known_at_the_present_one) {
  step_cost cost(curve, {.first = 1});
  const auto run = [&](std::int32_t rows, double pace, bool drafted) {
    cost.observe({.rows = rows,
                  .sequences = 1,
                  .forward_ms = pace * (5 + .1 * rows),
                  .sampler_ms = drafted ? pace * .5 : 0,
                  .drafted = drafted});
  };
  for (int i = 0; i < 40; ++i)
    for (const std::int32_t rows : {1, 8})
      run(rows, 1, true);
  BOOST_TEST(cost.pace() == 1, boost::test_tools::tolerance(1e-9));
  for (int i = 0; i < 200; ++i)
    run(1, 2, false);
  std::vector<timed_size> times;
  cost.times(1, 0, times);
  const auto near = boost::test_tools::tolerance(1e-9);
  BOOST_TEST(cost.drafting_ms(1) == 1, near);
  BOOST_TEST(cost.sampler_ms(1) == .5, near); // as it was
  BOOST_TEST(times[0].ms == 2 * 5.1 + 1, near);
  BOOST_TEST(times[3].ms == 2 * 5.8 + 1, near);
}

// A step that drafts behind one that did not takes longer by what plain steps left undone: tries are priced at that,
// and neither its size nor draft rounds, which ran at an even pace, are believed to take another time.
BOOST_AUTO_TEST_CASE(what_plain_steps_left_undone_is_the_price_of_a_try) {
  step_cost cost(curve, {.first = 1});
  const auto run = [&](double forward_ms, bool drafted) {
    cost.observe(
        {.rows = 4, .sequences = 4, .forward_ms = forward_ms, .sampler_ms = drafted ? .5 : 0, .drafted = drafted});
  };
  for (int i = 0; i < 20; ++i)
    run(5, true);
  BOOST_TEST(cost.make_up_ms(4) == 0);
  const double slope = cost.slope(), drafting = cost.drafting_ms(4);
  for (const double undone : {8, 2, 12}) {
    for (int i = 0; i < 20; ++i)
      run(5, false);
    for (int i = 0; i < 3; ++i)
      run(i == 0 ? 5 + undone : 5, true);
  }
  const auto near = boost::test_tools::tolerance(1e-9);
  BOOST_TEST(cost.make_up_ms(4) == 8, near);
  BOOST_TEST(cost.make_up_ms(2) == 4, near);
  BOOST_TEST(cost.slope() == slope, near);
  BOOST_TEST(cost.pace() == 1, near);
  BOOST_TEST(cost.drafting_ms(4) == drafting, near);
}

BOOST_AUTO_TEST_CASE(steps_that_teach_nothing) {
  step_cost cost(curve), none;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int i = 0; i < 20; ++i)
    for (const step_observation& o : {step_observation{.rows = 25, .sequences = 3, .forward_ms = 9, .sampler_ms = 1},
                                      step_observation{.rows = 0, .sequences = 3, .forward_ms = 9, .sampler_ms = 1},
                                      step_observation{.rows = 8, .sequences = 3, .forward_ms = nan, .sampler_ms = 1},
                                      step_observation{.rows = 8, .sequences = 3, .forward_ms = 90, .sampler_ms = nan},
                                      step_observation{.rows = 8, .sequences = 3, .forward_ms = -1, .sampler_ms = 1}}) {
      cost.observe(o);
      none.observe(o);
    }
  none.observe({.rows = 8, .sequences = 3, .forward_ms = 9, .sampler_ms = 1});
  BOOST_TEST((cost.observations() == 0 && none.observations() == 0 && !none.known()));
  BOOST_TEST((cost.slope() == 0 && cost.sampler_ms(3) == 0));
}

// A made-up machine whose steps take longer the more context they read: both terms are found, and each step's time is
// foretold, where the curve alone is far off.
BOOST_AUTO_TEST_CASE(context_is_told_from_rows) {
  std::mt19937 random(3);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  const double by_row = .05, by_token = 2e-5;
  step_cost cost(curve);
  std::vector<timed_size> times;
  double worst = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::size_t g = 1 + random() % 5;
    const std::int64_t kv = 20000 + 400 * (i % 600);
    const double noise = uniform(.98, 1.02);
    const double truth = curve[g].ms + by_row * curve[g].rows + by_token * static_cast<double>(kv);
    cost.observe({.rows = curve[g].rows, .sequences = 4, .kv_tokens = kv, .forward_ms = truth * noise});
    cost.times(4, kv, times);
    if (i > 3000)
      worst = std::max(worst, std::abs(times[g].ms - truth) / truth);
  }
  BOOST_TEST(std::abs(cost.ms_per_kv_token() - by_token) < .15 * by_token);
  BOOST_TEST(worst < .05); // the curve alone: 35 %
}

// Context cost 1 us a position when steps of many sizes ran; steps of the one that runs by now take half of that.
BOOST_AUTO_TEST_CASE(context_of_an_old_load_does_not_outvote_the_present_one) {
  step_cost cost(curve);
  const auto run = [&](std::size_t g, int steps, double by_token) {
    for (int i = 0; i < steps; ++i) {
      const std::int64_t kv = 20000 + 10000 * (i % 2);
      cost.observe({curve[g].rows, 1, kv, curve[g].ms + by_token * static_cast<double>(kv), 0, false});
    }
  };
  for (const std::size_t g : {1, 2, 3})
    run(g, 40, 1e-3);
  const auto near = boost::test_tools::tolerance(1e-9);
  BOOST_TEST(cost.ms_per_kv_token() == 1e-3, near);
  run(0, step_cost::window, 5e-4);
  BOOST_TEST(cost.ms_per_kv_token() == 5e-4, near);
}

BOOST_AUTO_TEST_CASE(draft_rounds_of_one_try_outvote_those_before) {
  step_cost cost(curve);
  for (int i = 0; i < 100; ++i)
    cost.observe({.rows = 1, .sequences = 1, .forward_ms = 10, .sampler_ms = .5});
  for (std::size_t i = 0; i < step_cost::least_samples; ++i)
    cost.observe({.rows = 1, .sequences = 1, .forward_ms = 10, .sampler_ms = 2});
  BOOST_TEST(cost.drafting_ms(1) == 2, boost::test_tools::tolerance(1e-9));
}

// Large steps were three times as slow as the curve says, once.
BOOST_AUTO_TEST_CASE(sizes_that_do_not_run_any_more_are_forgotten) {
  step_cost cost(curve);
  const auto run = [&](std::int32_t rows, double ms) {
    cost.observe({.rows = rows, .sequences = 1, .forward_ms = ms, .drafted = false});
  };
  for (int i = 0; i < 40; ++i) {
    run(1, 10);
    run(8, 3 * 11.2);
  }
  // The newest of size 8 lie among as many of size 1.
  for (std::size_t i = 0; i < step_cost::window - 2 * step_cost::least_samples; ++i)
    run(1, 10);
  BOOST_TEST(cost.has_seen(8));
  run(1, 10), run(1, 10);
  BOOST_TEST(!cost.has_seen(8));
  std::vector<timed_size> times;
  cost.times(1, 0, times);
  BOOST_TEST(times[3].ms == 11.2, boost::test_tools::tolerance(1e-9));
}

// Steps are up to a quarter slower by chance: that moves neither the pace nor, with it, sizes that do not run
// meanwhile.
BOOST_AUTO_TEST_CASE(shapes_and_pace_do_not_drift_against_each_other) {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    std::mt19937 random(seed);
    const auto chance = [&] { return std::uniform_real_distribution<>(1, 1.25)(random); };
    step_cost cost(curve);
    const auto run = [&](std::size_t g) {
      cost.observe({.rows = curve[g].rows, .sequences = 1, .forward_ms = curve[g].ms * chance(), .drafted = false});
    };
    for (int i = 0; i < 100; ++i)
      run(0), run(3);
    for (int i = 0; i < 4700; ++i)
      run(0);
    std::vector<timed_size> times;
    cost.times(1, 0, times);
    const double ratio = times[3].ms / times[0].ms / (curve[3].ms / curve[0].ms);
    BOOST_TEST(std::abs(ratio - 1) < .04, ratio);
  }
}

// An engine that cannot tell, or a context that was believed to cost more than the whole step.
BOOST_AUTO_TEST_CASE(steps_without_time_leave_times_that_can_be_compared) {
  step_cost cost(curve);
  for (int i = 0; i < 40; ++i)
    cost.observe({curve.front().rows, 1, 100, 0, 0, true});
  for (int i = 0; i < 40; ++i)
    cost.observe({curve.front().rows, 1, 100, curve.front().ms, 0, true});
  std::vector<timed_size> times;
  cost.times(1, 100, times);
  BOOST_REQUIRE(times.size() == curve.size());
  for (const timed_size& t : times)
    BOOST_TEST((std::isfinite(t.ms) && t.ms > 0), t.rows << " rows: " << t.ms);
}

BOOST_AUTO_TEST_CASE(a_curve_through_two_points) {
  const std::vector<timed_size> two{{1, 2.0}, {9, 6.0}};
  const std::vector<std::int32_t> sizes{1, 3, 9, 17};
  auto c = curve_through(two, sizes);
  BOOST_REQUIRE(c.size() == 4u);
  const double want[] = {2, 3, 6, 10};
  for (std::size_t i = 0; i < 4; ++i) {
    BOOST_TEST(c[i].rows == sizes[i]);
    BOOST_TEST(c[i].ms == want[i], boost::test_tools::tolerance(1e-12));
  }
  c = curve_through(std::vector<timed_size>{{2, 4.0}, {4, 3.0}, {8, 6.0}}, std::vector<std::int32_t>{1, 3, 6, 16});
  const double bent[] = {4, 4, 5, 10}; // the second point was measured too fast to be true
  for (std::size_t i = 0; i < 4; ++i)
    BOOST_TEST(c[i].ms == bent[i], boost::test_tools::tolerance(1e-12));
  BOOST_TEST(curve_through(std::vector<timed_size>{{4, 3.0}}, sizes)[3].ms == 3);
  BOOST_TEST(curve_through({}, sizes).empty());
  // Continued to the left the line would go below zero.
  for (const timed_size& t : curve_through(std::vector<timed_size>{{8, 1.0}, {9, 5.0}}, sizes))
    BOOST_TEST(t.ms > 0);
}

BOOST_AUTO_TEST_CASE(faults_of_curves_are_named) {
  const double inf = std::numeric_limits<double>::infinity();
  BOOST_TEST(std::string(curve_fault(curve)).empty());
  BOOST_TEST(std::string(curve_fault({})).empty());
  for (const std::vector<timed_size>& bad :
       {std::vector<timed_size>{{0, 1.0}}, {{2, 1.0}, {2, 1.0}}, {{3, 1.0}, {2, 1.0}}})
    BOOST_TEST(std::string(curve_fault(bad)).find("ascend") != std::string::npos);
  for (const double ms : {0.0, -1.0, inf, std::numeric_limits<double>::quiet_NaN()})
    BOOST_TEST(std::string(curve_fault(std::vector<timed_size>{{1, ms}})).find("positive") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
