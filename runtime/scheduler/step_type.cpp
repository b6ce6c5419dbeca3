#include "runtime/scheduler/step_type.hpp"

namespace troupe {

step_rule rule_of(const scheduler_limits& l) {
  return {l.decode_steps_between, l.prefill_fill_tokens, l.ttft_bound_steps};
}

std::optional<step_kind> decide_step(std::span<const step_intent> ranks, const step_rule& rule) {
  bool prefill = false, decode = false, due = false, interval_over = true;
  for (const step_intent& r : ranks) {
    prefill = prefill || r.prefill;
    decode = decode || r.decode;
    due =
        due || (r.prefill && (r.held_tokens >= rule.fill_tokens || r.oldest_wait >= rule.ttft_bound_steps || r.kv_low));
    interval_over = interval_over && (!r.decode || r.steps_since_prefill >= rule.decode_steps_between);
  }
  if (prefill && (!decode || (due && interval_over)))
    return step_kind::prefill;
  return decode ? std::optional(step_kind::decode) : std::nullopt;
}

} // namespace troupe
