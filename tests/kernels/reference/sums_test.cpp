#include "kernels/reference/sums.hpp"

#include "runtime/base/noise.hpp"
#include "runtime/base/number_formats.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

using namespace troupe;
using namespace troupe::reference;

namespace {

// The vectors of exactness.md T7.
std::vector<float> t7(std::uint64_t key, std::uint32_t n = 1000) {
  std::vector<float> v(n);
  for (std::uint32_t i = 0; i < n; ++i)
    v[i] = static_cast<float>(static_cast<std::int32_t>(philox(key, i, 0, 0, 0).w[0] >> 8) - (1 << 23)) * 0x1p-23f;
  return v;
}

} // namespace

BOOST_AUTO_TEST_SUITE(reference_sums)

BOOST_AUTO_TEST_CASE(t7_product_order_is_exact) {
  const std::vector<float> a = t7(1), b = t7(2);
  BOOST_TEST(float_bits(a[0]) == 0x3f47d00cu);
  BOOST_TEST(float_bits(b[0]) == 0xbe18af10u);
  float y = 0;
  product(a.data(), b.data(), 1000, 1, 1, &y);
  BOOST_TEST(float_bits(y) == 0xbf1355c9u);

  float descending = 0, half[2] = {0, 0}, unfused = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    descending = std::fma(a[999 - i], b[999 - i], descending);
    half[i / 500] = std::fma(a[i], b[i], half[i / 500]);
    const float t = a[i] * b[i];
    unfused = unfused + t;
  }
  BOOST_TEST(float_bits(descending) == 0xbf1355a3u);
  BOOST_TEST(float_bits(half[0] + half[1]) == 0xbf1355ccu);
  BOOST_TEST(float_bits(unfused) == 0xbf1355c5u);
}

BOOST_AUTO_TEST_CASE(t7_row_reduction_order_is_exact) {
  const std::vector<float> a = t7(1);
  BOOST_TEST(float_bits(dot16(a.data(), a.data(), 1000)) == 0x43a1c8fau);
  float sequential = 0;
  product(a.data(), a.data(), 1000, 1, 1, &sequential);
  BOOST_TEST(float_bits(sequential) == 0x43a1c908u);
}

// Outputs of every width take the same steps, whichever tile they fall into.
BOOST_AUTO_TEST_CASE(product_does_not_depend_on_the_number_of_outputs) {
  constexpr std::size_t in = 37, most = 203;
  const std::vector<float> x = t7(3, in), w = t7(4, in * most);
  std::vector<float> want(most);
  for (std::size_t o = 0; o < most; ++o)
    for (std::size_t k = 0; k < in; ++k)
      want[o] = std::fma(x[k], w[k * most + o], want[o]);
  for (const std::size_t out : {1, 7, 8, 9, 63, 64, 65, 72, 128, 137, 203}) {
    std::vector<float> y(out + 1, 99.0f);
    product(x.data(), w.data(), in, static_cast<std::int64_t>(out), most, y.data());
    for (std::size_t o = 0; o < out; ++o)
      BOOST_REQUIRE_EQUAL(float_bits(y[o]), float_bits(want[o]));
    BOOST_TEST(y.back() == 99.0f);
  }
}

BOOST_AUTO_TEST_CASE(row_reduction_of_short_and_odd_lengths) {
  for (const std::uint32_t n : {0u, 1u, 15u, 16u, 17u, 31u, 33u, 100u}) {
    const std::vector<float> a = t7(5, n), b = t7(6, n), w = t7(7, n);
    float plain[16] = {}, weighted[16] = {};
    for (std::uint32_t i = 0; i < n; ++i) {
      plain[i % 16] = std::fma(a[i], b[i], plain[i % 16]);
      const float t = a[i] * b[i];
      weighted[i % 16] = std::fma(t, w[i], weighted[i % 16]);
    }
    const auto tree = [](const float* p) { // written out: the pairs that meet at distance 8, 4, 2, 1
      float e[8], q[4];
      for (int l = 0; l < 8; ++l)
        e[l] = p[l] + p[l + 8];
      for (int l = 0; l < 4; ++l)
        q[l] = e[l] + e[l + 4];
      return (q[0] + q[2]) + (q[1] + q[3]);
    };
    BOOST_TEST(float_bits(dot16(a.data(), b.data(), n)) == float_bits(tree(plain)));
    BOOST_TEST(float_bits(dot16_weighted(a.data(), b.data(), w.data(), n)) == float_bits(tree(weighted)));
  }
}

BOOST_AUTO_TEST_CASE(weighted_row_reduction_rounds_the_first_product) {
  const std::vector<float> a = t7(8), b = t7(9), w = t7(10);
  float other[16] = {}; // a * (b * w) instead of (a * b) * w
  for (std::size_t i = 0; i < 1000; ++i) {
    const float t = b[i] * w[i];
    other[i % 16] = std::fma(a[i], t, other[i % 16]);
  }
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; ++l)
      other[l] = other[l] + other[l + half];
  const float got = dot16_weighted(a.data(), b.data(), w.data(), 1000);
  BOOST_TEST(float_bits(got) != float_bits(other[0]));
  BOOST_TEST(std::fabs(got - other[0]) < 1e-4f);
}

BOOST_AUTO_TEST_SUITE_END()
