#include "cluster/gateway_messages.hpp"
#include "cluster/record_bytes.hpp"

namespace troupe {

template <class Archive> void serialize(Archive& a, error& e) {
  a(e.code, e.message);
}
template <class Archive> void serialize(Archive& a, generation_usage& u) {
  a(u.steps, u.drafted, u.accepted, u.attempts, u.preemptions, u.ttft_ms, u.total_ms);
}
// Bindings name every field: one that is added and forgotten here does not compile.
template <class Archive> void serialize(Archive& a, generation_result& r) {
  auto& [id, index, text, ids, reason, stop_text, stop_id, prompt, cached, logprobs, top, prompt_logprobs, logits, seed,
         failure, warnings, usage] = r;
  a(id, index, text, ids, reason, stop_text, stop_id, prompt, cached, logprobs, top, prompt_logprobs, logits, seed,
    failure, warnings, usage);
}

std::string pack_result(const generation_result& r) {
  return to_bytes(r);
}

std::optional<generation_result> unpack_result(const std::string& bytes) {
  return from_bytes<generation_result>(bytes);
}

} // namespace troupe
