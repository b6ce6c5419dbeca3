#include "runtime/speculation/planner.hpp"

namespace troupe {

draft_plan plan_drafts(std::uint64_t round, std::span<const draft_candidate> candidates) {
  draft_plan plan;
  plan.round = round;
  plan.lengths.assign(candidates.size(), 0);
  plan.total_rows = static_cast<std::int64_t>(candidates.size());
  return plan;
}

} // namespace troupe
