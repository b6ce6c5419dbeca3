// What became of a sequence in one call of the scheduler.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/scheduler/finish.hpp"
#include "runtime/scheduler/plan.hpp"
#include <optional>

namespace troupe {

// A token, parts of its prompt's results, its end, or several of these at once. `end` other than none comes exactly
// once per accepted sequence, and nothing comes after it.
struct sequence_event {
  sequence_id id;
  std::int64_t outputs_before = 0; // output tokens before this event
  sequence_result output;
  finish_reason end = finish_reason::none;
  std::optional<std::int32_t> stop_id;
  error failure; // set when end is error
  // Usage so far: steps that it took part in, times that it lost its cache, prompt tokens that it found in the cache.
  std::int64_t steps = 0;
  std::int32_t preemptions = 0;
  std::int32_t cached_tokens = 0;
};

} // namespace troupe
