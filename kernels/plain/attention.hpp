// Attention over the window and the selected compressed positions (model.md §5; order: docs/numerics.md).
#pragma once
#include "kernels/plain/records.hpp"
#include "kernels/plain/team.hpp"

namespace troupe::plain {

// The keys of a row in their order: positions first .. first+window-1, then the places of the selected list. A place
// may be empty.
struct key_places {
  std::int64_t first = 0, window = 0, count = 0;
};

// Window positions that are neither in the ring nor among the step's rows are left out.
TROUPE_PLAIN key_places places_of(const attention_args& a, std::int64_t row) {
  const std::int32_t s = a.map.sequence.raw()[row], start = a.map.start.raw()[s];
  const std::int64_t low =
      larger(larger(std::int64_t{a.map.window_lo.raw()[row]}, std::int64_t{0}), std::int64_t{start} - a.ring.entries);
  const std::int64_t high =
      smaller(std::int64_t{a.map.window_hi.raw()[row]}, std::int64_t{start} + a.map.row_count.raw()[s] - 1);
  const std::int64_t window = larger(high - low + 1, std::int64_t{0});
  return {low, window, window + (a.selected ? a.topk : 0)};
}

// Record of place k, null for an empty one: a selected position that is -1 or behind the block table.
TROUPE_PLAIN const std::byte* key_record(const attention_args& a, std::int64_t row, const key_places& places,
                                         std::int64_t k) {
  const std::int32_t s = a.map.sequence.raw()[row], start = a.map.start.raw()[s];
  if (k < places.window) {
    const std::int64_t p = places.first + k;
    return p < start ? ring_record(a.ring, a.map.slot.raw()[s], p)
                     : a.own.raw() + (a.map.first_row.raw()[s] + p - start) * record_bytes(a.ring.format, a.dim);
  }
  const std::int64_t selected = a.selected.raw()[row * a.topk + k - places.window];
  const bool there = selected >= 0 && selected < std::int64_t{a.map.block_stride} * a.blocks.entries;
  return there ? context_record(a.map, s, a.blocks, selected) : nullptr;
}
TROUPE_PLAIN kv_format key_format(const attention_args& a, const key_places& places, std::int64_t k) {
  return k < places.window ? a.ring.format : a.blocks.format;
}

// p[n]: products of a head's query with the keys -> the keys' weights. Places for which there(k) is false are skipped
// and left alone.
template <class Team, class There>
TROUPE_PLAIN void key_weights(Team& t, float* p, std::int64_t n, float scale, float sink, const There& there) {
  for (std::int64_t k = t.rank(); k < n; k += t.size())
    if (there(k))
      p[k] = p[k] * scale;
  t.sync();
  float top = sink; // every member goes through the list for itself
  for (std::int64_t k = 0; k < n; ++k)
    if (there(k))
      top = p[k] > top ? p[k] : top;
  t.sync();
  for (std::int64_t k = t.rank(); k < n; k += t.size())
    if (there(k))
      p[k] = exp_f32(p[k] - top);
  t.sync();
  float sum = 0;
  for (std::int64_t k = 0; k < n; ++k)
    if (there(k))
      sum = sum + p[k];
  sum = sum + exp_f32(sink - top);
  t.sync();
  for (std::int64_t k = t.rank(); k < n; k += t.size())
    if (there(k))
      p[k] = p[k] / sum;
  t.sync();
}

} // namespace troupe::plain
