// A node agent's vote: grants the lease of leadership, and remembers it on disk before it says so (cluster.md §3.9).
// Detached: writing blocks.
#pragma once
#include "cluster/control_messages.hpp"
#include "cluster/lease.hpp"
#include <optional>
#include <string>

namespace troupe {

struct voter_setup {
  node_id node; // its number among the nodes of the cluster
  lease_settings lease;
  std::string file; // of its votes; empty: they are not kept
};

struct voter_process_state { // of the actor
  voter_process_state() = default;
  static inline const char* name = "voter";
  voter_setup setup;
  std::optional<lease_voter> votes; // always there
};

// Throws config_error if the file cannot be read as votes.
std::optional<voter_state> kept_votes(const voter_setup& setup);

voter_actor::behavior_type voter(voter_actor::stateful_pointer<voter_process_state> self, const voter_setup& setup,
                                 const std::optional<voter_state>& kept);

} // namespace troupe
