// The coordinator of one expert group whose ranks are processes (cluster.md §3.6): owns the placement, moves experts
// while the ranks' steps run, and takes the placement up again when processes have come and gone. What it knows is
// soft: the ranks say what they hold. Pooled.
//
// Nobody routes by a version before it was published for the very processes that are there. When a process dies and
// the others have slots for all experts, a version without it comes at once, and what only it held is loaded from the
// checkpoint; else the group waits until it was started anew.
#pragma once
#include "cluster/control_messages.hpp"
#include "runtime/experts/load_window.hpp"
#include "runtime/experts/migration.hpp"
#include <chrono>
#include <deque>
#include <optional>

namespace troupe {

struct expert_group_setup {
  std::string name;               // "decode.0"
  std::uint32_t first = 0;        // ranks of the cluster from here on
  std::vector<std::int32_t> node; // [ranks]
  std::int32_t window = 100;      // steps of the load window
  migration_settings migration;
  std::string authority{}; // membership_setup
  std::chrono::milliseconds tick{10};
};

struct group_placement_state {
  group_placement_state() = default;
  static inline const char* name = "group_placement";
  using clock = std::chrono::steady_clock;
  struct rank {
    std::uint64_t incarnation = 0; // of the process that lives, 0 = none
    std::uint64_t reported = 0;    // of the process that said what it holds
    expert_rank_actor process;     // that one
  };
  struct wish { // a migration that somebody waits for
    migrate what;
    std::int32_t slot = -1; // of the group, once it was chosen
    caf::typed_response_promise<ack> answer;
  };
  expert_group_setup setup;
  std::vector<rank> ranks;
  std::int32_t layers = 0, experts = 0, slots_per_rank = 0; // once a rank has reported
  std::vector<sha256_digest> digests;                       // [layers, experts], zero = unknown
  std::optional<migration> core;                            // none: the group is not complete
  std::vector<std::uint64_t> named;                         // [ranks] incarnations that its versions name
  std::vector<std::uint64_t> taken_up;                      // [ranks] that reported when it was made
  std::deque<wish> wishes;                                  // the first one may be under way
  bool moving = false;                                      // it is
  load_window window{0, 0, 1};
  membership_actor membership; // hears reports
  clock::time_point reported_at{};
};

expert_group_actor::behavior_type group_placement(expert_group_actor::stateful_pointer<group_placement_state> self,
                                                  const expert_group_setup& setup);

} // namespace troupe
