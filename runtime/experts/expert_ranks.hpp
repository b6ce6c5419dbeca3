// The ranks that share the routed experts of a model (cluster.md §3.6, §3.8).
#pragma once
#include <cstdint>
#include <vector>

namespace troupe {

// A rank that left or died keeps its number and its slots, which are empty from then on.
struct expert_ranks {
  std::int32_t slots_per_rank = 1;
  std::vector<bool> live;            // [ranks]
  std::vector<std::int32_t> node_of; // [ranks]; a copy inside a node costs less than one between nodes
  std::int32_t ranks() const { return static_cast<std::int32_t>(live.size()); }
  std::int32_t slots() const { return ranks() * slots_per_rank; }
  std::int32_t rank_of(std::int32_t slot) const { return slot / slots_per_rank; }
  bool is_live(std::int32_t slot) const { return live[static_cast<std::size_t>(rank_of(slot))]; }
};

// All ranks live, on one node.
inline expert_ranks ranks_of_one_node(std::int32_t ranks, std::int32_t slots_per_rank) {
  return {slots_per_rank, std::vector<bool>(static_cast<std::size_t>(ranks), true),
          std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 0)};
}

} // namespace troupe
