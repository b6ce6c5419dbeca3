#include "runtime/base/noise.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(noise)

BOOST_AUTO_TEST_CASE(philox_known_answers) {
  const philox_words zero = philox(0, 0, 0, 0, 0);
  BOOST_TEST(zero.w[0] == 0x6627e8d5u);
  BOOST_TEST(zero.w[1] == 0xe169c58du);
  BOOST_TEST(zero.w[2] == 0xbc57ac4cu);
  BOOST_TEST(zero.w[3] == 0x9b00dbd8u);
  // the two other known answers published with Random123
  const philox_words ones = philox(~0ull, ~0u, ~0u, ~0u, ~0u);
  BOOST_TEST(ones.w[0] == 0x408f276du);
  BOOST_TEST(ones.w[1] == 0x41c83b0eu);
  BOOST_TEST(ones.w[2] == 0xa20bc7c6u);
  BOOST_TEST(ones.w[3] == 0x6d5451fdu);
  const philox_words pi = philox(0x299f31d0a4093822ull, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
  BOOST_TEST(pi.w[0] == 0xd16cfe09u);
  BOOST_TEST(pi.w[1] == 0x94fdcceb);
  BOOST_TEST(pi.w[2] == 0x5001e420u);
  BOOST_TEST(pi.w[3] == 0x24126ea1u);
}

BOOST_AUTO_TEST_CASE(t1_bits_exponential_gumbel) {
  struct row {
    std::uint64_t seed, t;
    std::uint32_t i;
    std::uint64_t r, e, g;
  };
  const row rows[] = {
      {0, 0, 0, 0x7292c8e708745e42, 0x3fe9ba0e745ed982, 0x3fcbee160aac2c68},
      {0, 1, 1, 0x80ea2ee987cd75a7, 0x3fe5f3ec921195cd, 0x3fd81e2523651e3e},
      {42, 7, 129279, 0x9f67b91af44095ac, 0x3fde519051421146, 0x3fe7e86b2f407636},
      {1, (1ull << 32) + 3, 2, 0x28211b7b5bf8c9bd, 0x3ffda62ccc28b34c, 0xbfe3bd2f1f54ff3e},
      {0xDEADBEEFCAFEBABE, 100000, 8191, 0x9de669fe16c191d3, 0x3fdeecff588460a3, 0x3fe745fc713f34d4},
  };
  for (const row& x : rows) {
    const std::uint64_t r = gumbel_bits(x.seed, x.t, x.i);
    BOOST_TEST(r == x.r);
    BOOST_TEST(std::bit_cast<std::uint64_t>(exponential_of(r)) == x.e);
    BOOST_TEST(std::bit_cast<std::uint64_t>(gumbel(x.seed, x.t, x.i)) == x.g);
  }
}

BOOST_AUTO_TEST_CASE(t2_logarithm) {
  const auto bits = [](double v) { return std::bit_cast<std::uint64_t>(exact_ln(v)); };
  BOOST_TEST(bits(3.0) == 0x3ff193ea7aad030bu);
  BOOST_TEST(bits(0x1p-53) == 0xc0425e4f7b2737fau);
  BOOST_TEST(bits(1 - 0x1p-53) == 0xbca0000000000000u);
  BOOST_TEST(bits(std::bit_cast<double>(std::uint64_t{0x3fe6a09e667f3bcc})) == 0xbfd62e42fefa39f1u);
  BOOST_TEST(exact_ln(1.0) == 0.0);
}

BOOST_AUTO_TEST_CASE(t2_mass) {
  BOOST_TEST(exact_mass(0) == 17592186044416u);
  BOOST_TEST(exact_mass(-0.0) == 17592186044416u);
  BOOST_TEST(exact_mass(-.5) == 10670200207307u);
  BOOST_TEST(exact_mass(-1) == 6471803571003u);
  BOOST_TEST(exact_mass(-10) == 798684010u);
  BOOST_TEST(exact_mass(-30.5) == 0u);
  BOOST_TEST(exact_mass(-31.999) == 0u);
  BOOST_TEST(exact_mass(-1e300) == 0u);
  BOOST_TEST(exact_mass(-std::numeric_limits<double>::infinity()) == 0u);
}

BOOST_AUTO_TEST_CASE(logarithm_is_accurate) {
  for (std::uint64_t n = 0; n < 20000; ++n) {
    const philox_words w = philox(5, static_cast<std::uint32_t>(n), 0, 0, 0);
    const double mantissa = 1 + static_cast<double>(w.w[0]) * 0x1p-32;
    const double v = std::ldexp(mantissa, static_cast<int>(w.w[1] % 120) - 60);
    const long double want = std::log(static_cast<long double>(v));
    BOOST_REQUIRE_LE(std::fabs(static_cast<double>(static_cast<long double>(exact_ln(v)) - want)),
                     4e-16 * std::fmax(1.0, std::fabs(static_cast<double>(want))));
  }
}

// The branch-free form against the definition: floor of e^d * 2^44, at most one unit of rounding off near an integer.
BOOST_AUTO_TEST_CASE(mass_is_accurate_and_monotonic) {
  std::uint64_t previous = exact_mass(0);
  for (int n = 1; n <= 40000; ++n) {
    const double d = -n * 0.0008;
    const std::uint64_t mass = exact_mass(d);
    const long double want = std::exp(static_cast<long double>(d)) * 0x1p44L;
    BOOST_REQUIRE_LE(std::fabs(static_cast<double>(static_cast<long double>(mass) - std::floor(want))),
                     static_cast<double>(want) * 3e-16 + 1);
    BOOST_REQUIRE_LE(mass, previous);
    previous = mass;
  }
}

BOOST_AUTO_TEST_CASE(neighbouring_ids_share_a_call) {
  for (std::uint32_t pair = 0; pair < 100; ++pair) {
    const bit_pair b = gumbel_bits_pair(9, 77, pair);
    BOOST_TEST(b.even == gumbel_bits(9, 77, 2 * pair));
    BOOST_TEST(b.odd == gumbel_bits(9, 77, 2 * pair + 1));
  }
}

BOOST_AUTO_TEST_CASE(gumbel_stays_in_its_bounds) {
  BOOST_TEST(gumbel_of(~0ull) < 36.75);
  BOOST_TEST(gumbel_of(~0ull) > 36.7);
  BOOST_TEST(gumbel_of(0) > -3.61);
  double sum = 0;
  for (std::uint32_t i = 0; i < 100000; ++i)
    sum += gumbel(3, 5, i);
  BOOST_TEST(std::fabs(sum / 100000 - 0.5772156649) < 0.02); // mean of the Gumbel distribution: Euler's constant
}

BOOST_AUTO_TEST_SUITE_END()
