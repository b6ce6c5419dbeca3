// Uniform whole numbers of exactness.md §4 (rejection): a function of (seed, position, case) alone, equal on every
// compiler.
#pragma once
#include "runtime/base/noise.hpp"

namespace troupe {

__extension__ typedef unsigned __int128 unsigned_128;

// What a number is drawn for; each has a stream of its own.
enum class draw_case : std::uint32_t { fresh = 0, residual = 1, accept = 2, drafted = 3 };

// Of draft `number` (from 0) of its block. Blocks overlap: the second draft of one and the first of the next may lie at
// the same position. They must not be drawn alike, since how many drafts of the next block are verified may depend on
// the block before.
TROUPE_EVERYWHERE draw_case case_of_draft(std::int32_t number) {
  return static_cast<draw_case>(static_cast<std::uint32_t>(draw_case::drafted) +
                                4 * static_cast<std::uint32_t>(number));
}

// Uniform in [0, n), n > 0: 128-bit draws until one lies below the largest multiple of n.
TROUPE_EVERYWHERE unsigned_128 uniform_below(unsigned_128 n, draw_case what, std::uint64_t seed,
                                             std::uint64_t position) {
  const unsigned_128 excess = (unsigned_128{0} - n) % n; // 2^128 mod n
  for (std::uint32_t attempt = 0;; ++attempt) {
    const philox_words r = philox(seed, attempt, noise_reject | static_cast<std::uint32_t>(what),
                                  static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32));
    const unsigned_128 v =
        unsigned_128{r.w[3]} << 96 | unsigned_128{r.w[2]} << 64 | unsigned_128{r.w[1]} << 32 | r.w[0];
    if (v <= ~unsigned_128{0} - excess)
      return v % n;
  }
}

} // namespace troupe
