// What speculation did in one engine. Counters only grow.
#pragma once
#include "runtime/metrics/histogram.hpp"
#include <cstdint>
#include <map>
#include <vector>

namespace troupe {

namespace bounds {
inline constexpr std::array drafts{0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 16.0, 32.0};
} // namespace bounds

struct draft_counters {
  std::uint64_t drafts = 0;       // sequences in decode steps that verified at least one draft
  std::uint64_t draft_tokens = 0; // drafts verified
  std::uint64_t accepted_tokens = 0;
  std::vector<std::uint64_t> verified_at, accepted_at; // [longest block] of them, by position in the block
  histogram<bounds::drafts> verified_drafts;           // of a sequence in a decode step
  std::uint64_t not_finite = 0;                        // confidences that were no finite numbers
  std::uint64_t advised_steps = 0;                     // decode steps of as many rows as the verifier gave them
  std::uint64_t stale_advice = 0;                      // that came when no step could follow it any more
  // Of decode steps that had a prediction: what it said and what came.
  double expected_tokens = 0, expected_seconds = 0, measured_seconds = 0;
  std::uint64_t emitted_tokens = 0;
  std::map<std::int32_t, std::uint64_t> steps_by_size; // decode steps by rows, filled up

  // One sequence of a decode step; accepted <= verified.
  void take_sequence(std::int32_t verified, std::int32_t accepted);
  // The step itself. expected_ms 0: nothing was predicted.
  void take_step(std::int32_t size, double expected, double expected_ms, std::int64_t emitted, double ms);
};

} // namespace troupe
