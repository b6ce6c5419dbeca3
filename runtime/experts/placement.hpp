// Which slot of which expert rank holds which routed expert (cluster.md §1.5, §3.6; exactness.md §9).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

// Slots of one layer are numbered through all ranks: slot s lies on rank s / slots_per_rank. The table is the only
// truth; everything else about a placement is derived from it.
struct expert_placement {
  std::uint64_t version = 0;
  std::int32_t ranks = 1, layers = 0, experts = 0, slots_per_rank = 0;
  std::vector<std::int32_t> expert_of; // [layers, slots] logical expert, -1 = empty
  std::int32_t slots() const { return ranks * slots_per_rank; }
};

// Version 1: expert e in slot e, the slots cut into `ranks` contiguous ranges of equal length. Slots that exist only
// because of the rounding up are empty. 1 <= ranks <= experts.
expert_placement initial_placement(std::int32_t layers, std::int32_t experts, std::int32_t ranks);

// Version 1 with redundant slots (redundancy.hpp): slot i holds expert i mod experts. experts + extra is a multiple of
// ranks.
expert_placement initial_placement(std::int32_t layers, std::int32_t experts, std::int32_t ranks, std::int32_t extra);

// The experts [first, first + count) of a rank in the initial placement; count may be 0 for the last ranks.
struct expert_range {
  std::int32_t first = 0, count = 0;
};
expert_range initial_range(std::int32_t experts, std::int32_t ranks, std::int32_t rank);

// Slots of each expert of one layer, ascending: [experts][replicas].
std::vector<std::vector<std::int32_t>> slots_of(const expert_placement& p, std::int32_t layer);

// What is wrong with a placement, or an empty string: table size, ids, experts without a slot.
std::string fault_of(const expert_placement& p);

} // namespace troupe
