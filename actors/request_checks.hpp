// What a request must be before an engine may see it.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/request/sampling_params.hpp"
#include "runtime/scheduler/limits.hpp"
#include <cstdint>
#include <span>

namespace troupe {

struct checked_request {
  std::span<const std::int32_t> prompt, logit_rows, chunk_checkpoints;
  std::int32_t deadline_steps = 0;
};

// Codes: invalid_params, so_invalid_args, invalid_prompt, empty_prompt, prompt_too_long, no_space. limits: of each
// engine. vocab: token ids that the model has.
status check_request(const checked_request& request, const sampling_params& params, const scheduler_limits& limits,
                     std::int32_t vocab);

} // namespace troupe
