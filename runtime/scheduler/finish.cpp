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

end_rule::end_rule(const sequence_spec& spec, std::int32_t max_model_len)
    : prompt_tokens_(spec.prompt_tokens),
      golden_tokens_(static_cast<std::int32_t>(spec.params.golden_token_ids.size())), max_model_len_(max_model_len),
      longest_output_(std::min(spec.params.max_tokens, max_model_len - spec.prompt_tokens)) {
  std::size_t count = 0;
  for (const auto* list : {&spec.eos_ids, &spec.params.stop_token_ids})
    for (const std::int32_t id : *list)
      if (count < ids_.size())
        ids_[count++] = id;
      else
        many_ids_ = true;
}

std::int64_t longest_length(const sequence_spec& spec, std::int32_t max_model_len) {
  return std::min<std::int64_t>(std::int64_t{spec.prompt_tokens} + spec.params.max_tokens, max_model_len);
}

} // namespace troupe
