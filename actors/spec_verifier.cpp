#include "actors/spec_verifier.hpp"
#include "runtime/speculation/planner.hpp"

namespace troupe {

namespace {

spec_plan answer_to(const spec_load& l) {
  std::vector<draft_candidate> candidates(l.drafts.size());
  for (std::size_t i = 0; i < candidates.size(); ++i)
    candidates[i] = {l.drafts[i], i < l.kv_tokens.size() ? l.kv_tokens[i] : 0};
  draft_plan p = plan_drafts(l.round, candidates);
  return {p.round, p.total_rows, std::move(p.lengths)};
}

} // namespace

spec_verifier_actor::behavior_type spec_verifier(spec_verifier_actor::stateful_pointer<spec_verifier_state> self) {
  return {
      [=](const spec_load& l) {
        ++state_of(self).plans;
        if (auto to = caf::actor_cast<scheduler_actor>(self->current_sender()))
          tell(self, to, answer_to(l));
      },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
