// The index of compressed positions: scores, candidate blocks, selection (model.md §5.2, §5.3). Rows i count from the
// first row of the call: row a.first + i of the step.
#pragma once
#include "kernels/plain/records.hpp"
#include "kernels/plain/team.hpp"

namespace troupe::plain {

// Order of scores: larger first, -0 equals +0, NaN behind everything. Among equals the smaller index wins.
TROUPE_PLAIN std::uint32_t order_key(float score) {
  if (score != score)
    return 0;
  const std::uint32_t bits = float_bits(score == 0 ? 0.0f : score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Writes the `limit` best of `count` entries (keys key_of(0..count-1), larger first, ties to the smaller entry) in
// ascending order, then -1 up to limit. The key of the worst winner is found bit by bit, so no sorting space is needed.
template <class Team, class Key, class Index>
TROUPE_PLAIN void best_ascending(Team& t, std::int64_t count, std::int32_t limit, const Key& key_of,
                                 const Index& index_of, std::int32_t* out) {
  std::uint32_t bound = 0;
  std::int64_t above = 0; // entries with a key larger than bound
  if (count > limit) {
    const auto at_least = [&](std::uint32_t key) {
      std::uint64_t n = 0;
      for (std::int64_t e = t.rank(); e < count; e += t.size())
        n += key_of(e) >= key ? 1u : 0u;
      return static_cast<std::int64_t>(t.total(n));
    };
    for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1)
      if (at_least(bound | bit) >= limit)
        bound |= bit;
    above = bound == 0xffffffffu ? 0 : at_least(bound + 1);
  }
  std::int64_t equals = count > limit ? limit - above : count; // entries at the bound that still win
  std::int32_t written = 0;
  for (std::int64_t base = 0; base < count && written < limit; base += t.size()) {
    const std::int64_t e = base + t.rank();
    const bool there = e < count;
    const std::uint32_t key = there && count > limit ? key_of(e) : bound;
    const bool level = there && key == bound;
    std::int32_t levels = 0, winners = 0;
    const std::int32_t levels_before = t.before(level, levels);
    const bool wins = there && (key > bound || (level && levels_before < equals));
    const std::int32_t winners_before = t.before(wins, winners);
    if (wins)
      out[written + winners_before] = index_of(e);
    written += winners;
    equals -= levels;
  }
  for (std::int32_t j = written + t.rank(); j < limit; j += t.size())
    out[j] = -1;
}

// Compressed positions of row i whose scores are computed: those behind the block table count as not visible.
TROUPE_PLAIN std::int64_t scored_positions(const index_scores_args& a, std::int64_t i) {
  return smaller(std::int64_t{a.visible.raw()[a.first + i]}, std::int64_t{a.map.block_stride} * a.keys.entries);
}

// Score of one key from its products with the heads' queries.
TROUPE_PLAIN float index_score(const float* weight, const float* dots, int heads) {
  float acc = 0;
  for (int h = 0; h < heads; ++h)
    acc = fma(weight[h], dots[h] > 0 ? dots[h] : 0.0f, acc);
  return acc;
}

template <class Team> TROUPE_PLAIN void candidates_row(Team& t, const candidate_args& a, std::int64_t i) {
  const float cap = f32_from_bf16(0x7f7f); // largest finite bf16
  const std::int64_t row = a.first + i;
  const float* scores = a.scores.raw() + i * a.stride;
  const std::int64_t visible = a.visible.raw()[row];
  const std::int64_t blocks = visible <= 0 ? 0 : (visible + a.block - 1) / a.block;
  const auto key_of = [&](std::int64_t block) {
    if (block == blocks - 1)
      return order_key(bits_float(0x7f800000u)); // infinity
    std::uint32_t best = 0;
    for (std::int64_t p = block * a.block; p < (block + 1) * a.block; ++p)
      best = larger(best, order_key(scores[p]));
    return smaller(best, order_key(cap));
  };
  best_ascending(
      t, blocks, a.limit, key_of, [](std::int64_t block) { return static_cast<std::int32_t>(block); },
      a.candidates.raw() + row * a.limit);
}

template <class Team> TROUPE_PLAIN void select_row(Team& t, const select_args& a, std::int64_t i) {
  const std::int64_t row = a.first + i;
  const float* scores = a.scores ? a.scores.raw() + i * a.stride : nullptr;
  const std::int64_t visible = larger(std::int64_t{a.visible.raw()[row]}, std::int64_t{0});
  const std::int32_t* blocks = a.candidates ? a.candidates.raw() + row * a.candidate_limit : nullptr;
  // entry e of the row's competitors as a position; only the last candidate block can be cut by `visible`
  std::int64_t count = visible;
  if (blocks != nullptr) {
    count = 0;
    for (int j = 0; j < a.candidate_limit && blocks[j] >= 0; ++j)
      count += larger(smaller(visible - std::int64_t{blocks[j]} * a.candidate_block, std::int64_t{a.candidate_block}),
                      std::int64_t{0});
  }
  const auto index_of = [&](std::int64_t e) {
    if (blocks != nullptr)
      e = std::int64_t{blocks[e / a.candidate_block]} * a.candidate_block + e % a.candidate_block;
    return static_cast<std::int32_t>(e);
  };
  const auto key_of = [&](std::int64_t e) { return scores != nullptr ? order_key(scores[index_of(e)]) : 0u; };
  best_ascending(t, count, a.topk, key_of, index_of, a.selected.raw() + row * a.topk);
}

} // namespace troupe::plain
