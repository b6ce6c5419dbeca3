// The expert rebalancer: knows which expert rank holds what and how the load was spread. Pooled. Until a policy moves
// experts, the placement is the initial one.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/experts/load_window.hpp"

namespace troupe {

struct placement_state {
  placement_state() = default;
  static inline const char* name = "placement";
  expert_placement current;
  load_window window{0, 0, 1};
};

constexpr std::int32_t load_window_steps = 100; // steps that policies look back on (cluster.md §1.5, W)

placement_actor::behavior_type placement(placement_actor::stateful_pointer<placement_state> self, std::int32_t layers,
                                         std::int32_t experts, std::int32_t ranks);

} // namespace troupe
