// SIMD vocabulary of the cpu kernels, compiled once per instruction set. lanes16 is 16 floats whatever the width: an
// output panel. Every operation rounds like its scalar form, so all instruction sets give the same bits.
#if defined(TROUPE_KERNELS_CPU_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNELS_CPU_SIMD_INL
#undef TROUPE_KERNELS_CPU_SIMD_INL
#else
#define TROUPE_KERNELS_CPU_SIMD_INL
#endif

#include "hwy/highway.h"
#include "runtime/base/exact_math.hpp"
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using f32_tag = hn::CappedTag<float, 16>;
using i32_tag = hn::RebindToSigned<f32_tag>;
using u32_tag = hn::RebindToUnsigned<f32_tag>;
using f32v = hn::Vec<f32_tag>;
using i32v = hn::Vec<i32_tag>;
using u32v = hn::Vec<u32_tag>;
constexpr int vector_lanes = static_cast<int>(hn::MaxLanes(f32_tag()));
constexpr int parts = 16 / vector_lanes; // vectors of a panel

HWY_INLINE f32v as_f32(u32v v) {
  return hn::BitCast(f32_tag(), v);
}

// f(0), f(1), ... f(n-1) with compile-time indices; never a loop in the output.
template <class F, int... i> HWY_INLINE void unroll_sequence(F&& f, std::integer_sequence<int, i...>) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int n, class F> HWY_INLINE void unroll(F&& f) {
  unroll_sequence(f, std::make_integer_sequence<int, n>());
}

// a * b + c, rounded once.
HWY_INLINE f32v fused(f32v a, f32v b, f32v c) {
#if HWY_TARGET == HWY_SCALAR
  return f32v(std::fma(a.raw, b.raw, c.raw));
#elif HWY_TARGET == HWY_SSE4
  // No fused instruction: in binary64 the product is exact; the sum is rounded to odd, so that rounding it once more,
  // to binary32, gives the correctly rounded result (53 >= 24 + 2 bits).
  const auto half = [](__m128d a2, __m128d b2, __m128d c2) TROUPE_INLINED {
    const __m128d p = _mm_mul_pd(a2, b2), s = _mm_add_pd(p, c2);
    const __m128d t = _mm_sub_pd(s, p);
    const __m128d e = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(s, t)), _mm_sub_pd(c2, t)); // p + c2 - s, exactly
    const __m128d zero = _mm_setzero_pd();
    const __m128i inexact = _mm_castpd_si128(_mm_and_pd(_mm_cmpneq_pd(e, zero), _mm_cmpord_pd(e, e)));
    const __m128i bits = _mm_castpd_si128(s);
    const __m128i even = _mm_cmpeq_epi64(_mm_and_si128(bits, _mm_set1_epi64x(1)), _mm_setzero_si128());
    // towards the error: away from zero (+1) when it has the sum's sign, else -1
    const __m128i opposite = _mm_castpd_si128(_mm_cmplt_pd(_mm_xor_pd(_mm_and_pd(s, _mm_set1_pd(-0.0)), e), zero));
    const __m128i step = _mm_or_si128(opposite, _mm_set1_epi64x(1));
    const __m128i odd = _mm_add_epi64(bits, _mm_and_si128(step, _mm_and_si128(inexact, even)));
    return _mm_cvtpd_ps(_mm_castsi128_pd(odd));
  };
  const auto high = [](__m128 v) TROUPE_INLINED { return _mm_movehl_ps(v, v); };
  const __m128 lo = half(_mm_cvtps_pd(a.raw), _mm_cvtps_pd(b.raw), _mm_cvtps_pd(c.raw));
  const __m128 hi = half(_mm_cvtps_pd(high(a.raw)), _mm_cvtps_pd(high(b.raw)), _mm_cvtps_pd(high(c.raw)));
  return f32v{_mm_movelh_ps(lo, hi)};
#else
  return hn::MulAdd(a, b, c);
#endif
}

// exact_math.hpp's policy for one vector of this instruction set.
struct vector_lanes_policy {
  using f32 = f32v;
  using i32 = i32v;
  using mask = hn::Mask<f32_tag>;
  static HWY_INLINE f32 set(float v) { return hn::Set(f32_tag(), v); }
  static HWY_INLINE i32 set_int(std::int32_t v) { return hn::Set(i32_tag(), v); }
  static HWY_INLINE f32 add(f32 a, f32 b) { return hn::Add(a, b); }
  static HWY_INLINE f32 sub(f32 a, f32 b) { return hn::Sub(a, b); }
  static HWY_INLINE f32 mul(f32 a, f32 b) { return hn::Mul(a, b); }
  static HWY_INLINE f32 div(f32 a, f32 b) { return hn::Div(a, b); }
  static HWY_INLINE f32 fma(f32 a, f32 b, f32 c) { return fused(a, b, c); }
  static HWY_INLINE f32 sqrt(f32 a) { return hn::Sqrt(a); }
  static HWY_INLINE i32 as_int(f32 a) { return hn::BitCast(i32_tag(), a); }
  static HWY_INLINE f32 as_float(i32 a) { return hn::BitCast(f32_tag(), a); }
  static HWY_INLINE i32 round_int(f32 a) {
    return hn::Sub(as_int(hn::Add(a, set(12582912.0f))), as_int(set(12582912.0f)));
  }
  static HWY_INLINE f32 to_float(i32 a) { return hn::ConvertTo(f32_tag(), a); }
  static HWY_INLINE i32 add_int(i32 a, i32 b) { return hn::Add(a, b); }
  static HWY_INLINE i32 sub_int(i32 a, i32 b) { return hn::Sub(a, b); }
  static HWY_INLINE i32 and_int(i32 a, i32 b) { return hn::And(a, b); }
  template <int n> static HWY_INLINE i32 shift_left(i32 a) { return hn::ShiftLeft<n>(a); }
  template <int n> static HWY_INLINE i32 shift_right(i32 a) { return hn::ShiftRight<n>(a); }
  static HWY_INLINE mask less(f32 a, f32 b) { return hn::Lt(a, b); }
  static HWY_INLINE mask equal(f32 a, f32 b) { return hn::Eq(a, b); }
  static HWY_INLINE f32 select(mask m, f32 yes, f32 no) { return hn::IfThenElse(m, yes, no); }
};

namespace exact {
#pragma push_macro("TROUPE_EXACT_FN")
#undef TROUPE_EXACT_FN
#define TROUPE_EXACT_FN HWY_INLINE
#include "runtime/base/exact_math-inl.hpp"
#pragma pop_macro("TROUPE_EXACT_FN")
} // namespace exact

// 16 floats, lane l of part p is element p * vector_lanes + l.
struct lanes16 {
  f32v v[parts];
};
HWY_INLINE lanes16 zero16() {
  lanes16 a;
  unroll<parts>([&](auto p) TROUPE_INLINED { a.v[p] = hn::Zero(f32_tag()); });
  return a;
}
HWY_INLINE lanes16 load16(const float* from) {
  lanes16 a;
  unroll<parts>([&](auto p) TROUPE_INLINED { a.v[p] = hn::LoadU(f32_tag(), from + p * vector_lanes); });
  return a;
}
HWY_INLINE void store16(const lanes16& a, float* to) {
  unroll<parts>([&](auto p) TROUPE_INLINED { hn::StoreU(a.v[p], f32_tag(), to + p * vector_lanes); });
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();
#endif
