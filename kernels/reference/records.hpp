// Records of cached vectors (model.md §9) and where they lie in rings and blocks (kernels/ops.hpp).
#pragma once
#include "kernels/ops.hpp"

namespace troupe::reference {

// x[dim] -> record of record_bytes(f, dim) bytes and back. dim is a multiple of 32. decode(encode(x)) has the bits of
// the reference model's round trip of the same format.
void encode_record(kv_format f, const float* x, std::int64_t dim, std::byte* record);
void decode_record(kv_format f, const std::byte* record, std::int64_t dim, float* x);

// x[n] -> out[n], the bits of decode(encode(x)) without the record; out may be x.
void round_row(kv_format f, const float* x, std::int64_t n, float* out);

// Record of a position >= 0 in the ring of a state slot.
inline std::byte* ring_record(const ring_view& r, std::int32_t slot, std::int64_t position) {
  return r.base.raw() + slot * r.slot_stride + position % r.entries * record_bytes(r.format, r.dim);
}
// Record `entry` of a block.
inline std::byte* block_record(const block_view& b, std::int64_t block, std::int64_t entry) {
  return b.base.raw() + block * b.block_stride + entry * record_bytes(b.format, b.dim);
}
// Record of compressed position `index` of a sequence, found through its block table.
inline const std::byte* context_record(const row_map& m, std::int32_t sequence, const block_view& b,
                                       std::int64_t index) {
  const std::int64_t at = std::int64_t{sequence} * m.block_stride + index / b.entries;
  return block_record(b, m.block_table.raw()[at], index % b.entries);
}

} // namespace troupe::reference
