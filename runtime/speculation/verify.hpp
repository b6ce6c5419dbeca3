// Verification of drafted tokens (exactness.md §4): the coupled rule and the exact integer form of rejection.
#pragma once
#include "runtime/base/uniform.hpp"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

// Coupled: a draft is right iff it is the token that the target draws with the same noise. Number of leading drafts
// that equal the target's tokens; the target's token behind them is emitted too.
std::size_t coupled_prefix(std::span<const std::int32_t> drafts, std::span<const std::int32_t> targets);

// Rejection. Weights are integers per token id (kernels/reference/sample.hpp, kept_weights): `target` P and `draft` D,
// each with at least one positive entry and a sum below 2^63. Random numbers depend on (seed, position, case) alone.

// A token from the target's weights without a draft, and the drafter's own draw of a block's draft `number`.
std::int32_t fresh_draw(std::span<const std::uint64_t> target, std::uint64_t seed, std::uint64_t position);
std::int32_t draft_draw(std::span<const std::uint64_t> draft, std::uint64_t seed, std::uint64_t position,
                        std::int32_t number = 0);

// The rule of one row in integers: draft t is accepted with probability accepted(t) / range(t), else token i is drawn
// with probability residual(i) / the sum of all residuals, which is then positive.
class rejection_row {
public:
  rejection_row(std::span<const std::uint64_t> target, std::span<const std::uint64_t> draft);

  unsigned_128 range(std::size_t t) const { return draft_[t] * target_sum_; }
  unsigned_128 accepted(std::size_t t) const { return std::min(target_[t] * draft_sum_, range(t)); }
  unsigned_128 residual(std::size_t i) const { return target_[i] * draft_sum_ - accepted(i); }

private:
  std::span<const std::uint64_t> target_, draft_;
  unsigned_128 target_sum_, draft_sum_;
};

struct verified_token {
  bool accepted = false;
  std::int32_t token = -1; // the draft, or a draw from the residual
};
// One row: `token` was drawn from `draft` at this position. The emitted token has exactly the law target / sum(target).
// A token outside the vocabulary or of weight 0 in `draft` is rejected.
verified_token verify_row(std::span<const std::uint64_t> target, std::span<const std::uint64_t> draft,
                          std::int32_t token, std::uint64_t seed, std::uint64_t position);

} // namespace troupe
