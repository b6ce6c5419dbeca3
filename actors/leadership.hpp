// Whether this coordinator leads: asks the node agents for their votes, and tells the membership actor what came of it
// (cluster.md §3.9). Detached: connecting blocks.
#pragma once
#include "cluster/connect.hpp"
#include "cluster/control_messages.hpp"
#include "cluster/lease.hpp"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct leadership_setup {
  candidate_id self;
  std::vector<node_id> voters;
  std::function<std::optional<endpoint>(node_id)> at; // of a voter, once that is known
  lease_settings lease;
  std::string configuration; // digest
};

struct leadership_state {
  leadership_state() = default;
  static inline const char* name = "leadership";
  struct link {
    node_id node;
    voter_actor voter;           // null: not reached
    std::int64_t not_before = 0; // the next attempt to reach it
  };
  leadership_setup setup;
  membership_actor membership;
  std::vector<link> links;                  // as setup.voters
  std::optional<lease_candidate> candidate; // always there
  std::uint64_t mepoch = 0;                 // of the newest view of this leader
  lease_held told;                          // the membership actor, last
  watch_list watched;
};

leadership_actor::behavior_type leadership(leadership_actor::stateful_pointer<leadership_state> self,
                                           const leadership_setup& setup, const membership_actor& membership);

} // namespace troupe
