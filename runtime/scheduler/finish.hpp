// When a sequence ends, decided token by token and independent of the model (engine.md §6.6, defects D15 and C24).
#pragma once
#include "runtime/scheduler/plan.hpp"
#include <array>
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

// The same for a sequence that is asked about often: numbers beside each other say of nearly every token that it ends
// nothing, without a look at the request.
class end_rule {
public:
  end_rule() = default;
  end_rule(const sequence_spec& spec, std::int32_t max_model_len);

  finish_state after(const sequence_spec& spec, std::int32_t token, std::int64_t outputs) const {
    return may_end(token, outputs) ? finish_after(spec, token, outputs, max_model_len_) : finish_state{};
  }
  // Whether output number `outputs` is the last one whatever token it is.
  bool ends_at(std::int64_t outputs) const { return outputs >= longest_output_; }
  std::int32_t prompt_tokens() const { return prompt_tokens_; }
  std::int32_t golden_tokens() const { return golden_tokens_; } // that the request forces
  // False of nearly every token: `token` as output number `outputs` ends nothing for certain.
  bool may_end(std::int32_t token, std::int64_t outputs) const {
    return ends_at(outputs) || many_ids_ || token == ids_[0] || token == ids_[1];
  }

private:
  std::int32_t prompt_tokens_ = 0, golden_tokens_ = 0, max_model_len_ = 0, longest_output_ = 0;
  std::array<std::int32_t, 2> ids_{-1, -1}; // that may end it
  bool many_ids_ = false;                   // there are more
};

// Positions that a sequence can reach: what is reserved for it at admission.
std::int64_t longest_length(const sequence_spec& spec, std::int32_t max_model_len);

} // namespace troupe
