#include "runtime/scheduler/finish.hpp"
#include <algorithm>

namespace troupe {

finish_state finish_after(const sequence_spec& spec, std::int32_t token, std::int64_t outputs,
                          std::int32_t max_model_len) {
  const auto holds = [token](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (outputs > spec.params.min_tokens &&
      ((!spec.params.ignore_eos && holds(spec.eos_ids)) || holds(spec.params.stop_token_ids)))
    return {finish_reason::stop, token};
  if (outputs >= spec.params.max_tokens || spec.prompt_tokens + outputs >= max_model_len)
    return {finish_reason::length, {}};
  return {};
}

std::int64_t longest_length(const sequence_spec& spec, std::int32_t max_model_len) {
  return std::min<std::int64_t>(std::int64_t{spec.prompt_tokens} + spec.params.max_tokens, max_model_len);
}

} // namespace troupe
