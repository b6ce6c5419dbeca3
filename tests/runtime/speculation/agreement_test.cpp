#include "runtime/speculation/agreement.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

using namespace troupe;

namespace {

using floats = std::vector<float>;

floats logs(std::initializer_list<double> p) {
  floats out;
  for (const double v : p)
    out.push_back(static_cast<float>(std::log(v)));
  return out;
}

// By the formula, every pair of tokens.
double by_pairs(const floats& p, const floats& d) {
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) {
    double all = 0;
    for (std::size_t y = 0; y < p.size(); ++y)
      all += std::exp(std::max(double{p[y]} - p[x], double{d[y]} - d[x]));
    sum += 1 / all;
  }
  return sum;
}

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_agreement)

// Of two tokens the coupled rule loses nothing against the rejection rule.
BOOST_AUTO_TEST_CASE(two_tokens) {
  const floats p = logs({.7, .3}), d = logs({.5, .5});
  BOOST_TEST(std::abs(coupled_agreement(p, d) - .8) < 1e-6);
  BOOST_TEST(std::abs(common_mass(p, d) - .8) < 1e-6);
  BOOST_TEST(std::abs(coupled_agreement(p, p) - 1) < 1e-6);
}

BOOST_AUTO_TEST_CASE(sorting_gives_what_all_pairs_give) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (int trial = 0; trial < 200; ++trial) {
    floats p(2 + random() % 60), d(p.size());
    for (std::size_t i = 0; i < p.size(); ++i)
      p[i] = normal(random), d[i] = random() % 4 == 0 ? p[i] : normal(random);
    BOOST_REQUIRE(std::abs(coupled_agreement(p, d) - by_pairs(p, d)) < 1e-9);
    const double tv = 1 - common_mass(p, d);
    BOOST_REQUIRE(coupled_agreement(p, d) >= (1 - tv) / (1 + tv) - 1e-9);
    BOOST_REQUIRE(coupled_agreement(p, d) <= 1 - tv + 1e-9);
  }
}

// Shares of equal maxima among n draws lie within 5 standard deviations: one failure in 10^6 runs, were the seed free.
BOOST_AUTO_TEST_CASE(draws_with_common_noise_agree_that_often) {
  std::mt19937_64 random(2);
  std::exponential_distribution<double> exponential;
  std::normal_distribution<float> normal(0, 2);
  for (int trial = 0; trial < 5; ++trial) {
    floats p(40), d(40);
    for (std::size_t i = 0; i < p.size(); ++i)
      p[i] = normal(random), d[i] = p[i] + .3f * static_cast<float>(trial) * normal(random);
    constexpr int draws = 40000;
    int equal = 0;
    for (int n = 0; n < draws; ++n) {
      std::size_t x = 0, y = 0;
      double best_p = -1e300, best_d = -1e300;
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = -std::log(exponential(random));
        if (p[i] + g > best_p)
          best_p = p[i] + g, x = i;
        if (d[i] + g > best_d)
          best_d = d[i] + g, y = i;
      }
      equal += x == y;
    }
    const double want = coupled_agreement(p, d);
    BOOST_TEST(std::abs(equal / double{draws} - want) <= 5 * std::sqrt(want * (1 - want) / draws) + 1e-6);
  }
}

BOOST_AUTO_TEST_SUITE_END()
