#include "kernels/cpu/probe.hpp"

#include "kernels/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/probe.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

std::int64_t fma_rounds(std::int64_t rounds, float* sink) {
  constexpr int chains = 10; // more than the latency times the units of today's cores
  const f32v a = hn::Set(f32_tag(), 0.999f), b = hn::Set(f32_tag(), 0.001f);
  f32v acc[chains];
  unroll<chains>([&](auto i) TROUPE_INLINED { acc[i] = hn::Set(f32_tag(), static_cast<float>(int{i})); });
  for (std::int64_t n = 0; n < rounds; ++n)
    unroll<chains>([&](auto i) TROUPE_INLINED { acc[i] = fused(acc[i], a, b); });
  f32v sum = acc[0];
  unroll<chains>([&](auto i) TROUPE_INLINED { sum = hn::Add(sum, acc[i]); });
  *sink = hn::GetLane(sum);
  return rounds * chains * vector_lanes;
}

void read_bytes(const std::byte* from, std::size_t n, std::uint32_t* sink) {
  constexpr int loads = 4;
  u32v acc[loads];
  unroll<loads>([&](auto i) TROUPE_INLINED { acc[i] = hn::Zero(u32_tag()); });
  const auto* p = reinterpret_cast<const std::uint32_t*>(from);
  for (std::size_t k = 0; k < n / 4; k += static_cast<std::size_t>(loads * vector_lanes))
    unroll<loads>([&](auto i)
                      TROUPE_INLINED { acc[i] = hn::Xor(acc[i], hn::LoadU(u32_tag(), p + k + i * vector_lanes)); });
  *sink = hn::GetLane(hn::Xor(hn::Xor(acc[0], acc[1]), hn::Xor(acc[2], acc[3])));
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {
HWY_EXPORT(fma_rounds);
HWY_EXPORT(read_bytes);
std::int64_t probe_fma(std::int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_rounds)(rounds, sink);
}
void probe_read(const std::byte* from, std::size_t n, std::uint32_t* sink) {
  HWY_DYNAMIC_DISPATCH(read_bytes)(from, n, sink);
}
} // namespace troupe::cpu
#endif
