#include "runtime/base/exact_math.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace troupe;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float a_nan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits(float v) {
  return std::bit_cast<std::uint32_t>(v);
}
float value(std::uint32_t b) {
  return std::bit_cast<float>(b);
}

// Error of `got` in units of the last place of fp32 at `want`.
double ulps(float got, long double want) {
  if (got == static_cast<float>(want))
    return 0;
  const float w = static_cast<float>(want);
  const int exponent = std::max(std::ilogb(w), -126);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / std::ldexp(1.0L, exponent - 23));
}

// Largest error of f against g over every `stride`-th float of [low, high] with both signs of bit patterns counted up.
template <class F, class G> double worst(F f, G g, float low, float high, std::uint32_t stride) {
  double w = 0;
  for (std::uint32_t b = bits(low); b <= bits(high); b += stride)
    w = std::max(w, ulps(f(value(b)), g(static_cast<long double>(value(b)))));
  return w;
}

long double softplus_l(long double z) {
  return z > 20 ? z : std::log1p(std::exp(z));
}
long double sigmoid_l(long double x) {
  return 1 / (1 + std::exp(-x));
}

} // namespace

BOOST_AUTO_TEST_SUITE(exact_math)

BOOST_AUTO_TEST_CASE(exp_is_accurate) {
  const auto want = [](long double x) { return std::exp(x); };
  BOOST_TEST(worst(exp_f32, want, 0x1p-30f, 88.72283f, 997) <= 1.0);
  BOOST_TEST(worst(exp_f32, want, -0x1p-30f, -87.33654f, 997) <= 1.0);
  BOOST_TEST(worst(exp_f32, want, -87.33654f, -103.97f, 13) <= 1.0); // subnormal results
}

BOOST_AUTO_TEST_CASE(exp_limits) {
  BOOST_TEST(exp_f32(0.0f) == 1.0f);
  BOOST_TEST(exp_f32(-0.0f) == 1.0f);
  BOOST_TEST(exp_f32(inf) == inf);
  BOOST_TEST(bits(exp_f32(-inf)) == 0u);
  BOOST_TEST(exp_f32(88.72284f) == inf);
  BOOST_TEST(exp_f32(88.72283f) > 3.4e38f);
  BOOST_TEST(exp_f32(88.72283f) < inf);
  BOOST_TEST(exp_f32(3e38f) == inf);
  BOOST_TEST(exp_f32(-3e38f) == 0.0f);
  BOOST_TEST(exp_f32(-103.9f) == 0x1p-149f);
  BOOST_TEST(exp_f32(-104.1f) == 0.0f);
  BOOST_TEST(std::isnan(exp_f32(a_nan)));
}

BOOST_AUTO_TEST_CASE(exp_never_falls) {
  float previous = 0;
  for (int i = -104 * 512; i <= 89 * 512; ++i) {
    const float y = exp_f32(static_cast<float>(i) / 512);
    BOOST_REQUIRE_GE(y, previous);
    previous = y;
  }
}

BOOST_AUTO_TEST_CASE(log1p_is_accurate) {
  const auto want = [](long double y) { return std::log1p(y); };
  BOOST_TEST(worst(log1p_f32, want, 0x1p-149f, 0x1p100f, 1499) <= 2.0);
  BOOST_TEST(worst(log1p_f32, want, 0.1f, 8.0f, 17) <= 2.0);
  BOOST_TEST(bits(log1p_f32(0.0f)) == 0u);
  BOOST_TEST(std::isnan(log1p_f32(a_nan)));
}

BOOST_AUTO_TEST_CASE(softplus_is_accurate) {
  BOOST_TEST(worst(softplus_f32, softplus_l, 0x1p-30f, 100.0f, 997) <= 3.0);
  BOOST_TEST(worst(softplus_f32, softplus_l, -0x1p-30f, -103.9f, 997) <= 3.0);
  BOOST_TEST(softplus_f32(20.000002f) == 20.000002f);
  BOOST_TEST(softplus_f32(20.0f) == 20.0f);
  BOOST_TEST(softplus_f32(inf) == inf);
  BOOST_TEST(softplus_f32(-inf) == 0.0f);
  BOOST_TEST(std::isnan(softplus_f32(a_nan)));
}

