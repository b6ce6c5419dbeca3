#include "actors/context_leader.hpp"

namespace troupe {

void context_leader::launch(const step_plan& plan) {
  // A copy: this rank may be through with the plan, and the scheduler at the next one, before the others are.
  const auto copy = std::make_shared<const step_plan>(plan);
  for (const auto& follower : team_->followers)
    tell_from_outside(follower, step{plan.number, copy, std::make_shared<step_result>()});
  own_->launch(plan);
}

} // namespace troupe
