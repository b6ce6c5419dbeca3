#include "kernels/cpu/records.hpp"

#include "kernels/cpu/targets.hpp"
#include "kernels/reference/records.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/records.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/activation-inl.hpp"
#include "runtime/base/number_formats.hpp"
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE void store_codes(u32v codes, std::uint8_t* to) {
  const hn::Rebind<std::uint8_t, u32_tag> d;
  hn::StoreU(hn::DemoteTo(d, hn::BitCast(i32_tag(), codes)), d, to);
}

// e4m3 codes of 32 values already divided by their scale (e4m3_from_f32).
HWY_INLINE void encode_fp8_block(const float* x, float scale, std::uint8_t* codes) {
  const f32v s = set1(scale);
  for (int i = 0; i < 32; i += vector_lanes) {
    const f32v v = hn::Div(hn::LoadU(f32_tag(), x + i), s);
    const u32v sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(u32_tag(), v)));
    const f32v a = hn::Abs(v);
    const u32v low = hn::Sub(hn::BitCast(u32_tag(), hn::Add(a, set1(16384.0f))), hn::Set(u32_tag(), 0x46800000u));
    const u32v ab = hn::BitCast(u32_tag(), hn::IfThenElse(hn::Gt(a, set1(448.0f)), set1(448.0f), a));
    const u32v even = hn::And(hn::ShiftRight<20>(ab), hn::Set(u32_tag(), 1u));
    const u32v high = hn::Sub(hn::ShiftRight<20>(hn::Add(hn::Add(ab, hn::Set(u32_tag(), 0x7ffffu)), even)),
                              hn::Set(u32_tag(), 120u << 3));
    f32v code = hn::IfThenElse(hn::Lt(a, set1(0x1p-6f)), as_f32(low), as_f32(high));
    code = hn::IfThenElse(hn::Eq(v, v), code, as_f32(hn::Set(u32_tag(), 0x7fu)));
    store_codes(hn::Or(hn::BitCast(u32_tag(), code), sign), codes + i);
  }
}

// e2m1 codes of n values (a multiple of 16) already divided by their scale (e2m1_from_f32), two to a byte.
HWY_INLINE void encode_fp4_block(const float* x, int n, float scale, std::byte* out) {
  const f32v s = set1(scale);
  HWY_ALIGN std::uint8_t codes[32];
  const auto number = [](std::uint32_t c) TROUPE_INLINED { return as_f32(hn::Set(u32_tag(), c)); };
  for (int i = 0; i < n; i += vector_lanes) {
    const f32v v = hn::Div(hn::LoadU(f32_tag(), x + i), s), a = hn::Abs(v);
    f32v code = number(7);
    code = hn::IfThenElse(hn::Le(a, set1(5.0f)), number(6), code);
    code = hn::IfThenElse(hn::Lt(a, set1(3.5f)), number(5), code);
    code = hn::IfThenElse(hn::Le(a, set1(2.5f)), number(4), code);
    code = hn::IfThenElse(hn::Lt(a, set1(1.75f)), number(3), code);
    code = hn::IfThenElse(hn::Le(a, set1(1.25f)), number(2), code);
    code = hn::IfThenElse(hn::Lt(a, set1(0.75f)), number(1), code);
    code = hn::IfThenElse(hn::Le(a, set1(0.25f)), number(0), code);
    const u32v sign = hn::ShiftLeft<3>(hn::ShiftRight<31>(hn::BitCast(u32_tag(), v)));
    store_codes(hn::Or(hn::BitCast(u32_tag(), code), sign), codes + i);
  }
  for (int i = 0; i < n; i += 2)
    out[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
}

HWY_INLINE void encode_record(kv_format f, const float* x, std::int64_t dim, std::byte* record) {
  switch (f) {
  case kv_format::f32:
    std::memcpy(record, x, static_cast<std::size_t>(dim) * 4);
    return;
  case kv_format::fp8_ue8m0_32:
    for (std::int64_t c = 0; c < dim; c += 32) {
      const float s = fp8_scale(largest_magnitude(x + c, 32));
      encode_fp8_block(x + c, s, reinterpret_cast<std::uint8_t*>(record) + c);
      record[dim + c / 32] = static_cast<std::byte>(ue8m0_from_f32(s));
    }
    return;
  case kv_format::fp4_e4m3_16:
    for (std::int64_t c = 0; c < dim; c += 16) {
      const float s = fp4_kv_scale(largest_magnitude(x + c, 16));
      encode_fp4_block(x + c, 16, s, record + c / 2);
      record[dim / 2 + c / 16] = static_cast<std::byte>(e4m3_from_f32(s));
    }
    return;
  case kv_format::fp4_ue8m0_32:
    for (std::int64_t c = 0; c < dim; c += 32) {
      const float s = fp4_scale(largest_magnitude(x + c, 32));
      encode_fp4_block(x + c, 32, s, record + c / 2);
      record[dim / 2 + c / 32] = static_cast<std::byte>(ue8m0_from_f32(s));
    }
    return;
  }
}

void encode_rows(const encode_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    encode_record(a.format, a.x.raw() + std::int64_t{i} * a.dim, a.dim,
                  a.records.raw() + i * record_bytes(a.format, a.dim));
}

void block_store_rows(const block_store_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    if (const std::int64_t entry = a.entry.raw()[i]; entry >= 0)
      encode_record(a.blocks.format, a.x.raw() + std::int64_t{i} * a.blocks.dim, a.blocks.dim,
                    reference::block_record(a.blocks, entry / a.blocks.entries, entry % a.blocks.entries));
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {
HWY_EXPORT(encode_rows);
HWY_EXPORT(block_store_rows);
void encode(const encode_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(encode_rows)(a, begin, end);
}
void block_store(const block_store_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(block_store_rows)(a, begin, end);
}
} // namespace troupe::cpu
#endif
