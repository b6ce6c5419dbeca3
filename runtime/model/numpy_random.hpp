// The part of numpy's random generators that Engram's multipliers need: default_rng(seed) (SeedSequence into PCG64,
// output function XSL-RR) and unbiased integers below a bound (Lemire's method, numpy's 64-bit form).
#pragma once
#include <array>
#include <cstdint>

namespace troupe {

class numpy_random {
public:
  explicit numpy_random(std::uint64_t seed);

  std::uint64_t next();

  // default_rng's integers(0, bound) for 2^32 < bound < 2^64; smaller bounds take another path in numpy.
  std::uint64_t below(std::uint64_t bound);

private:
  __extension__ using uint128 = unsigned __int128;
  void step();

  uint128 state_ = 0, increment_ = 0;
};

// SeedSequence(seed).generate_state(4, uint64).
std::array<std::uint64_t, 4> numpy_seed_state(std::uint64_t seed);

} // namespace troupe
