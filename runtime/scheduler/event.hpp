// What became of a sequence in one call of the scheduler.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/scheduler/finish.hpp"
#include "runtime/scheduler/plan.hpp"
#include <optional>

namespace troupe {

// What a sequence has to do with another engine, if anything.
enum class handoff_news : std::uint8_t {
  none,
  reserved, // there is room for the prompt that the other engine is to compute
  part,     // the next bytes of its image, none before left out
  whole     // likewise the last ones: nothing comes after it, the sequence is over here
};

// A token, parts of its prompt's results, its end, or several of these at once. `end` other than none comes exactly
// once per accepted sequence that is not handed over whole, and nothing comes after it.
struct sequence_event {
  sequence_event() = default;
  sequence_event(sequence_id id_, std::int64_t outputs_before_, sequence_result&& output_)
      : id(id_), outputs_before(outputs_before_), output(std::move(output_)) {}

  sequence_id id;
  std::int64_t outputs_before = 0; // output tokens before this event
  sequence_result output;
  finish_reason end = finish_reason::none;
  std::optional<std::int32_t> stop_id;
  error failure; // set when end is error
  // Usage so far: steps that it took part in, times that it lost its cache, prompt tokens that it found in the cache.
  std::int64_t steps = 0;
  std::int64_t drafted = 0, accepted = 0; // drafts that were verified, and taken
  std::int32_t preemptions = 0;
  std::int32_t cached_tokens = 0;
  handoff_news handoff = handoff_news::none;
  std::shared_ptr<const image_bytes> image; // with part and whole
};

} // namespace troupe
