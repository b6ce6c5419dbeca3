#include "actors/expert_executor.hpp"
#include <exception>

namespace troupe {

namespace {

void answer(expert_compute& compute, const expert_rows& rows) {
  try {
    compute.run(rows.layer, rows.args);
    rows.call->done();
  } catch (const std::exception& e) {
    rows.call->fail(*e.what() ? e.what() : "unknown device error");
  }
}

} // namespace

expert_executor_actor::behavior_type
expert_executor(expert_executor_actor::stateful_pointer<expert_executor_state> self,
                std::shared_ptr<expert_compute> compute) {
  state_of(self).compute = std::move(compute);
  return {
      [=](const expert_rows& rows) { answer(*state_of(self).compute, rows); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
