// What a decode step's drafts were worth: for counters, the model of step times and the verifier (speculation.md §9).
#pragma once
#include <cstdint>
#include <vector>

namespace troupe {

struct step_outcome {
  std::int32_t rows = 0, sequences = 0; // as planned; rows 0: no decode step, or it failed
  std::int64_t kv_tokens = 0;           // cached positions of all its sequences
  bool drafted = false;                 // a draft round ended it
  float expected_tokens = 0;            // as the planner foretold them; expected_ms 0: it did not
  double expected_ms = 0;
  std::int64_t emitted = 0; // tokens given out
  // One entry for each sequence that verified drafts: how many; how many of the first ones were right; how many of
  // these were given out, as nothing is behind the end of an output.
  std::vector<std::int32_t> verified, accepted, kept;
  std::vector<float> confidences; // of the verified drafts, one sequence after the other; 1 where none came
  std::uint64_t not_finite = 0;   // of the confidences that came for the next step
};

} // namespace troupe
