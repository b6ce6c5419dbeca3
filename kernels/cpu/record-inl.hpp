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

// 32 e2m1 codes from 16 bytes; the first 16 values times low_scale, the others times high_scale.
HWY_INLINE void decode_e2m1(const std::byte* codes, float low_scale, float high_scale, float* out) {
  const decode_fp4 format;
  HWY_ALIGN std::uint8_t order[32];
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 32; ++i)
    order[i] = static_cast<std::uint8_t>(std::to_integer<unsigned>(codes[i / 2]) >> 4 * (i % 2));
#else
  const hn::Full128<std::uint8_t> d;
  const auto pairs = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(codes));
  const auto high =
      hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(hn::Full128<std::uint16_t>(), pairs))); // upper bits: any
  hn::Store(hn::InterleaveLower(d, pairs, high), d, order);
  hn::Store(hn::InterleaveUpper(d, pairs, high), d, order + 16);
#endif
  for (int i = 0; i < 32; i += vector_lanes) {
    const u32v word = hn::PromoteTo(u32_tag(), hn::LoadU(hn::Rebind<std::uint8_t, u32_tag>(), order + i));
    const f32v scale = hn::Set(f32_tag(), i < 16 ? low_scale : high_scale);
    hn::StoreU(hn::Mul(format.decode<0>(word), scale), f32_tag(), out + i);
  }
}

// Value of an e4m3 code without branches but one: the code's place in an fp32 counts 2^-120.
HWY_INLINE float e4m3_scale(std::byte code) {
  const auto c = std::to_integer<std::uint32_t>(code);
  if ((c & 0x7f) == 0x7f)
    return f32_from_e4m3(static_cast<std::uint8_t>(c));
  return bits_float((c & 0x80) << 24 | (c & 0x7f) << 20) * 0x1p120f;
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
    for (std::int64_t c = 0; c < dim; c += 32)
      decode_e2m1(record + c / 2, e4m3_scale(record[dim / 2 + c / 16]), e4m3_scale(record[dim / 2 + c / 16 + 1]),
                  x + c);
    return;
  case kv_format::fp4_ue8m0_32:
    for (std::int64_t c = 0; c < dim; c += 32) {
      const float scale = f32_from_ue8m0(byte_at(dim / 2 + c / 32));
      decode_e2m1(record + c / 2, scale, scale, x + c);
    }
    return;
  }
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();
#endif
