// The fields of what a request asks of sampling, for cereal's archives: the ledger and step plans hold them.
#pragma once
#include "runtime/request/sampling_params.hpp"
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>

namespace troupe {

// Bindings name every field: one that is added and forgotten here does not compile.
template <class Archive> void serialize(Archive& a, structured_output_args& v) {
  auto& [type, schema, triggers, bound, strict, any_space, max_space, indent, any_order, infer, lenient, dot] = v;
  a(type, schema, triggers, bound, strict, any_space, max_space, indent, any_order, infer, lenient, dot);
}
template <class Archive> void serialize(Archive& a, sampling_params& v) {
  auto& [temperature, top_p, top_k, min_p, max_tokens, min_tokens, ignore_eos, stop, stop_ids, n, logprobs, top, prompt,
         mode, seed, constraint, golden, bias] = v;
  a(temperature, top_p, top_k, min_p, max_tokens, min_tokens, ignore_eos, stop, stop_ids, n, logprobs, top, prompt,
    mode, seed, constraint, golden, bias);
}

} // namespace troupe
