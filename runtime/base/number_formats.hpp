// Scalar conversions of the checkpoint's and the caches' number formats (model.md §9): bf16, e4m3 (fn: no infinity),
// e2m1, and UE8M0 scales. Every value of the small formats is exact in fp32; roundings are to nearest, ties to even.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define TROUPE_FORMAT_FN __host__ __device__ inline
#else
#define TROUPE_FORMAT_FN inline
#endif

namespace troupe {

#if defined(__CUDA_ARCH__)
TROUPE_FORMAT_FN std::uint32_t float_bits(float v) {
  return __float_as_uint(v);
}
TROUPE_FORMAT_FN float bits_float(std::uint32_t b) {
  return __uint_as_float(b);
}
TROUPE_FORMAT_FN float format_div(float a, float b) {
  return __fdiv_rn(a, b);
}
#else
TROUPE_FORMAT_FN std::uint32_t float_bits(float v) {
  return __builtin_bit_cast(std::uint32_t, v);
}
TROUPE_FORMAT_FN float bits_float(std::uint32_t b) {
  return __builtin_bit_cast(float, b);
}
TROUPE_FORMAT_FN float format_div(float a, float b) {
  return a / b;
}
#endif

// --- bf16: the upper half of an fp32. NaN becomes 0x7fc0.
TROUPE_FORMAT_FN std::uint16_t bf16_from_f32(float v) {
  const std::uint32_t b = float_bits(v);
  if ((b & 0x7fffffffu) > 0x7f800000u)
    return 0x7fc0;
  return static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
TROUPE_FORMAT_FN float f32_from_bf16(std::uint16_t h) {
  return bits_float(static_cast<std::uint32_t>(h) << 16);
}
TROUPE_FORMAT_FN float round_to_bf16(float v) {
  return f32_from_bf16(bf16_from_f32(v));
}

// --- e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits; largest 448; 0x7f and 0xff are NaN.
// Magnitudes above 448 saturate, as the reference clamps before it converts. NaN keeps its sign.
TROUPE_FORMAT_FN std::uint8_t e4m3_from_f32(float v) {
  const std::uint32_t b = float_bits(v), sign = b >> 31 << 7;
  std::uint32_t a = b & 0x7fffffffu;
  if (a > 0x7f800000u)
    return static_cast<std::uint8_t>(sign | 0x7f);
  if (a > 0x43e00000u) // 448
    a = 0x43e00000u;
  if (a < 0x3c800000u) // below 2^-6: multiples of 2^-9, which is the last place of 2^14 + a
    return static_cast<std::uint8_t>(sign | (float_bits(bits_float(a) + 16384.0f) - 0x46800000u));
  a += 0x7ffffu + ((a >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((a >> 20) - (120u << 3)));
}
TROUPE_FORMAT_FN float f32_from_e4m3(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24, a = code & 0x7fu;
  if (a == 0x7f)
    return bits_float(sign | 0x7fc00000u);
  if (a < 8)
    return bits_float(sign | float_bits(static_cast<float>(a) * 0x1p-9f));
  return bits_float(sign | ((a << 20) + (120u << 23)));
}

// --- e2m1: 1 sign, 2 exponent (bias 1), 1 mantissa bit: 0 0.5 1 1.5 2 3 4 6. Saturates at 6; code in the low four
// bits.
TROUPE_FORMAT_FN std::uint8_t e2m1_from_f32(float v) {
  const std::uint32_t b = float_bits(v), sign = b >> 31 << 3;
  const float a = bits_float(b & 0x7fffffffu);
  // bounds between neighbours; a tie belongs to the even code
  const std::uint32_t code = a <= 0.25f   ? 0
                             : a < 0.75f  ? 1
                             : a <= 1.25f ? 2
                             : a < 1.75f  ? 3
                             : a <= 2.5f  ? 4
                             : a < 3.5f   ? 5
                             : a <= 5.0f  ? 6
                                          : 7; // also NaN, as the reference
  return static_cast<std::uint8_t>(sign | code);
}
TROUPE_FORMAT_FN float f32_from_e2m1(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 8u) << 28, e = (code >> 1) & 3u, m = code & 1u;
  const std::uint32_t a = e != 0 ? (e + 126u) << 23 | m << 22 : m * 0x3f000000u;
  return bits_float(sign | a);
}

// --- UE8M0: a power of two by its biased exponent; 0 is 2^-127 (subnormal), 255 is NaN.
TROUPE_FORMAT_FN float f32_from_ue8m0(std::uint8_t code) {
  return bits_float(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : static_cast<std::uint32_t>(code) << 23);
}
// scale: a positive, normal power of two (what the scale functions below return).
TROUPE_FORMAT_FN std::uint8_t ue8m0_from_f32(float scale) {
  return static_cast<std::uint8_t>((float_bits(scale) >> 23) & 0xffu);
}

// --- scales of a block from its largest magnitude
// Smallest power of two >= x, x > 0, kept in 2^-126 .. 2^127.
TROUPE_FORMAT_FN float pow2_ceil(float x) {
  const std::uint32_t b = float_bits(x);
  std::uint32_t e = ((b >> 23) & 0xffu) + ((b & 0x7fffffu) != 0 ? 1u : 0u);
  e = e < 1u ? 1u : e > 254u ? 254u : e;
  return bits_float(e << 23);
}
// e4m3 with a UE8M0 scale (32 channels: window KV, activations; 32 x 32: weights).
TROUPE_FORMAT_FN float fp8_scale(float amax) {
  return pow2_ceil(format_div(amax < 1e-4f ? 1e-4f : amax, 448.0f));
}
// e2m1 with a UE8M0 scale (32 channels: index queries and keys, expert weights).
TROUPE_FORMAT_FN float fp4_scale(float amax) {
  return pow2_ceil(format_div(amax < 6.0f * 0x1p-126f ? 6.0f * 0x1p-126f : amax, 6.0f));
}
// e2m1 with an e4m3 scale (16 channels: compressed KV): the scale as its e4m3 value; amax / 6 saturates at 448.
TROUPE_FORMAT_FN float fp4_kv_scale(float amax) {
  return f32_from_e4m3(e4m3_from_f32(format_div(amax < 6.0f * 0x1p-9f ? 6.0f * 0x1p-9f : amax, 6.0f)));
}

// --- round trips of one value through a block with scale s
TROUPE_FORMAT_FN float fp8_round_trip(float v, float s) {
  return f32_from_e4m3(e4m3_from_f32(format_div(v, s))) * s;
}
TROUPE_FORMAT_FN float fp4_round_trip(float v, float s) {
  return f32_from_e2m1(e2m1_from_f32(format_div(v, s))) * s;
}

} // namespace troupe
