#include "kernels/cpu/masks.hpp"

#include "kernels/cpu/targets.hpp"
#include "kernels/reference/sample.hpp"
#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/masks.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

// A word of the mask at a time: lane l of part p looks at bit p * vector_lanes + l. No branch depends on the mask.
void copy_allowed_row(const float* from, std::int64_t n, const std::uint32_t* mask, float* to) {
  if (mask == nullptr) {
    std::copy_n(from, n, to);
    return;
  }
  const f32v forbidden = hn::Set(f32_tag(), -std::numeric_limits<float>::infinity());
  const u32v first = hn::Shl(hn::Set(u32_tag(), 1), hn::Iota(u32_tag(), 0));
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const u32v word = hn::Set(u32_tag(), mask[i / 32]);
    unroll<32 / vector_lanes>([&](auto p) TROUPE_INLINED {
      constexpr int at = p * vector_lanes;
      const auto allowed = hn::RebindMask(f32_tag(), hn::TestBit(word, hn::ShiftLeft<at>(first)));
      hn::StoreU(hn::IfThenElse(allowed, hn::LoadU(f32_tag(), from + i + at), forbidden), f32_tag(), to + i + at);
    });
  }
  if (i < n)
    reference::copy_allowed(from + i, n - i, mask + i / 32, to + i);
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {

HWY_EXPORT(copy_allowed_row);

void copy_allowed(const float* from, std::int64_t n, const std::uint32_t* mask, float* to) {
  HWY_DYNAMIC_DISPATCH(copy_allowed_row)(from, n, mask, to);
}

} // namespace troupe::cpu
#endif
