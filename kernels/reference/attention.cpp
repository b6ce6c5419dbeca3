#include "kernels/reference/attention.hpp"

#include "kernels/plain/attention.hpp"
#include "kernels/reference/alone.hpp"
#include "kernels/reference/records.hpp"
#include <algorithm>

namespace troupe::reference {
namespace {

// Decodes the keys of a row in their order into keys[n][dim]; returns n.
std::int64_t gather_keys(const attention_args& a, int row, float* keys) {
  const plain::key_places places = plain::places_of(a, row);
  std::int64_t n = 0;
  for (std::int64_t k = 0; k < places.count; ++k)
    if (const std::byte* record = plain::key_record(a, row, places, k))
      decode_record(plain::key_format(a, places, k), record, a.dim, keys + a.dim * n++);
  return n;
}

} // namespace

std::size_t attention_scratch(const attention_args& a, int begin, int end) {
  std::int64_t keys = 0;
  for (int i = begin; i < end; ++i)
    keys = std::max(keys, plain::places_of(a, i).count);
  return static_cast<std::size_t>(keys * a.dim + keys * a.heads + keys + std::int64_t{a.dim} * a.heads);
}

TROUPE_FMA_CLONES
void attention(const attention_args& a, int begin, int end, std::span<float> scratch) {
  alone t;
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
      for (std::int64_t k = 0; k < n; ++k)
        p[k] = scores[k * a.heads + h];
      plain::key_weights(t, p, n, a.scale, a.sink.raw()[h], [](std::int64_t) { return true; });
      product(p, keys, n, a.dim, a.dim, a.out.raw() + (std::int64_t{i} * a.heads + h) * a.dim);
    }
  }
}

} // namespace troupe::reference
