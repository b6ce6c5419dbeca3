// Options for the embedded model, small enough for many engines in one test program.
#pragma once
#include "actors/llm.hpp"

namespace troupe {

inline engine_options embedded_options() {
  engine_options o;
  o.model = TROUPE_SOURCE_DIR "/models/tiny-v41";
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 128;
  o.max_model_len = 1024;
  o.threads = 1;
  return o;
}

} // namespace troupe
