// What an executor drives: something that computes steps. The model on a device is one
// (runtime/model/model_engine.hpp); tests and the control-path benchmark bring others.
#pragma once
#include "runtime/scheduler/plan.hpp"

namespace troupe {

// One thread at a time. A failed device call leaves as device_error or another std::exception; the step is then void.
class step_engine {
public:
  virtual ~step_engine() = default;
  // Runs the model over the plan's rows.
  virtual void forward(const step_plan& plan) = 0;
  // Draws tokens and computes log-probabilities after forward() of the same plan; fills everything of `out` but the
  // times.
  virtual void sample(const step_plan& plan, step_result& out) = 0;
};

} // namespace troupe
