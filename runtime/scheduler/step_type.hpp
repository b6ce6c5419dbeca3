// Which kind of step comes next: one rule over what all ranks of a group want, so that every rank, and every replay,
// decides the same (engine.md §20.2; defects D2 and D3). Integers only, times in steps.
#pragma once
#include "runtime/scheduler/limits.hpp"
#include "runtime/scheduler/plan.hpp"
#include <optional>
#include <span>

namespace troupe {

// One rank's wishes for its next step.
struct step_intent {
  bool prefill = false;                 // rows of a prompt could run
  bool decode = false;                  // a sequence could decode
  bool kv_low = false;                  // prompts that are partly computed hold blocks while few are free: finish them
  std::int32_t held_tokens = 0;         // rows of prompts that wait
  std::int32_t oldest_wait = 0;         // steps that the oldest of them has waited
  std::int32_t steps_since_prefill = 0; // decode steps of this rank since its last prefill step
  bool operator==(const step_intent&) const = default;
};

struct step_rule {
  std::int32_t decode_steps_between = 1;
  std::int32_t fill_tokens = 0;
  std::int32_t ttft_bound_steps = 0;
};
step_rule rule_of(const scheduler_limits& limits);

// Prefill if a rank wants it and no rank decodes; or if enough is held, or was held long enough, or KV is low
// somewhere, and every rank that decodes has had its decode steps since the last prefill. None if nobody has anything
// to run.
std::optional<step_kind> decide_step(std::span<const step_intent> ranks, const step_rule& rule);

} // namespace troupe
