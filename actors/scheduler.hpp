// One engine's scheduler: turns messages into calls of batch_scheduler and its orders into messages. Pooled.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/scheduler/batch.hpp"
#include "runtime/speculation/planner.hpp"
#include <chrono>
#include <optional>
#include <unordered_map>

namespace troupe {

struct scheduler_setup {
  std::uint32_t rank = 0;
  scheduler_limits limits;
  kv_manager_actor kv;
  executor_actor executor;
  spec_verifier_actor verifier;
  std::chrono::milliseconds control_limit{30000}; // answers of the KV manager
  std::chrono::milliseconds step_limit{600000};   // one step
};

struct scheduler_state {
  scheduler_state() = default;
  static inline const char* name = "scheduler";
  struct route { // where the tokens of a sequence go
    session_actor reader;
    req_t req;
    std::uint32_t branch = 0, attempt = 1;
    std::int32_t prompt_tokens = 0;
  };
  scheduler_setup setup;
  std::optional<batch_scheduler> core;
  scheduler_output out;
  std::shared_ptr<step_plan> plan = std::make_shared<step_plan>(); // of the step in flight
  std::shared_ptr<step_result> result = std::make_shared<step_result>();
  std::unordered_map<std::uint64_t, route> routes; // by sequence
  draft_plan drafts;                               // newest advice of the verifier
  std::uint64_t round = 0, next_msg = 0;
  bool draining = false;
  bool checking = false; // a step_check is under way
  watch_list watched;
  std::optional<error> lost; // set once the engine cannot compute any more
};

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         const scheduler_setup& setup);

} // namespace troupe
