#include "runtime/base/rope.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/noise.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace troupe {

namespace {

// e^x for |x| < 700, relative error below 1e-15.
double exp_f64(double x) {
  using namespace noise_detail;
  const double k = std::nearbyint(x * from_bits(log2_e_bits));
  const double r = (x - k * from_bits(ln2_hi_bits)) - k * from_bits(ln2_lo_bits);
  double p = 1, term = 1;
  for (int n = 1; n <= 18; ++n) {
    term = term * r / n;
    p += term;
  }
  return p * from_bits(static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52);
}

} // namespace

std::vector<float> rope_frequencies(int rope_dim, double base, const std::optional<yarn_params>& yarn) {
  TROUPE_CHECK(rope_dim >= 2 && rope_dim % 2 == 0 && base > 1, "rope_frequencies: bad dimension or base");
  const double log_base = exact_ln(static_cast<double>(static_cast<float>(base)));
  std::vector<float> f(static_cast<std::size_t>(rope_dim / 2));
  for (std::size_t i = 0; i < f.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    f[i] = 1.0f / static_cast<float>(exp_f64(static_cast<double>(exponent) * log_base));
  }
  if (!yarn)
    return f;
  constexpr double two_pi = 6.283185307179586;
  // channel pair whose wave turns `rotations` times within the original context
  const auto dim = [&](double rotations) {
    return rope_dim * exact_ln(yarn->original_max_position_embeddings / (rotations * two_pi)) / (2 * exact_ln(base));
  };
  const double low = std::max(std::floor(dim(yarn->beta_fast)), 0.0);
  const double high = std::min(std::ceil(dim(yarn->beta_slow)), rope_dim - 1.0);
  const float width = high == low ? 0.001f : static_cast<float>(high - low);
  const float factor = static_cast<float>(yarn->factor);
  for (std::size_t i = 0; i < f.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.0f, 1.0f);
    f[i] = f[i] / factor * ramp + f[i] * (1.0f - ramp);
  }
  return f;
}

void rope_cos_sin(float angle, float& c, float& s) {
  const double x = static_cast<double>(angle);
  const double k = std::nearbyint(x * 0x1.45f306dc9c883p-1); // 2 / pi
  // pi / 2 in three parts; the first two have 33 bits, so their products with k < 2^20 are exact
  const double r = ((x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a6p-34) - k * 0x1.3198a2e037073p-69;
  const double z = r * r;
  double sine = 0, cosine = 0;
  for (int n = 9; n >= 1; --n) { // Taylor by Horner: factors 1/((2n)(2n+1)) and 1/((2n-1)(2n))
    sine = (1 - sine) * z / (2.0 * n * (2 * n + 1));
    cosine = (1 - cosine) * z / ((2.0 * n - 1) * (2 * n));
  }
  sine = r - r * sine;
  cosine = 1 - cosine;
  const int quadrant = static_cast<int>(static_cast<std::int64_t>(k) & 3);
  const double cs[4] = {cosine, -sine, -cosine, sine}, sn[4] = {sine, cosine, -sine, -cosine};
  c = static_cast<float>(cs[quadrant]);
  s = static_cast<float>(sn[quadrant]);
}

} // namespace troupe
