// How many experts of a layer are held twice or more (cluster.md §1.5).
#pragma once
#include <cstdint>

namespace troupe {

inline constexpr std::int32_t default_min_extra_experts = 32;

// Redundant experts of a layer: at least min_extra, rounded up so that every one of `ranks` has the same number of
// slots.
constexpr std::int32_t extra_experts(std::int32_t experts, std::int32_t min_extra, std::int32_t ranks) {
  const std::int32_t rest = (experts + min_extra) % ranks;
  return min_extra + (rest == 0 ? 0 : ranks - rest);
}

} // namespace troupe