BOOST_AUTO_TEST_CASE(sigmoid_and_silu) {
  const auto silu_l = [](long double x) { return x * sigmoid_l(x); };
  BOOST_TEST(worst(sigmoid_f32, sigmoid_l, 0x1p-30f, 100.0f, 997) <= 2.0);
  BOOST_TEST(worst(sigmoid_f32, sigmoid_l, -0x1p-30f, -87.0f, 997) <= 2.5);
  BOOST_TEST(worst(silu_f32, silu_l, 0x1p-30f, 100.0f, 997) <= 2.5);
  BOOST_TEST(worst(silu_f32, silu_l, -0x1p-30f, -87.0f, 997) <= 2.5);
  BOOST_TEST(sigmoid_f32(0.0f) == 0.5f);
  BOOST_TEST(sigmoid_f32(inf) == 1.0f);
  BOOST_TEST(sigmoid_f32(-inf) == 0.0f);
  BOOST_TEST(sigmoid_f32(-1e30f) == 0.0f);
  BOOST_TEST(silu_f32(1e30f) == 1e30f);
  BOOST_TEST(silu_f32(-1e30f) == 0.0f);
  BOOST_TEST(std::isnan(sigmoid_f32(a_nan)));
  BOOST_TEST(std::isnan(silu_f32(a_nan)));
}

BOOST_AUTO_TEST_CASE(rsqrt_is_two_roundings) {
  BOOST_TEST(rsqrt_f32(4.0f) == 0.5f);
  BOOST_TEST(rsqrt_f32(2.0f) == 1.0f / std::sqrt(2.0f));
  BOOST_TEST(worst(
                 rsqrt_f32, [](long double x) { return 1 / std::sqrt(x); }, 0x1p-126f, 3e38f, 9973) <= 1.5);
  BOOST_TEST(rsqrt_f32(0.0f) == inf);
}

// Bits of today's sequences: a changed order or constant needs a new numerics id.
BOOST_AUTO_TEST_CASE(stored_bits) {
  const float xs[] = {-90.0f, -20.5f, -3.75f, -1.0f, -0.1f, 1e-5f, 0.3f, 1.0f, 2.7f, 10.0f, 19.9f, 60.0f};
  const std::uint32_t exps[] = {0x0008ec28, 0x30abd1d8, 0x3cc0a84a, 0x3ebc5ab2, 0x3f67a36d, 0x3f800054,
                                0x3facc82c, 0x402df854, 0x416e1362, 0x46ac14ee, 0x4dd15450, 0x6abcede5};
  const std::uint32_t softs[] = {0x0008ec28, 0x30abd1d8, 0x3cbe6d46, 0x3ea063d6, 0x3f24f72e, 0x3f31726c,
                                 0x3f5ab706, 0x3fa818f5, 0x4030f679, 0x41200030, 0x419f3333, 0x42700000};
  const std::uint32_t sigs[] = {0x00000000, 0x30abd1d8, 0x3cbc3b0a, 0x3e89b2b1, 0x3ef335ed, 0x3f00002a,
                                0x3f130eaa, 0x3f3b26a8, 0x3f6fe0fa, 0x3f7ffd06, 0x3f800000, 0x3f800000};
  const std::uint32_t silus[] = {0x80000000, 0xb2dc24dc, 0xbdb07759, 0xbe89b2b1, 0xbd42918b, 0x36a7c5e3,
                                 0x3e307800, 0x3f3b26a8, 0x4021eb0f, 0x411ffe24, 0x419f3333, 0x42700000};
  for (std::size_t i = 0; i < std::size(xs); ++i) {
    BOOST_TEST(bits(exp_f32(xs[i])) == exps[i]);
    BOOST_TEST(bits(softplus_f32(xs[i])) == softs[i]);
    BOOST_TEST(bits(sigmoid_f32(xs[i])) == sigs[i]);
    BOOST_TEST(bits(silu_f32(xs[i])) == silus[i]);
  }
}

BOOST_AUTO_TEST_SUITE_END()
