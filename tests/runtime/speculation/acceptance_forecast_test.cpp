#include "runtime/speculation/acceptance_forecast.hpp"

#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

using floats = std::vector<float>;

floats corrected(const acceptance_forecast& f, floats survivals, bool known = true) {
  f.correct(survivals, known);
  return survivals;
}

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_acceptance_forecast)

BOOST_AUTO_TEST_CASE(survivals_are_believed_until_outcomes_come) {
  acceptance_forecast f(3);
  const floats s{.9f, .5f, .25f};
  BOOST_TEST(corrected(f, s) == s, boost::test_tools::per_element());
  BOOST_TEST(corrected(f, {1, 1, 1}, false) == (floats{1, 1, 1}), boost::test_tools::per_element());
  f.observe(s, 0, 0); // nothing was verified
  BOOST_TEST(corrected(f, s) == s, boost::test_tools::per_element());
  // One outcome against a prior of 64 / 9, all at .9: lower by .9 * 9 / 73. The third draft was not verified.
  f.observe(floats{.9f, .5f}, 2, 0);
  const floats now = corrected(f, {.9f, .45f, .25f});
  const auto near = boost::test_tools::tolerance(1e-5f);
  BOOST_TEST(now[0] == .9f - .9f * 9 / 73, near);
  BOOST_TEST(now[1] == .45f - .45f * 9 / 73, near);
  BOOST_TEST(now[2] == .25f, near);
  BOOST_TEST(corrected(f, {1, 1, 1}, false)[0] == 64.0f / 73, near);
}

// Confidences that say nothing of the next block, and far too high ones: every draft is worth the mean of its position.
BOOST_AUTO_TEST_CASE(what_foretells_nothing_becomes_the_mean) {
  std::mt19937 random(4);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  acceptance_forecast f(2);
  for (int i = 0; i < 4000; ++i) {
    const floats before{static_cast<float>(uniform(.6, 1)), static_cast<float>(uniform(.6, 1))};
    f.observe(before, 2, uniform(0, 1) < .5 ? uniform(0, 1) < .4 ? 2 : 1 : 0);
  }
  for (const float x : {.6f, .8f, 1.0f}) {
    const floats s = corrected(f, {x, x * x});
    BOOST_TEST(std::abs(s[0] - .5f) < .15f);
    BOOST_TEST(std::abs(s[1] - .2f) < .15f);
  }
  BOOST_TEST(std::abs(corrected(f, {1, 1}, false)[1] - .2f) < .1f);
}

BOOST_AUTO_TEST_CASE(what_foretells_well_is_left_alone) {
  std::mt19937 random(5);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  acceptance_forecast f(1);
  for (int i = 0; i < 4000; ++i) {
    const auto c = static_cast<float>(uniform(0, 1));
    f.observe(floats{c}, 1, uniform(0, 1) < c ? 1 : 0);
  }
  for (const float x : {.1f, .5f, .9f})
    BOOST_TEST(std::abs(corrected(f, {x})[0] - x) < .15f);
}

// In a text that repeats itself sure blocks may stand before those that fail, every time: no rising line says that.
BOOST_AUTO_TEST_CASE(what_no_line_says_is_seen) {
  acceptance_forecast f(1);
  for (int i = 0; i < 200; ++i) {
    f.observe(floats{.95f}, 1, 0);
    f.observe(floats{.65f}, 1, 1);
  }
  BOOST_TEST(corrected(f, {.95f})[0] < .1f);
  BOOST_TEST(corrected(f, {.65f})[0] > .9f);
  BOOST_TEST(std::abs(corrected(f, {.2f})[0] - .5f) < .1f); // nothing like it came: the line, which is flat
  for (int i = 0; i < 6; ++i)
    f.forget_half();
  BOOST_TEST(std::abs(corrected(f, {.95f})[0] - .5f) < .1f);
}

BOOST_AUTO_TEST_CASE(old_outcomes_are_forgotten_and_survivals_never_rise) {
  acceptance_forecast f(2);
  for (int i = 0; i < 2000; ++i)
    f.observe(floats{.5f, .5f}, 2, 2);
  BOOST_TEST(corrected(f, {.5f, .25f})[0] > .95f);
  for (int i = 0; i < 2000; ++i)
    f.observe(floats{.5f}, 1, 0); // of the second draft nothing is heard
  const floats s = corrected(f, {.5f, .25f});
  BOOST_TEST(s[0] < .05f);
  BOOST_TEST(s[1] == s[0]);
  BOOST_TEST(corrected(f, {0, 0})[0] >= 0);
}

BOOST_AUTO_TEST_SUITE_END()
