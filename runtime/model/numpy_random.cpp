#include "runtime/model/numpy_random.hpp"
#include "runtime/base/check.hpp"
#include <bit>

namespace troupe {

std::array<std::uint64_t, 4> numpy_seed_state(std::uint64_t seed) {
  std::uint32_t constant = 0x43b0d7e5u;
  auto hash = [&constant](std::uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875u;
    value *= constant;
    return value ^ (value >> 16);
  };
  // The seed's 32-bit words, least significant first, padded with zeros.
  std::array<std::uint32_t, 4> pool{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), 0, 0};
  for (auto& word : pool)
    word = hash(word);
  for (std::size_t from = 0; from < pool.size(); ++from)
    for (std::size_t to = 0; to < pool.size(); ++to)
      if (from != to) {
        const std::uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from]);
        pool[to] = mixed ^ (mixed >> 16);
      }

  std::array<std::uint64_t, 4> state{};
  constant = 0x8b51f9ddu;
  for (std::size_t i = 0; i < 8; ++i) {
    std::uint32_t word = pool[i % 4] ^ constant;
    constant *= 0x58f38dedu;
    word *= constant;
    word ^= word >> 16;
    state[i / 2] |= std::uint64_t{word} << (i % 2 ? 32 : 0);
  }
  return state;
}

numpy_random::numpy_random(std::uint64_t seed) {
  const auto s = numpy_seed_state(seed);
  increment_ = ((uint128{s[2]} << 64 | s[3]) << 1) | 1;
  step();
  state_ += uint128{s[0]} << 64 | s[1];
  step();
}

void numpy_random::step() {
  constexpr uint128 multiplier = uint128{2549297995355413924ULL} << 64 | 4865540595714422341ULL;
  state_ = state_ * multiplier + increment_;
}

std::uint64_t numpy_random::next() {
  step();
  const auto folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

std::uint64_t numpy_random::below(std::uint64_t bound) {
  TROUPE_CHECK(bound > 0x100000000ULL, "numpy_random::below: bound too small");
  uint128 product = uint128{next()} * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < threshold)
      product = uint128{next()} * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

} // namespace troupe
