#include "runtime/speculation/verify.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>

namespace troupe {

namespace {

unsigned_128 sum_of(std::span<const std::uint64_t> weights) {
  unsigned_128 sum = 0;
  for (const std::uint64_t w : weights)
    sum += w;
  return sum;
}

// First id, ascending, whose cumulative weight exceeds v.
template <class Weight> std::int32_t id_at(std::size_t n, unsigned_128 v, const Weight& weight) {
  unsigned_128 cumulative = 0;
  for (std::size_t i = 0; i < n; ++i) {
    cumulative += weight(i);
    if (cumulative > v)
      return static_cast<std::int32_t>(i);
  }
  TROUPE_CHECK(false, "weighted draw beyond the sum of its weights");
  return -1;
}

std::int32_t weighted_draw(std::span<const std::uint64_t> weights, draw_case what, std::uint64_t seed,
                           std::uint64_t position) {
  const unsigned_128 total = sum_of(weights);
  TROUPE_CHECK(total > 0, "weighted draw without a positive weight");
  return id_at(weights.size(), uniform_below(total, what, seed, position),
               [&](std::size_t i) { return unsigned_128{weights[i]}; });
}

} // namespace

std::size_t coupled_prefix(std::span<const std::int32_t> drafts, std::span<const std::int32_t> targets) {
  const std::size_t n = std::min(drafts.size(), targets.size());
  std::size_t accepted = 0;
  while (accepted < n && drafts[accepted] == targets[accepted])
    ++accepted;
  return accepted;
}

std::int32_t fresh_draw(std::span<const std::uint64_t> target, std::uint64_t seed, std::uint64_t position) {
  return weighted_draw(target, draw_case::fresh, seed, position);
}

std::int32_t draft_draw(std::span<const std::uint64_t> draft, std::uint64_t seed, std::uint64_t position,
                        std::int32_t number) {
  return weighted_draw(draft, case_of_draft(number), seed, position);
}

rejection_row::rejection_row(std::span<const std::uint64_t> target, std::span<const std::uint64_t> draft)
    : target_(target), draft_(draft), target_sum_(sum_of(target)), draft_sum_(sum_of(draft)) {
  TROUPE_CHECK(target.size() == draft.size(), "target and draft weights of different lengths");
  TROUPE_CHECK(target_sum_ > 0, "target without a positive weight");
}

verified_token verify_row(std::span<const std::uint64_t> target, std::span<const std::uint64_t> draft,
                          std::int32_t token, std::uint64_t seed, std::uint64_t position) {
  const rejection_row row(target, draft);
  if (token < 0 || static_cast<std::size_t>(token) >= draft.size() || draft[static_cast<std::size_t>(token)] == 0)
    return {false, weighted_draw(target, draw_case::fresh, seed,
                                 position)}; // no draft of this law: draw as if there were none
  const auto t = static_cast<std::size_t>(token);
  if (uniform_below(row.range(t), draw_case::accept, seed, position) < row.accepted(t))
    return {true, token};
  const auto rest = [&](std::size_t i) { return row.residual(i); };
  unsigned_128 total = 0;
  for (std::size_t i = 0; i < target.size(); ++i)
    total += rest(i);
  return {false, id_at(target.size(), uniform_below(total, draw_case::residual, seed, position), rest)};
}

} // namespace troupe
