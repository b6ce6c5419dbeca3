// Uniform whole numbers of exactness.md §4 (rejection): a function of (seed, position, case) alone, equal on every
// compiler.
#pragma once
#include "runtime/base/noise.hpp"

namespace troupe {

__extension__ typedef unsigned __int128 unsigned_128;

// What a number is drawn for; each has a stream of its own.
enum class draw_case : std::uint32_t { fresh = 0, residual = 1, accept = 2, drafted = 3 };

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
