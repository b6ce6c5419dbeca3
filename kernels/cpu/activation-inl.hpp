// Row pieces shared by several operations: SwiGLU and rounding onto a number format, with the bits of
// kernels/reference.
#if defined(TROUPE_KERNELS_CPU_ACTIVATION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNELS_CPU_ACTIVATION_INL
#undef TROUPE_KERNELS_CPU_ACTIVATION_INL
#else
#define TROUPE_KERNELS_CPU_ACTIVATION_INL
#endif

#include "kernels/cpu/simd-inl.hpp"
#include "runtime/base/number_formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE f32v set1(float v) {
  return hn::Set(f32_tag(), v);
}
HWY_INLINE f32v larger(f32v a, f32v b) {
  return hn::IfThenElse(hn::Gt(a, b), a, b);
} // b when a is NaN

HWY_INLINE f32v swiglu_vector(f32v g, f32v u, float limit) {
  if (limit > 0) {
    const f32v top = set1(limit), bottom = set1(-limit);
    g = hn::IfThenElse(hn::Gt(g, top), top, g);
    u = hn::IfThenElse(hn::Gt(u, top), top, hn::IfThenElse(hn::Lt(u, bottom), bottom, u));
  }
  return hn::Mul(exact::silu_lanes<vector_lanes_policy>(g), u);
}

// Largest magnitude of x[n], n a multiple of 16; NaN counts as 0.
HWY_INLINE float largest_magnitude(const float* x, int n) {
  f32v m = hn::Zero(f32_tag());
  for (int i = 0; i < n; i += vector_lanes)
    m = larger(hn::Abs(hn::LoadU(f32_tag(), x + i)), m);
  return hn::GetLane(hn::MaxOfLanes(f32_tag(), m));
}

// e4m3 and back of a value already divided by its scale (number_formats.hpp, f32_from_e4m3(e4m3_from_f32(v))).
HWY_INLINE f32v e4m3_values(f32v v) {
  const u32v bits = hn::BitCast(u32_tag(), v), sign = hn::And(bits, hn::Set(u32_tag(), 0x80000000u));
  const f32v a = hn::Abs(v);
  const auto small = hn::Lt(a, set1(0x1p-6f)); // multiples of 2^-9, the last place of 2^14 + a
  const f32v low = hn::Sub(hn::Add(a, set1(16384.0f)), set1(16384.0f));
  const u32v ab = hn::BitCast(u32_tag(), hn::IfThenElse(hn::Gt(a, set1(448.0f)), set1(448.0f), a));
  const u32v even = hn::And(hn::ShiftRight<20>(ab), hn::Set(u32_tag(), 1u));
  const u32v moved = hn::Add(hn::Add(ab, hn::Set(u32_tag(), 0x7ffffu)), even);
  const f32v high = as_f32(hn::And(moved, hn::Set(u32_tag(), 0xfff00000u)));
  const f32v nan = as_f32(hn::Set(u32_tag(), 0x7fc00000u));
  f32v r = hn::IfThenElse(small, low, high);
  r = hn::IfThenElse(hn::Eq(v, v), r, nan);
  return hn::Or(r, as_f32(sign));
}

// x[32] -> out[32] through e4m3 with one power-of-two scale.
HWY_INLINE void round_fp8_block(const float* x, float* out) {
  const f32v scale = set1(fp8_scale(largest_magnitude(x, 32)));
  for (int i = 0; i < 32; i += vector_lanes) {
    const f32v v = hn::Div(hn::LoadU(f32_tag(), x + i), scale);
    hn::StoreU(hn::Mul(e4m3_values(v), scale), f32_tag(), out + i);
  }
}

// e2m1 and back of a value already divided by its scale; NaN becomes 6 with its sign, as in number_formats.hpp.
HWY_INLINE f32v e2m1_values(f32v v) {
  const f32v a = hn::Abs(v);
  f32v r = set1(6.0f);
  r = hn::IfThenElse(hn::Le(a, set1(5.0f)), set1(4.0f), r);
  r = hn::IfThenElse(hn::Lt(a, set1(3.5f)), set1(3.0f), r);
  r = hn::IfThenElse(hn::Le(a, set1(2.5f)), set1(2.0f), r);
  r = hn::IfThenElse(hn::Lt(a, set1(1.75f)), set1(1.5f), r);
  r = hn::IfThenElse(hn::Le(a, set1(1.25f)), set1(1.0f), r);
  r = hn::IfThenElse(hn::Lt(a, set1(0.75f)), set1(0.5f), r);
  r = hn::IfThenElse(hn::Le(a, set1(0.25f)), hn::Zero(f32_tag()), r);
  return hn::Or(r, as_f32(hn::And(hn::BitCast(u32_tag(), v), hn::Set(u32_tag(), 0x80000000u))));
}
HWY_INLINE void round_fp4_block(const float* x, float* out) {
  const f32v scale = set1(fp4_scale(largest_magnitude(x, 32)));
  for (int i = 0; i < 32; i += vector_lanes) {
    const f32v v = hn::Div(hn::LoadU(f32_tag(), x + i), scale);
    hn::StoreU(hn::Mul(e2m1_values(v), scale), f32_tag(), out + i);
  }
}

HWY_INLINE f32v bf16_values(f32v v) {
  const u32v b = hn::BitCast(u32_tag(), v);
  const u32v odd = hn::And(hn::ShiftRight<16>(b), hn::Set(u32_tag(), 1u));
  const u32v moved = hn::Add(hn::Add(b, hn::Set(u32_tag(), 0x7fffu)), odd);
  const f32v r = as_f32(hn::And(moved, hn::Set(u32_tag(), 0xffff0000u)));
  return hn::IfThenElse(hn::Eq(v, v), r, as_f32(hn::Set(u32_tag(), 0x7fc00000u)));
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();
#endif
