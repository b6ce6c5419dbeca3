// The experts of a process: knows which expert executor holds what and how the load was spread. Pooled. Where a group
// of processes shares experts, it passes the load on to the group's coordinator (group_placement.hpp).
#pragma once
#include "cluster/messages.hpp"
#include "runtime/experts/load_window.hpp"

namespace troupe {

struct placement_state {
  placement_state() = default;
  static inline const char* name = "placement";
  expert_placement current;
  load_window window{0, 0, 1};
  load_reader reader;
};

constexpr std::int32_t load_window_steps = 100; // steps that policies look back on (cluster.md §1.5, W)

placement_actor::behavior_type placement(placement_actor::stateful_pointer<placement_state> self, std::int32_t layers,
                                         std::int32_t experts, std::int32_t ranks);

} // namespace troupe
