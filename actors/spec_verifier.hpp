// Decides for a group of engines how many rows each one's decode step gets, and knows how well their drafters'
// confidences foretell acceptance. Pooled; its plans are advice, a scheduler without one decides by itself.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/speculation/group_planner.hpp"
#include <optional>

namespace troupe {

struct spec_verifier_state {
  spec_verifier_state() = default;
  static inline const char* name = "spec_verifier";
  std::optional<group_planner> group;      // always there
  std::vector<scheduler_actor> schedulers; // [ranks] who sent the rank's last load, until it has its answer
  std::uint64_t not_finite = 0;            // confidences
  bool useless_told = false;               // the log has it that the drafter is
};

spec_verifier_actor::behavior_type spec_verifier(spec_verifier_actor::stateful_pointer<spec_verifier_state> self,
                                                 const group_settings& settings);

} // namespace troupe
