// Whose plans an engine follows that shares experts with other processes (speculation.md §6.5): those of the verifier
// in the first rank of its group that is there, which makes one decision for all of them. Follows the views, connects
// to that rank's worker and tells the own worker_root; while that verifier cannot be reached the own one counts.
// Detached: connecting blocks.
#pragma once
#include "actors/worker_root.hpp"
#include "cluster/connect.hpp"
#include <map>

namespace troupe {

struct verifier_finder_setup {
  worker_root_actor own;
  std::uint32_t first = 0, rank = 0; // of the group and of this process, in the cluster
};

using verifier_finder_actor = caf::typed_actor<answers<view>, answers<tick>, answers<stop>>;

struct verifier_finder_state {
  verifier_finder_state() = default;
  static inline const char* name = "verifier_finder";
  verifier_finder_setup setup;
  std::map<std::uint32_t, member> before; // ranks of the group before this one that are there
  std::uint64_t incarnation = 0;          // of the process that was asked for its verifier; 0 = none
  spec_verifier_actor verifier;           // of that process, once it has answered
  watch_list watched;
};

verifier_finder_actor::behavior_type
verifier_finder(verifier_finder_actor::stateful_pointer<verifier_finder_state> self,
                const verifier_finder_setup& setup);

} // namespace troupe
