// The coordinator of a group of data-parallel engines (engine.md §20.2): step_group with messages and time. Its members
// say what they could do, and all of them get one decision. An idle group takes no steps and has no timer. Pooled.
#pragma once
#include "cluster/messages.hpp"
#include <map>

namespace troupe {

struct group_sync_setup {
  step_group_settings steps;
  std::uint32_t epoch = 0; // behind all of an earlier coordinator
  std::chrono::milliseconds tick{1000};
};

struct group_sync_state {
  group_sync_state() = default;
  static inline const char* name = "group_sync";
  group_sync_setup setup;
  std::optional<step_group> group;          // always there
  std::map<rank_id, scheduler_actor> ranks; // who joined and has not left
  group_orders orders;                      // to be sent
  bool ticking = false;                     // a group_tick is under way
  watch_list watched;
};

group_sync_actor::behavior_type group_sync(group_sync_actor::stateful_pointer<group_sync_state> self,
                                           const group_sync_setup& setup);

} // namespace troupe
