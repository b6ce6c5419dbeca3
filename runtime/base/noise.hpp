// Counter-based noise, natural logarithm and exponential mass of sampling (exactness.md §3): the same bits everywhere.
// Plain functions over integers and binary64, no libm, no containers: the header also compiles for GPUs.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define TROUPE_EVERYWHERE __host__ __device__ inline
#else
#define TROUPE_EVERYWHERE inline
#endif

namespace troupe {

namespace noise_detail {

// One rounding per operation on every compiler: device code would otherwise contract a product and a sum.
#if defined(__CUDA_ARCH__)
TROUPE_EVERYWHERE double add(double a, double b) {
  return __dadd_rn(a, b);
}
TROUPE_EVERYWHERE double sub(double a, double b) {
  return __dsub_rn(a, b);
}
TROUPE_EVERYWHERE double mul(double a, double b) {
  return __dmul_rn(a, b);
}
TROUPE_EVERYWHERE double div(double a, double b) {
  return __ddiv_rn(a, b);
}
TROUPE_EVERYWHERE std::uint64_t bits_of(double v) {
  return static_cast<std::uint64_t>(__double_as_longlong(v));
}
TROUPE_EVERYWHERE double from_bits(std::uint64_t b) {
  return __longlong_as_double(static_cast<long long>(b));
}
#else
TROUPE_EVERYWHERE double add(double a, double b) {
  return a + b;
}
TROUPE_EVERYWHERE double sub(double a, double b) {
  return a - b;
}
TROUPE_EVERYWHERE double mul(double a, double b) {
  return a * b;
}
TROUPE_EVERYWHERE double div(double a, double b) {
  return a / b;
}
TROUPE_EVERYWHERE std::uint64_t bits_of(double v) {
  return __builtin_bit_cast(std::uint64_t, v);
}
TROUPE_EVERYWHERE double from_bits(std::uint64_t b) {
  return __builtin_bit_cast(double, b);
}
#endif

inline constexpr std::uint64_t ln2_hi_bits = 0x3fe62e42fee00000;    // upper bits of ln 2: k times it is exact
inline constexpr std::uint64_t ln2_lo_bits = 0x3dea39ef35793c76;    // the rest
inline constexpr std::uint64_t log2_e_bits = 0x3ff71547652b82fe;    // 1 / ln 2
inline constexpr std::uint64_t sqrt_half_bits = 0x3fe6a09e667f3bcd; // sqrt(1/2)

} // namespace noise_detail

struct philox_words {
  std::uint32_t w[4];
};

// Philox4x32-10: 128 random bits of a 64-bit key and a 128-bit counter.
TROUPE_EVERYWHERE philox_words philox(std::uint64_t key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                      std::uint32_t c3) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// LN(v): natural logarithm of a positive, normal v.
TROUPE_EVERYWHERE double exact_ln(double v) {
  using namespace noise_detail;
  const std::uint64_t bits = bits_of(v);
  int k = static_cast<int>(bits >> 52) - 1022;
  double m = from_bits((bits & 0x000fffffffffffffull) | 0x3fe0000000000000ull); // 0.5 <= m < 1
  if (m < from_bits(sqrt_half_bits)) {
    m = mul(m, 2.0);
    k -= 1;
  }
  const double f = sub(m, 1.0);
  const double s = div(f, add(2.0, f));
  const double z = mul(s, s);
  double p = 1.0 / 23;
  p = add(mul(p, z), 1.0 / 21);
  p = add(mul(p, z), 1.0 / 19);
  p = add(mul(p, z), 1.0 / 17);
  p = add(mul(p, z), 1.0 / 15);
  p = add(mul(p, z), 1.0 / 13);
  p = add(mul(p, z), 1.0 / 11);
  p = add(mul(p, z), 1.0 / 9);
  p = add(mul(p, z), 1.0 / 7);
  p = add(mul(p, z), 1.0 / 5);
  p = add(mul(p, z), 1.0 / 3);
  p = mul(p, z);
  p = mul(p, s);
  p = add(p, s);
  p = add(p, p);
  const double kd = static_cast<double>(k);
  return add(mul(kd, from_bits(ln2_hi_bits)), add(mul(kd, from_bits(ln2_lo_bits)), p));
}

inline constexpr int mass_bits = 44; // MASS(0) = 2^44

// MASS(d) = floor(e^d * 2^44) for d <= 0 (also -inf), 0 below -32. No branch, so that loops over it vectorise.
TROUPE_EVERYWHERE std::uint64_t exact_mass(double d) {
  using namespace noise_detail;
  constexpr double shift = 6755399441055744.0; // 1.5 * 2^52: adding it rounds to an integer, half to even
  constexpr double two52 = 4503599627370496.0;
  // Comparisons of magnitudes are done on bit patterns: a floating-point one would become a branch. The bound keeps the
  // arithmetic finite; such results are masked at the end.
  const std::uint64_t magnitude = bits_of(d) & 0x7fffffffffffffffull;
  const auto beyond = static_cast<std::uint64_t>(-static_cast<std::int64_t>(magnitude > bits_of(32.0)));
  const double c = from_bits((bits_of(-33.0) & beyond) | (bits_of(d) & ~beyond));
  const double t = add(mul(c, from_bits(log2_e_bits)), shift);
  const double k = sub(t, shift);
  const double r = sub(sub(c, mul(k, from_bits(ln2_hi_bits))), mul(k, from_bits(ln2_lo_bits)));
  double p = 1.0 / 6227020800.0; // 1/13!
  p = add(mul(p, r), 1.0 / 479001600.0);
  p = add(mul(p, r), 1.0 / 39916800.0);
  p = add(mul(p, r), 1.0 / 3628800.0);
  p = add(mul(p, r), 1.0 / 362880.0);
  p = add(mul(p, r), 1.0 / 40320.0);
  p = add(mul(p, r), 1.0 / 5040.0);
  p = add(mul(p, r), 1.0 / 720.0);
  p = add(mul(p, r), 1.0 / 120.0);
  p = add(mul(p, r), 1.0 / 24.0);
  p = add(mul(p, r), 1.0 / 6.0);
  p = add(mul(p, r), 0.5);
  p = add(mul(p, r), 1.0);
  p = add(mul(p, r), 1.0);
  const std::uint64_t exponent = bits_of(t) - bits_of(shift) + (1023 + mass_bits);
  const double v = mul(p, from_bits(exponent << 52)); // exact; 0 < v <= 2^44
  const double y = add(v, two52);                     // nearest integer in the low bits
  const auto rounded_up = static_cast<std::uint64_t>(sub(y, two52) > v);
  const std::uint64_t mass = (bits_of(y) & 0x000fffffffffffffull) - rounded_up;
  return mass & ~beyond;
}

// Purposes of the second counter word.
inline constexpr std::uint32_t noise_gumbel = 0x47554D42; // Gumbel noise of a token id
inline constexpr std::uint32_t noise_branch = 0x42524E43; // seeds of the branches of n > 1
inline constexpr std::uint32_t noise_reject = 0x52454A00; // low byte: case of the rejection rule

// 64 random bits of token id i at position t. Two neighbouring ids share one Philox call: gumbel_bits of a pair.
struct bit_pair {
  std::uint64_t even, odd;
};
TROUPE_EVERYWHERE bit_pair gumbel_bits_pair(std::uint64_t seed, std::uint64_t t, std::uint32_t pair) {
  const philox_words x =
      philox(seed, pair, noise_gumbel, static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(t >> 32));
  return {x.w[0] | std::uint64_t{x.w[1]} << 32, x.w[2] | std::uint64_t{x.w[3]} << 32};
}
TROUPE_EVERYWHERE std::uint64_t gumbel_bits(std::uint64_t seed, std::uint64_t t, std::uint32_t i) {
  const bit_pair b = gumbel_bits_pair(seed, t, i >> 1);
  return (i & 1) != 0 ? b.odd : b.even;
}

// Exponential variate E > 0 of 64 random bits, and Gumbel variate G = -LN(E), -3.61 < G < 36.75.
TROUPE_EVERYWHERE double exponential_of(std::uint64_t r) {
  const double u = noise_detail::mul(static_cast<double>(2 * (r >> 12) + 1), 1.0 / 9007199254740992.0);
  return -exact_ln(u);
}
TROUPE_EVERYWHERE double gumbel_of(std::uint64_t r) {
  return -exact_ln(exponential_of(r));
}

// Gumbel noise of token id i drawn at position t (zero-based index in prompt + output).
TROUPE_EVERYWHERE double gumbel(std::uint64_t seed, std::uint64_t t, std::uint32_t i) {
  return gumbel_of(gumbel_bits(seed, t, i));
}

} // namespace troupe
