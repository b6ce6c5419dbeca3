// Writing of cached vectors: records, window rings, compressed blocks, the compressor of ratio 2 (model.md §5.1, §9).
#pragma once
#include "kernels/plain/records.hpp"
#include "kernels/plain/team.hpp"

namespace troupe::plain {

// x[dim] -> record.
template <class Team>
TROUPE_PLAIN void encode_values(Team& t, kv_format f, const float* x, std::int64_t dim, std::byte* record) {
  if (f == kv_format::f32) { // the only format of any dimension
    for (std::int64_t c = t.rank(); c < dim; c += t.size())
      reinterpret_cast<float*>(record)[c] = x[c];
    return;
  }
  for (std::int64_t b = t.rank(); b < dim / scale_block(f); b += t.size())
    encode_block(f, x, dim, b, record);
}

template <class Team> TROUPE_PLAIN void encode_row(Team& t, const encode_args& a, std::int64_t i) {
  encode_values(t, a.format, a.x.raw() + i * a.dim, a.dim, a.records.raw() + i * record_bytes(a.format, a.dim));
}

// Where row i's record belongs; null when a later row of the sequence takes the same entry.
TROUPE_PLAIN std::byte* ring_place(const ring_commit_args& a, std::int64_t i) {
  const std::int32_t s = a.map.sequence.raw()[i];
  const std::int64_t rows_after = a.map.first_row.raw()[s] + a.map.row_count.raw()[s] - i; // this one included
  return rows_after > a.ring.entries ? nullptr : ring_record(a.ring, a.map.slot.raw()[s], a.map.position.raw()[i]);
}
template <class Team> TROUPE_PLAIN void ring_commit_row(Team& t, const ring_commit_args& a, std::int64_t i) {
  const std::int64_t bytes = record_bytes(a.ring.format, a.ring.dim);
  const std::byte* from = a.records.raw() + i * bytes;
  std::byte* to = ring_place(a, i);
  for (std::int64_t b = t.rank(); to != nullptr && b < bytes; b += t.size())
    to[b] = from[b];
}

template <class Team> TROUPE_PLAIN void block_store_row(Team& t, const block_store_args& a, std::int64_t i) {
  const std::int64_t entry = a.entry.raw()[i];
  if (entry >= 0)
    encode_values(t, a.blocks.format, a.x.raw() + i * a.blocks.dim, a.blocks.dim,
                  block_record(a.blocks, entry / a.blocks.entries, entry % a.blocks.entries));
}

template <class Team> TROUPE_PLAIN void compress_block(Team& t, const compress_args& a, std::int64_t b) {
  const std::int32_t row = a.last_row.raw()[b];
  if (row < 0)
    return;
  const std::int32_t s = a.map.sequence.raw()[row];
  const float* second = a.kg.raw() + std::int64_t{row} * 2 * a.dim;
  const float* first =
      row > a.map.first_row.raw()[s]
          ? second - 2 * a.dim
          : reinterpret_cast<const float*>(ring_record(a.pending, a.map.slot.raw()[s], a.map.position.raw()[row] - 1));
  float* out = a.out.raw() + b * a.dim;
  for (int c = t.rank(); c < a.dim; c += t.size()) {
    const float g0 = first[a.dim + c], g1 = second[a.dim + c];
    const float top = g1 > g0 ? g1 : g0;
    const float e0 = exp_f32(g0 - top), e1 = exp_f32(g1 - top);
    const float sum = e0 + e1;
    float acc = first[c] * (e0 / sum);
    acc = fma(second[c], e1 / sum, acc);
    out[c] = acc;
  }
}

} // namespace troupe::plain
