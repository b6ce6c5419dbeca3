#include "runtime/speculation/calibration.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <random>

using namespace troupe;

namespace {

using floats = std::vector<float>;

double logit(double p) {
  return std::log(p / (1 - p));
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// A drafter whose drafts are accepted with probabilities that it knows, but tells with logits stretched by `stretch`.
struct stretched_drafter {
  std::mt19937 random{7};
  std::vector<double> stretch;

  void draft(calibration& c) {
    std::uniform_real_distribution<> uniform(0, 1);
    floats told;
    std::int32_t accepted = 0;
    bool reached = true;
    for (const double s : stretch) {
      const double truth = .3 + .69 * uniform(random);
      told.push_back(static_cast<float>(sigmoid(logit(truth) * s)));
      reached = reached && uniform(random) < truth;
      accepted += reached ? 1 : 0;
    }
    c.observe({told, accepted});
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_calibration)

BOOST_AUTO_TEST_CASE(only_drafts_that_verification_reached_count) {
  calibration c;
  c.observe({floats{.95f, .95f, .15f, .5f}, 2}); // 0 and 1 right, 2 wrong, 3 never looked at
  c.observe({floats{.95f, .05f}, 0});
  c.observe({floats{1.0f}, 1});
  c.observe({{}, 0});
  BOOST_REQUIRE(c.positions().size() == 4u);
  const auto counts = [&](std::size_t j) { return std::pair(c.positions()[j].drafts(), c.positions()[j].accepted()); };
  BOOST_TEST((counts(0) == std::pair<std::uint64_t, std::uint64_t>(3, 2)));
  BOOST_TEST((counts(1) == std::pair<std::uint64_t, std::uint64_t>(1, 1)));
  BOOST_TEST((counts(2) == std::pair<std::uint64_t, std::uint64_t>(1, 0)));
  BOOST_TEST((counts(3) == std::pair<std::uint64_t, std::uint64_t>(0, 0)));
  const reliability_bin& top = c.positions()[0].bin[9];
  BOOST_TEST((top.drafts == 3 && top.accepted == 2));
  BOOST_TEST(top.confidence == 2.9, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(c.positions()[0].error() == .3, boost::test_tools::tolerance(1e-6)); // |2 - 2.9| / 3
  BOOST_TEST(c.positions()[2].error() == .15, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(c.positions()[3].error() == 0);
  BOOST_TEST((c.drafts() == 7 && c.accepted() == 3 && c.blocks() == 3));
  BOOST_TEST(c.tokens_per_step() == 2.0);
}

BOOST_AUTO_TEST_CASE(numbers_that_are_none_are_clamped) {
  calibration c;
  const float inf = std::numeric_limits<float>::infinity();
  c.observe({floats{std::numeric_limits<float>::quiet_NaN(), inf, -inf, 2.0f, .5f}, 5});
  BOOST_TEST(c.positions()[0].bin[0].drafts == 1u);
  BOOST_TEST(c.positions()[1].bin[9].drafts == 1u);
  BOOST_TEST(c.positions()[2].bin[0].drafts == 1u);
  BOOST_TEST(c.positions()[3].bin[9].confidence == 1.0);
}

BOOST_AUTO_TEST_CASE(a_drafter_that_is_never_right_is_named) {
  calibration c;
  for (std::uint64_t i = 0; i < calibration::alarm_drafts; i += 2) {
    BOOST_TEST(!c.useless());
    c.observe({floats{.9f, .9f}, 0});
  }
  BOOST_TEST(c.useless());
  c.observe({floats{.9f}, 1}); // one accident says nothing for good
  for (std::uint64_t i = 0; i < calibration::alarm_blocks; ++i) {
    BOOST_TEST(!c.useless());
    c.observe({floats{.9f}, 0});
  }
  BOOST_TEST(c.useless());
  BOOST_TEST(calibration{}.tokens_per_step() == 1.0);
}

BOOST_AUTO_TEST_CASE(honest_confidences_have_a_small_error_and_need_no_temperature) {
  calibration c;
  stretched_drafter d{.stretch = {1, 1, 1}};
  for (int i = 0; i < 20000; ++i)
    d.draft(c);
  for (const reliability& r : c.positions())
    BOOST_TEST(r.error() < .025);
  for (const double t : c.suggested_temperatures({}))
    BOOST_TEST((t > .75 && t < 1.35));
}

BOOST_AUTO_TEST_CASE(stretched_confidences_are_seen_and_their_temperature_is_found) {
  calibration c;
  stretched_drafter d{.stretch = {2.5, .5, 1.6}};
  for (int i = 0; i < 20000; ++i)
    d.draft(c);
  BOOST_TEST(c.positions()[0].error() > .05);
  BOOST_TEST(c.positions()[1].error() > .05);
  const auto t = c.suggested_temperatures({});
  BOOST_REQUIRE(t.size() == 3u);
  for (std::size_t j = 0; j < 3; ++j)
    BOOST_TEST(std::abs(std::log(t[j] / d.stretch[j])) < .3, "position " << j << ": " << t[j]);
  // Confidences that were made with a temperature: the answer is for the logits below it.
  const auto twice = c.suggested_temperatures(std::vector<double>{1, 2});
  BOOST_TEST(twice[0] == t[0]);
  BOOST_TEST(std::abs(std::log(twice[1] / 1.0)) < .3);
  BOOST_TEST(std::abs(std::log(twice[2] / 1.6)) < .3);

  calibration scaled; // with them the error is gone
  std::uniform_real_distribution<> uniform(0, 1);
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {
    const double truth = .3 + .69 * uniform(random);
    const floats told{static_cast<float>(sigmoid(logit(truth) * 2.5 / t[0]))};
    scaled.observe({told, uniform(random) < truth ? 1 : 0});
  }
  BOOST_TEST(scaled.positions()[0].error() < .5 * c.positions()[0].error());
}

BOOST_AUTO_TEST_CASE(few_blocks_suggest_nothing) {
  calibration c;
  stretched_drafter d{.stretch = {3, 3}};
  for (std::size_t i = 0; i + 1 < calibration::least_blocks; ++i)
    d.draft(c);
  BOOST_TEST((c.suggested_temperatures({}) == std::vector<double>{1, 1}));
}

BOOST_AUTO_TEST_SUITE_END()
