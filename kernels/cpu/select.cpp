#include "kernels/cpu/select.hpp"

#include "kernels/cpu/rows.hpp"
#include "kernels/plain/moe.hpp"
#include "kernels/reference/alone.hpp"
#include "kernels/reference/index.hpp"
#include "runtime/base/number_formats.hpp"
#include <algorithm>
#include <array>
#include <limits>

namespace troupe::cpu {
namespace {

// What stands between the winners and the others: every key above bound wins, and the first `equals` that equal it.
struct threshold {
  std::uint32_t bound = 0;
  std::int64_t equals = 0;
};

// The limit-th largest of the keys, found byte by byte from the top; limit < keys.size().
threshold find_threshold(std::span<const std::uint32_t> keys, std::int64_t limit) {
  threshold t{0, limit};
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::array<std::int64_t, 256> count{};
    for (const std::uint32_t key : keys)
      if (shift == 24 || key >> (shift + 8) == t.bound >> (shift + 8))
        ++count[key >> shift & 255];
    std::uint32_t digit = 255;
    for (; t.equals > count[digit]; --digit)
      t.equals -= count[digit];
    t.bound |= digit << shift;
  }
  return t;
}

// The `limit` best competitors in ascending order, equal ones by smaller number first, then -1 up to limit.
template <class Index>
void best_ascending(std::span<const std::uint32_t> keys, std::int32_t limit, const Index& index_of, std::int32_t* out) {
  std::int32_t written = 0;
  if (static_cast<std::int64_t>(keys.size()) <= limit) {
    for (std::size_t e = 0; e < keys.size(); ++e)
      out[written++] = index_of(static_cast<std::int64_t>(e));
  } else if (limit > 0) {
    auto [bound, equals] = find_threshold(keys, limit);
    for (std::size_t e = 0; written < limit; ++e)
      if (keys[e] > bound || (keys[e] == bound && equals-- > 0))
        out[written++] = index_of(static_cast<std::int64_t>(e));
  }
  std::fill(out + written, out + limit, -1);
}

std::int64_t visible_of(const std::int32_t* visible, int row) {
  return std::max(visible[row], 0);
}

} // namespace

std::size_t candidates_scratch(const candidate_args& a, int begin, int end) {
  std::int64_t most = 0;
  for (int i = begin; i < end; ++i)
    most = std::max(most, (visible_of(a.visible.raw(), a.first + i) + a.block - 1) / a.block);
  return static_cast<std::size_t>(most);
}

void candidates(const candidate_args& a, int begin, int end, std::span<std::uint32_t> scratch) {
  const std::uint32_t cap = reference::order_key(f32_from_bf16(0x7f7f)); // of the largest finite bf16
  for (int i = begin; i < end; ++i) {
    const int row = a.first + i;
    const float* scores = a.scores.raw() + i * a.stride;
    const std::int64_t blocks = (visible_of(a.visible.raw(), row) + a.block - 1) / a.block;
    const auto keys = scratch.first(static_cast<std::size_t>(blocks));
    for (std::int64_t b = 0; b + 1 < blocks; ++b) {
      std::uint32_t best = 0;
      for (std::int64_t p = b * a.block; p < (b + 1) * a.block; ++p)
        best = std::max(best, reference::order_key(scores[p]));
      keys[static_cast<std::size_t>(b)] = std::min(best, cap);
    }
    if (blocks > 0) // the newest block is always kept
      keys.back() = reference::order_key(std::numeric_limits<float>::infinity());
    best_ascending(
        std::span<const std::uint32_t>(keys), a.limit, [](std::int64_t b) { return static_cast<std::int32_t>(b); },
        a.candidates.raw() + std::int64_t{row} * a.limit);
  }
}

std::size_t select_scratch(const select_args& a, int begin, int end) {
  std::int64_t most = 0;
  for (int i = begin; i < end; ++i)
    most = std::max(most, visible_of(a.visible.raw(), a.first + i));
  return static_cast<std::size_t>(most);
}

void select(const select_args& a, int begin, int end, std::span<std::uint32_t> scratch) {
  for (int i = begin; i < end; ++i) {
    const int row = a.first + i;
    const float* scores = a.scores ? a.scores.raw() + i * a.stride : nullptr;
    const std::int64_t visible = visible_of(a.visible.raw(), row);
    const std::int32_t* blocks = a.candidates ? a.candidates.raw() + std::int64_t{row} * a.candidate_limit : nullptr;
    std::size_t n = 0;
    const auto add = [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t p = from; p < to; ++p)
        scratch[n++] = scores != nullptr ? reference::order_key(scores[p]) : 0;
    };
    if (blocks == nullptr) {
      add(0, visible);
    } else {
      for (int j = 0; j < a.candidate_limit && blocks[j] >= 0; ++j) // only the last one can be cut by `visible`
        add(std::int64_t{blocks[j]} * a.candidate_block,
            std::min((std::int64_t{blocks[j]} + 1) * a.candidate_block, visible));
    }
    const auto index_of = [&](std::int64_t e) {
      if (blocks != nullptr)
        e = std::int64_t{blocks[e / a.candidate_block]} * a.candidate_block + e % a.candidate_block;
      return static_cast<std::int32_t>(e);
    };
    best_ascending(std::span<const std::uint32_t>(scratch.first(n)), a.topk, index_of,
                   a.selected.raw() + std::int64_t{row} * a.topk);
  }
}

void route(const route_args& a, int begin, int end, std::span<float> scratch) {
  float *s = scratch.data(), *biased = s + a.experts;
  for (int i = begin; i < end; ++i) {
    reference::alone t;
    if (plain::route_nowhere(t, a, i))
      continue;
    std::int32_t* expert = a.expert.raw() + std::int64_t{i} * a.k;
    float* weight = a.weight.raw() + std::int64_t{i} * a.k;
    expert_scores(a.logits.raw() + std::int64_t{i} * a.experts, a.experts, s);
    for (int e = 0; e < a.experts; ++e)
      biased[e] = s[e] + a.bias.raw()[e];
    // rank: larger for what comes first; each pass takes the best behind the one before
    const auto rank = [&](int e) {
      return std::uint64_t{reference::order_key(biased[e])} << 32 | (0xffffffffu - static_cast<std::uint32_t>(e));
    };
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    for (int j = 0; j < a.k; ++j) {
      std::uint64_t best = 0;
      for (int e = 0; e < a.experts; ++e)
        if (const std::uint64_t r = rank(e); r < last && r > best)
          best = r;
      expert[j] = static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(best));
      last = best;
    }
    float sum = 0;
    for (int j = 0; j < a.k; ++j)
      sum = sum + s[expert[j]];
    for (int j = 0; j < a.k; ++j)
      weight[j] = s[expert[j]] / (sum + 1e-20f) * a.scale;
  }
}

} // namespace troupe::cpu
