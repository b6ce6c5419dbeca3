#include "kernels/reference/attention.hpp"

#include "kernels/reference/records.hpp"
#include "kernels/reference/sums.hpp"
#include "runtime/base/exact_math.hpp"
#include <algorithm>

namespace troupe::reference {
namespace {

struct range {
  std::int64_t first = 0, count = 0;
};

range window_of(const attention_args& a, int row) {
  const std::int32_t s = a.map.sequence.raw()[row], start = a.map.start.raw()[s];
  const std::int64_t low =
      std::max({std::int64_t{a.map.window_lo.raw()[row]}, std::int64_t{0}, std::int64_t{start} - a.ring.entries});
  const std::int64_t high =
      std::min(std::int64_t{a.map.window_hi.raw()[row]}, std::int64_t{start} + a.map.row_count.raw()[s] - 1);
  return {low, std::max<std::int64_t>(high - low + 1, 0)};
}

// Decodes the keys of a row in their order into keys[n][dim]; returns n.
std::int64_t gather_keys(const attention_args& a, int row, float* keys) {
  const std::int32_t s = a.map.sequence.raw()[row], start = a.map.start.raw()[s];
  const std::int64_t own_bytes = record_bytes(a.ring.format, a.dim);
  const range window = window_of(a, row);
  std::int64_t n = 0;
  for (std::int64_t p = window.first; p < window.first + window.count; ++p) {
    const std::byte* record = p < start ? ring_record(a.ring, a.map.slot.raw()[s], p)
                                        : a.own.raw() + (a.map.first_row.raw()[s] + p - start) * own_bytes;
    decode_record(a.ring.format, record, a.dim, keys + a.dim * n++);
  }
  if (!a.selected)
    return n;
  const std::int64_t limit = std::int64_t{a.map.block_stride} * a.blocks.entries;
  const std::int32_t* selected = a.selected.raw() + std::int64_t{row} * a.topk;
  for (int j = 0; j < a.topk; ++j)
    if (selected[j] >= 0 && selected[j] < limit)
      decode_record(a.blocks.format, context_record(a.map, s, a.blocks, selected[j]), a.dim, keys + a.dim * n++);
  return n;
}

} // namespace

std::size_t attention_scratch(const attention_args& a, int begin, int end) {
  std::int64_t keys = 0;
  for (int i = begin; i < end; ++i)
    keys = std::max(keys, window_of(a, i).count + (a.selected ? a.topk : 0));
  return static_cast<std::size_t>(keys * a.dim + keys * a.heads + keys + std::int64_t{a.dim} * a.heads);
}

TROUPE_FMA_CLONES
void attention(const attention_args& a, int begin, int end, std::span<float> scratch) {
  for (int i = begin; i < end; ++i) {
    float* by_channel = scratch.data(); // [dim, heads]: this row's queries
    float* keys = by_channel + std::int64_t{a.dim} * a.heads;
    const std::int64_t n = gather_keys(a, i, keys);
    float* scores = keys + n * a.dim; // [n, heads]
    float* p = scores + n * a.heads;  // [n]
    const float* q = a.q.raw() + std::int64_t{i} * a.heads * a.dim;
    for (int h = 0; h < a.heads; ++h)
      for (int c = 0; c < a.dim; ++c)
        by_channel[std::int64_t{c} * a.heads + h] = q[std::int64_t{h} * a.dim + c];
    for (std::int64_t k = 0; k < n; ++k)
      product(keys + k * a.dim, by_channel, a.dim, a.heads, a.heads, scores + k * a.heads);
    for (int h = 0; h < a.heads; ++h) {
      const float sink = a.sink.raw()[h];
      float top = sink;
      for (std::int64_t k = 0; k < n; ++k) {
        p[k] = scores[k * a.heads + h] * a.scale;
        top = p[k] > top ? p[k] : top;
      }
      float sum = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        p[k] = exp_f32(p[k] - top);
        sum = sum + p[k];
      }
      sum = sum + exp_f32(sink - top);
      for (std::int64_t k = 0; k < n; ++k)
        p[k] = p[k] / sum;
      product(p, keys, n, a.dim, a.dim, a.out.raw() + (std::int64_t{i} * a.heads + h) * a.dim);
    }
  }
}

} // namespace troupe::reference
