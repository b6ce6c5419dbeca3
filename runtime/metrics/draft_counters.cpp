#include "runtime/metrics/draft_counters.hpp"

namespace troupe {

void draft_counters::take_sequence(std::int32_t verified, std::int32_t accepted) {
  verified_drafts.observe(verified);
  if (verified <= 0)
    return;
  const auto n = static_cast<std::size_t>(verified);
  if (verified_at.size() < n) {
    verified_at.resize(n);
    accepted_at.resize(n);
  }
  ++drafts;
  draft_tokens += n;
  accepted_tokens += static_cast<std::uint64_t>(accepted);
  for (std::int32_t j = 0; j < verified; ++j) {
    ++verified_at[static_cast<std::size_t>(j)];
    accepted_at[static_cast<std::size_t>(j)] += j < accepted ? 1 : 0;
  }
}

void draft_counters::take_step(std::int32_t size, double expected, double expected_ms, std::int64_t emitted,
                               double ms) {
  ++steps_by_size[size];
  if (expected_ms <= 0)
    return;
  expected_tokens += expected;
  emitted_tokens += static_cast<std::uint64_t>(emitted);
  expected_seconds += expected_ms / 1000;
  measured_seconds += ms / 1000;
}

} // namespace troupe
