// When a sequence ends, decided token by token and independent of the model (engine.md §6.6, defects D15 and C24).
#pragma once
#include "runtime/scheduler/plan.hpp"
#include <optional>

namespace troupe {

enum class finish_reason : std::uint8_t { none, stop, length, abort, error };

struct finish_state {
  finish_reason reason = finish_reason::none;
  std::optional<std::int32_t> stop_id; // the EOS or stop id that ended it
};

// State after `token` became output token number `outputs` (counted from 1). EOS and stop ids count once min_tokens
// tokens are out before them; prompt + output never exceed max_model_len.
finish_state finish_after(const sequence_spec& spec, std::int32_t token, std::int64_t outputs,
                          std::int32_t max_model_len);

// Positions that a sequence can reach: what is reserved for it at admission.
std::int64_t longest_length(const sequence_spec& spec, std::int32_t max_model_len);

} // namespace troupe
