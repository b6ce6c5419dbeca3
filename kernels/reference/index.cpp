#include "kernels/reference/index.hpp"

#include "kernels/reference/records.hpp"
#include "kernels/reference/sums.hpp"
#include "runtime/base/number_formats.hpp"
#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::reference {
namespace {

// Writes the `limit` best of `count` entries (keys key_of(0..count-1), larger first, ties to the smaller entry) in
// ascending order, then -1 up to limit. The key of the worst winner is found bit by bit, so no sorting space is needed.
template <class Key, class Index>
void best_ascending(std::int64_t count, std::int32_t limit, const Key& key_of, const Index& index_of,
                    std::int32_t* out) {
  std::uint32_t bound = 0;
  std::int64_t above = 0; // entries with a key larger than bound
  if (count > limit) {
    const auto at_least = [&](std::uint32_t key) {
      std::int64_t n = 0;
      for (std::int64_t e = 0; e < count; ++e)
        n += key_of(e) >= key ? 1 : 0;
      return n;
    };
    for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1)
      if (at_least(bound | bit) >= limit)
        bound |= bit;
    above = bound == std::numeric_limits<std::uint32_t>::max() ? 0 : at_least(bound + 1);
  }
  std::int64_t equals = count > limit ? limit - above : count; // entries at the bound that still win
  std::int32_t written = 0;
  for (std::int64_t e = 0; e < count && written < limit; ++e) {
    const std::uint32_t key = count > limit ? key_of(e) : bound;
    if (key > bound || (key == bound && equals-- > 0))
      out[written++] = index_of(e);
  }
  std::fill(out + written, out + limit, -1);
}

} // namespace

std::uint32_t order_key(float score) {
  if (score != score)
    return 0;
  const std::uint32_t bits = float_bits(score == 0 ? 0.0f : score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

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
    const std::int64_t visible =
        std::min<std::int64_t>(a.visible.raw()[row], std::int64_t{a.map.block_stride} * a.keys.entries);
    for (std::int64_t b = 0; b < visible; ++b) {
      decode_record(a.keys.format, context_record(a.map, sequence, a.keys, b), a.dim, key);
      product(key, by_channel, a.dim, a.heads, a.heads, dots);
      float acc = 0;
      for (int h = 0; h < a.heads; ++h)
        acc = std::fma(weight[h], dots[h] > 0 ? dots[h] : 0.0f, acc);
      a.scores.raw()[i * a.stride + b] = acc;
    }
  }
}

void candidates(const candidate_args& a, int begin, int end) {
  const float cap = f32_from_bf16(0x7f7f); // largest finite bf16
  for (int i = begin; i < end; ++i) {
    const int row = a.first + i;
    const float* scores = a.scores.raw() + i * a.stride;
    const std::int64_t visible = a.visible.raw()[row];
    const std::int64_t blocks = visible <= 0 ? 0 : (visible + a.block - 1) / a.block;
    const auto key_of = [&](std::int64_t block) {
      if (block == blocks - 1)
        return order_key(std::numeric_limits<float>::infinity());
      std::uint32_t best = 0;
      for (std::int64_t p = block * a.block; p < (block + 1) * a.block; ++p)
        best = std::max(best, order_key(scores[p]));
      return std::min(best, order_key(cap));
    };
    best_ascending(
        blocks, a.limit, key_of, [](std::int64_t block) { return static_cast<std::int32_t>(block); },
        a.candidates.raw() + std::int64_t{row} * a.limit);
  }
}

void select(const select_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const int row = a.first + i;
    const float* scores = a.scores ? a.scores.raw() + i * a.stride : nullptr;
    const std::int64_t visible = std::max<std::int64_t>(a.visible.raw()[row], 0);
    const std::int32_t* blocks = a.candidates ? a.candidates.raw() + std::int64_t{row} * a.candidate_limit : nullptr;
    // entry e of the row's competitors as a position; only the last candidate block can be cut by `visible`
    std::int64_t count = visible;
    if (blocks != nullptr) {
      count = 0;
      for (int j = 0; j < a.candidate_limit && blocks[j] >= 0; ++j)
        count += std::clamp<std::int64_t>(visible - std::int64_t{blocks[j]} * a.candidate_block, 0, a.candidate_block);
    }
    const auto index_of = [&](std::int64_t e) {
      if (blocks != nullptr)
        e = std::int64_t{blocks[e / a.candidate_block]} * a.candidate_block + e % a.candidate_block;
      return static_cast<std::int32_t>(e);
    };
    const auto key_of = [&](std::int64_t e) { return scores != nullptr ? order_key(scores[index_of(e)]) : 0u; };
    best_ascending(count, a.topk, key_of, index_of, a.selected.raw() + std::int64_t{row} * a.topk);
  }
}

} // namespace troupe::reference
