// What an executor drives: something that computes steps. The model on a device is one
// (runtime/model/model_engine.hpp); tests and the control-path benchmark bring others.
#pragma once
#include "runtime/scheduler/plan.hpp"

namespace troupe {

// Steps that may be out at once: one that runs and one queued behind it.
inline constexpr std::size_t most_steps_out = 2;

// One thread at a time. A failed device call leaves launch or collect as device_error or another std::exception; that
// step is then void and over, steps behind it are not touched.
class step_engine {
public:
  virtual ~step_engine() = default;
  // Queues the whole step: restores, block copies, tokens in flight, the model, snapshots, sampling, the way back of
  // the results. A device that computes at once, like the CPU, computes here. Steps run in the order of their launches,
  // at most most_steps_out are out; the plan stays as it is until its collect.
  virtual void launch(const step_plan& plan) = 0;
  // Whether the oldest step that is out is over, well or not. Never blocks.
  virtual bool finished() = 0;
  // The result of the oldest step that is out, everything but its time; blocks until it is over.
  virtual void collect(step_result& out) = 0;
};

} // namespace troupe
