// Row reductions with 16 partial sums (exactness.md §2), and loops over the elements of a row.
#if defined(TROUPE_KERNELS_CPU_SUM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNELS_CPU_SUM_INL
#undef TROUPE_KERNELS_CPU_SUM_INL
#else
#define TROUPE_KERNELS_CPU_SUM_INL
#endif

#include "kernels/cpu/simd-inl.hpp"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

// The elements that one step of for_elements works on: a whole vector, or the first n lanes of one (others read as 0).
struct whole_vector {
  HWY_INLINE f32v load(const float* p) const { return hn::LoadU(f32_tag(), p); }
  HWY_INLINE void store(f32v v, float* p) const { hn::StoreU(v, f32_tag(), p); }
};
struct part_vector {
  int n;
  HWY_INLINE f32v load(const float* p) const {
    HWY_ALIGN float buffer[16] = {};
    std::copy_n(p, n, buffer);
    return hn::Load(f32_tag(), buffer);
  }
  HWY_INLINE void store(f32v v, float* p) const {
    HWY_ALIGN float buffer[16];
    hn::Store(v, f32_tag(), buffer);
    std::copy_n(buffer, n, p);
  }
};
// f(part, i): elements i.. of [0, n).
template <class F> HWY_INLINE void for_elements(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + vector_lanes <= n; i += vector_lanes)
    f(whole_vector(), i);
  if (i < n)
    f(part_vector{static_cast<int>(n - i)}, i);
}

HWY_INLINE float combine16(const lanes16& a) {
  HWY_ALIGN float p[16];
  store16(a, p);
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; ++l)
      p[l] = p[l] + p[l + half];
  return p[0];
}
// Elements past the last whole group of 16 go into the first partials.
template <class Term> HWY_INLINE float reduce16(std::int64_t n, Term&& term) {
  lanes16 acc = zero16();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    unroll<parts>([&](auto p) TROUPE_INLINED { acc.v[p] = term(whole_vector(), i + p * vector_lanes, acc.v[p]); });
  if (i < n) {
    HWY_ALIGN float before[16], after[16];
    store16(acc, before);
    const std::int64_t rest = n - i;
    for (std::int64_t at = 0; at < rest; at += vector_lanes) {
      const part_vector part{static_cast<int>(std::min<std::int64_t>(rest - at, vector_lanes))};
      hn::StoreU(term(part, i + at, hn::LoadU(f32_tag(), before + at)), f32_tag(), after + at);
    }
    std::copy_n(after, rest, before);
    acc = load16(before);
  }
  return combine16(acc);
}
HWY_INLINE float dot16(const float* a, const float* b, std::int64_t n) {
  return reduce16(n, [=](auto part, std::int64_t i, f32v acc)
                         TROUPE_INLINED { return fused(part.load(a + i), part.load(b + i), acc); });
}
HWY_INLINE float dot16_weighted(const float* a, const float* b, const float* w, std::int64_t n) {
  return reduce16(n, [=](auto part, std::int64_t i, f32v acc) TROUPE_INLINED {
    return fused(hn::Mul(part.load(a + i), part.load(b + i)), part.load(w + i), acc);
  });
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();
#endif
