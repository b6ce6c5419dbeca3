// How much of a prompt may come from the prefix cache (exactness.md §7-8).
#pragma once
#include <cstdint>

namespace troupe {

// What the consumer layers compute of a prompt: every row, or only its end.
enum class yoco_mode : std::uint8_t { off, mask, compact, exact };

// Longest prefix, in tokens, that a prompt of this length may find: a multiple of 128. Off: everything but the last
// row. Else the consumer windows are not in the cache and must be computed, from position prompt - keep on.
constexpr std::int32_t hit_cap(yoco_mode mode, std::int32_t prompt, std::int32_t keep) {
  const std::int32_t most = mode == yoco_mode::off ? prompt - 1 : prompt - keep;
  return most > 0 ? most / 128 * 128 : 0;
}

} // namespace troupe
