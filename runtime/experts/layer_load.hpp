// What a placement policy sees of one layer, and what it answers (cluster.md §1.5, §1.8).
#pragma once
#include <cstdint>
#include <vector>

namespace troupe {

// Rows routed to each expert of one layer, binary32 as the policies are defined in.
struct layer_load {
  std::int32_t steps = 0, experts = 0;
  std::vector<float> rows; // [steps, experts], oldest step first: sums over steps are taken in this order
  float at(std::int32_t step, std::int32_t expert) const {
    return rows[static_cast<std::size_t>(step) * static_cast<std::size_t>(experts) + static_cast<std::size_t>(expert)];
  }
};

// Sum over the steps, [experts].
std::vector<float> sums_of(const layer_load& load);

// Slot s lies on rank s / slots_per_rank.
struct layer_layout {
  std::vector<std::int32_t> expert_of;             // [slots]
  std::vector<std::vector<std::int32_t>> replicas; // [experts] slots, in the order in which the policy added them
};

} // namespace troupe
