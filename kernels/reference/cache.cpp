#include "kernels/reference/cache.hpp"

#include "kernels/reference/records.hpp"
#include "kernels/reference/sums.hpp"
#include "runtime/base/exact_math.hpp"
#include <cmath>
#include <cstring>

namespace troupe::reference {

void encode(const encode_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    encode_record(a.format, a.x.raw() + std::int64_t{i} * a.dim, a.dim,
                  a.records.raw() + i * record_bytes(a.format, a.dim));
}

void ring_commit(const ring_commit_args& a, int begin, int end) {
  const std::int64_t bytes = record_bytes(a.ring.format, a.ring.dim);
  for (int i = begin; i < end; ++i) {
    const std::int32_t s = a.map.sequence.raw()[i];
    const std::int32_t rows_after = a.map.first_row.raw()[s] + a.map.row_count.raw()[s] - i; // this one included
    if (rows_after > a.ring.entries)
      continue; // a later row of the sequence takes the same entry
    std::memcpy(ring_record(a.ring, a.map.slot.raw()[s], a.map.position.raw()[i]), a.records.raw() + i * bytes,
                static_cast<std::size_t>(bytes));
  }
}

void block_store(const block_store_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const std::int64_t entry = a.entry.raw()[i];
    if (entry < 0)
      continue;
    encode_record(a.blocks.format, a.x.raw() + std::int64_t{i} * a.blocks.dim, a.blocks.dim,
                  block_record(a.blocks, entry / a.blocks.entries, entry % a.blocks.entries));
  }
}

TROUPE_FMA_CLONES
void compress(const compress_args& a, int begin, int end) {
  for (int b = begin; b < end; ++b) {
    const std::int32_t row = a.last_row.raw()[b], s = a.map.sequence.raw()[row];
    const float* second = a.kg.raw() + std::int64_t{row} * 2 * a.dim;
    const float* first = row > a.map.first_row.raw()[s]
                             ? second - 2 * a.dim
                             : reinterpret_cast<const float*>(
                                   ring_record(a.pending, a.map.slot.raw()[s], a.map.position.raw()[row] - 1));
    float* out = a.out.raw() + std::int64_t{b} * a.dim;
    for (int c = 0; c < a.dim; ++c) {
      const float g0 = first[a.dim + c], g1 = second[a.dim + c];
      const float top = g1 > g0 ? g1 : g0;
      const float e0 = exp_f32(g0 - top), e1 = exp_f32(g1 - top);
      const float sum = e0 + e1;
      float acc = first[c] * (e0 / sum);
      acc = std::fma(second[c], e1 / sum, acc);
      out[c] = acc;
    }
  }
}

} // namespace troupe::reference
