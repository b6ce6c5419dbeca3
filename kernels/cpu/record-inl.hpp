// Cached vectors (model.md §9) to fp32, with the bits of kernels/reference/records.hpp.
#if defined(TROUPE_KERNELS_CPU_RECORD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNELS_CPU_RECORD_INL
#undef TROUPE_KERNELS_CPU_RECORD_INL
#else
#define TROUPE_KERNELS_CPU_RECORD_INL
#endif

#include "kernels/cpu/product-inl.hpp"
#include "kernels/ops.hpp"
#include "runtime/base/number_formats.hpp"
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

// n e4m3 codes, n a multiple of 16, times scale.
HWY_INLINE void decode_e4m3(const std::byte* codes, int n, float scale, float* out) {
  const auto* bytes = reinterpret_cast<const std::int8_t*>(codes);
  const f32v unit = hn::Set(f32_tag(), 0x1p120f), s = hn::Set(f32_tag(), scale);
  const f32v nan = as_f32(hn::Set(u32_tag(), 0x7fc00000u));
  for (int i = 0; i < n; i += vector_lanes) {
    const i32v code = hn::PromoteTo(i32_tag(), hn::LoadU(hn::Rebind<std::int8_t, i32_tag>(), bytes + i));
    const u32v moved = hn::And(hn::BitCast(u32_tag(), hn::ShiftLeft<20>(code)), hn::Set(u32_tag(), 0x87f00000u));
    const f32v value = hn::Mul(as_f32(moved), unit); // exact, subnormal codes too
    const auto is_nan = hn::Gt(hn::Abs(value), hn::Set(f32_tag(), 448.0f));
    hn::StoreU(hn::Mul(hn::IfThenElse(is_nan, nan, value), s), f32_tag(), out + i);
  }
}

// 16 e2m1 codes from 8 bytes, times scale.
HWY_INLINE void decode_e2m1(const std::byte* codes, float scale, float* out) {
  const decode_fp4 format;
  std::uint32_t half[2]; // eight codes each, the first in the lowest bits
  std::memcpy(half, codes, 8);
  const f32v s = hn::Set(f32_tag(), scale);
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 16; ++i)
    hn::StoreU(hn::Mul(format.decode<0>(hn::Set(u32_tag(), half[i / 8] >> 4 * (i % 8))), s), f32_tag(), out + i);
#else
  const u32v lane = hn::Iota(u32_tag(), 0);
  for (int i = 0; i < 16; i += vector_lanes) {
    u32v word = hn::Set(u32_tag(), half[i / 8]);
    if constexpr (vector_lanes == 16)
      word = hn::IfThenElse(hn::Lt(lane, hn::Set(u32_tag(), 8u)), word, hn::Set(u32_tag(), half[1]));
    const u32v place =
        hn::And(hn::Add(lane, hn::Set(u32_tag(), static_cast<std::uint32_t>(i))), hn::Set(u32_tag(), 7u));
    hn::StoreU(hn::Mul(format.decode<0>(hn::Shr(word, hn::ShiftLeft<2>(place))), s), f32_tag(), out + i);
  }
#endif
}

HWY_INLINE void decode_record(kv_format f, const std::byte* record, std::int64_t dim, float* x) {
  const auto byte_at = [&](std::int64_t i) TROUPE_INLINED { return std::to_integer<std::uint8_t>(record[i]); };
  switch (f) {
  case kv_format::f32:
    std::memcpy(x, record, static_cast<std::size_t>(dim) * 4);
    return;
  case kv_format::fp8_ue8m0_32:
    for (std::int64_t c = 0; c < dim; c += 32)
      decode_e4m3(record + c, 32, f32_from_ue8m0(byte_at(dim + c / 32)), x + c);
    return;
  case kv_format::fp4_e4m3_16:
    for (std::int64_t c = 0; c < dim; c += 16)
      decode_e2m1(record + c / 2, f32_from_e4m3(byte_at(dim / 2 + c / 16)), x + c);
    return;
  case kv_format::fp4_ue8m0_32:
    for (std::int64_t c = 0; c < dim; c += 16)
      decode_e2m1(record + c / 2, f32_from_ue8m0(byte_at(dim / 2 + c / 32)), x + c);
    return;
  }
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();
#endif
