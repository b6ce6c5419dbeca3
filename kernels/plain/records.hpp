// Records of cached vectors (model.md §9), block of one scale by block, and where they lie (kernels/ops.hpp).
#pragma once
#include "kernels/ops.hpp"
#include "kernels/plain/qualifiers.hpp"
#include "runtime/base/number_formats.hpp"

namespace troupe::plain {

// Channels that share a scale.
TROUPE_PLAIN int scale_block(kv_format f) {
  return f == kv_format::fp4_e4m3_16 ? 16 : 32;
}

TROUPE_PLAIN float largest_magnitude(const float* x, int n) {
  float m = 0;
  for (int i = 0; i < n; ++i)
    if (const float a = magnitude(x[i]); a > m)
      m = a;
  return m;
}

// Scale of a block whose largest magnitude is `top`; not for f32.
TROUPE_PLAIN float block_scale(kv_format f, float top) {
  return f == kv_format::fp8_ue8m0_32  ? fp8_scale(top)
         : f == kv_format::fp4_e4m3_16 ? fp4_kv_scale(top)
                                       : fp4_scale(top);
}

// x[block] -> out[block], the bits of decode(encode(x)); out may be x.
TROUPE_PLAIN void round_block(kv_format f, const float* x, float* out) {
  const int n = scale_block(f);
  const float s = block_scale(f, largest_magnitude(x, n));
  for (int i = 0; i < n; ++i)
    out[i] = f == kv_format::fp8_ue8m0_32 ? fp8_round_trip(x[i], s) : fp4_round_trip(x[i], s);
}

TROUPE_PLAIN std::byte code_pair(float low, float high, float s) {
  return static_cast<std::byte>(e2m1_from_f32(low / s) | e2m1_from_f32(high / s) << 4);
}

// Block b of x[dim] into its places in a record: codes, then scales. f32 has blocks too, of raw values.
TROUPE_PLAIN void encode_block(kv_format f, const float* x, std::int64_t dim, std::int64_t b, std::byte* record) {
  const int n = scale_block(f);
  x += n * b;
  if (f == kv_format::f32) {
    float* out = reinterpret_cast<float*>(record) + n * b;
    for (int i = 0; i < n; ++i)
      out[i] = x[i];
    return;
  }
  const float s = block_scale(f, largest_magnitude(x, n));
  if (f == kv_format::fp8_ue8m0_32) {
    for (int i = 0; i < n; ++i)
      record[n * b + i] = static_cast<std::byte>(e4m3_from_f32(x[i] / s));
    record[dim + b] = static_cast<std::byte>(ue8m0_from_f32(s));
    return;
  }
  std::byte* out = record + n / 2 * b;
  for (int i = 0; i < n; i += 2)
    out[i / 2] = code_pair(x[i], x[i + 1], s);
  record[dim / 2 + b] = static_cast<std::byte>(f == kv_format::fp4_e4m3_16 ? e4m3_from_f32(s) : ue8m0_from_f32(s));
}

// Scale of block b of a record and the unscaled value of channel i; a channel is their product. Not for f32.
TROUPE_PLAIN float record_scale(kv_format f, const std::byte* record, std::int64_t dim, std::int64_t b) {
  const auto code = static_cast<std::uint8_t>(record[(f == kv_format::fp8_ue8m0_32 ? dim : dim / 2) + b]);
  return f == kv_format::fp4_e4m3_16 ? f32_from_e4m3(code) : f32_from_ue8m0(code);
}
TROUPE_PLAIN float record_code(kv_format f, const std::byte* record, std::int64_t i) {
  if (f == kv_format::fp8_ue8m0_32)
    return f32_from_e4m3(static_cast<std::uint8_t>(record[i]));
  const auto pair = static_cast<unsigned>(record[i / 2]);
  return f32_from_e2m1(static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15u : pair >> 4));
}

// Block b of a record into x[dim].
TROUPE_PLAIN void decode_block(kv_format f, const std::byte* record, std::int64_t dim, std::int64_t b, float* x) {
  const int n = scale_block(f);
  const float s = record_scale(f, record, dim, b);
  for (std::int64_t i = n * b; i < n * b + n; ++i)
    x[i] = record_code(f, record, i) * s;
}

// One channel of a record of any format.
TROUPE_PLAIN float record_value(kv_format f, const std::byte* record, std::int64_t dim, std::int64_t i) {
  if (f == kv_format::f32)
    return reinterpret_cast<const float*>(record)[i];
  return record_code(f, record, i) * record_scale(f, record, dim, i / scale_block(f));
}

// Record of a position >= 0 in the ring of a state slot.
TROUPE_PLAIN std::byte* ring_record(const ring_view& r, std::int32_t slot, std::int64_t position) {
  return r.base.raw() + slot * r.slot_stride + position % r.entries * record_bytes(r.format, r.dim);
}
// Record `entry` of a block.
TROUPE_PLAIN std::byte* block_record(const block_view& b, std::int64_t block, std::int64_t entry) {
  return b.base.raw() + block * b.block_stride + entry * record_bytes(b.format, b.dim);
}
// Record of compressed position `index` of a sequence, found through its block table.
TROUPE_PLAIN const std::byte* context_record(const row_map& m, std::int32_t sequence, const block_view& b,
                                             std::int64_t index) {
  const std::int64_t at = std::int64_t{sequence} * m.block_stride + index / b.entries;
  return block_record(b, m.block_table.raw()[at], index % b.entries);
}

} // namespace troupe::plain
