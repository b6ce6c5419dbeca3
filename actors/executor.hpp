// Computes steps. Detached: its thread waits for the device, nobody else does, and a step that arrives while one runs
// is queued behind it at once. Device errors become values here.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <chrono>
#include <deque>

namespace troupe {

struct executor_state {
  executor_state() = default;
  static inline const char* name = "executor";
  struct launched {
    std::uint64_t number = 0;
    std::shared_ptr<const step_plan> plan; // kept until the step is over
    std::shared_ptr<step_result> result;
    bool refused = false; // it failed when it was launched: result says why
    std::chrono::steady_clock::time_point start;
    caf::typed_response_promise<step_done> answer;
  };
  std::shared_ptr<step_engine> engine;
  placement_actor placement;
  std::uint32_t rank = 0;
  std::deque<launched> out;                      // oldest first
  bool checking = false;                         // a device_check is under way
  std::chrono::steady_clock::time_point freed{}; // end of the last step
  std::uint32_t counted_steps = 0;               // since the last load message
  std::vector<std::uint32_t> counts;             // [counted_steps, layers, experts]
};

constexpr std::uint32_t load_period_steps = 32; // steps that one load message covers (cluster.md §3.6)

// core: where to pin the executor's own thread, -1 = nowhere. Only for a detached executor.
executor_actor::behavior_type executor(executor_actor::stateful_pointer<executor_state> self, std::uint32_t rank,
                                       std::shared_ptr<step_engine> engine, placement_actor placement, int core);

} // namespace troupe
