#include "kernels/reference/index.hpp"

#include "kernels/reference/alone.hpp"
#include "kernels/reference/records.hpp"

namespace troupe::reference {

TROUPE_FMA_CLONES
void index_scores(const index_scores_args& a, int begin, int end, std::span<float> scratch) {
  float* by_channel = scratch.data();                      // [dim, heads]: this row's queries
  float* key = by_channel + std::int64_t{a.heads} * a.dim; // [dim]
  float* dots = key + a.dim;                               // [heads]
  for (int i = begin; i < end; ++i) {
    const int row = a.first + i;
    const std::int32_t sequence = a.map.sequence.raw()[row];
    const float* q = a.q.raw() + std::int64_t{row} * a.heads * a.dim;
    const float* weight = a.a.raw() + std::int64_t{row} * a.heads;
    for (int h = 0; h < a.heads; ++h)
      for (int c = 0; c < a.dim; ++c)
        by_channel[std::int64_t{c} * a.heads + h] = q[std::int64_t{h} * a.dim + c];
    const std::int64_t visible = plain::scored_positions(a, i);
    for (std::int64_t b = 0; b < visible; ++b) {
      decode_record(a.keys.format, context_record(a.map, sequence, a.keys, b), a.dim, key);
      product(key, by_channel, a.dim, a.heads, a.heads, dots);
      a.scores.raw()[i * a.stride + b] = plain::index_score(weight, dots, a.heads);
    }
  }
}

void candidates(const candidate_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::candidates_row(t, a, i);
}

void select(const select_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::select_row(t, a, i);
}

} // namespace troupe::reference
