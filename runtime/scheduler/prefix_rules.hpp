// How much of a prompt may come from the prefix cache (exactness.md §7-8).
#pragma once
#include "runtime/scheduler/plan.hpp"
#include <algorithm>
#include <cstdint>

namespace troupe {

// What the consumer layers compute of a prompt: every row, or only its end.
enum class yoco_mode : std::uint8_t { off, mask, compact, exact };

// Requests whose result needs every row of their prompt: they run with yoco off and take no prefix hit.
inline bool needs_whole_prompt(const sequence_spec& s) {
  return s.params.prompt_logprobs || !s.logit_rows.empty();
}

// R: the first position of a prompt whose row the consumer layers compute and see, fixed for the life of a request.
constexpr std::int32_t replay_from(yoco_mode mode, std::int32_t prompt, std::int32_t keep) {
  return mode == yoco_mode::off ? 0 : std::max(prompt - keep, 0);
}

// Rows at a prompt's end that are computed whatever the prefix cache has. Off: the last one. Else those that the
// consumer layers compute, whose windows are not in the cache.
constexpr std::int32_t own_rows(yoco_mode mode, std::int32_t keep) {
  return mode == yoco_mode::off ? 1 : keep;
}

// Longest prefix, in tokens, that a prompt of this length may find: a multiple of 128.
constexpr std::int32_t hit_cap(yoco_mode mode, std::int32_t prompt, std::int32_t keep) {
  return std::max(prompt - own_rows(mode, keep), 0) / 128 * 128;
}

} // namespace troupe
