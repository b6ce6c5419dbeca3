// Plans how many drafts each sequence verifies. Pooled; its plans are advice, a scheduler without one uses length 0.
#pragma once
#include "cluster/messages.hpp"

namespace troupe {

struct spec_verifier_state {
  spec_verifier_state() = default;
  static inline const char* name = "spec_verifier";
  std::uint64_t plans = 0;
};

spec_verifier_actor::behavior_type spec_verifier(spec_verifier_actor::stateful_pointer<spec_verifier_state> self);

} // namespace troupe
