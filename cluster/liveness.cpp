#include "cluster/liveness.hpp"
#include <algorithm>

namespace troupe {

void liveness::hear(std::uint64_t steps, bool has_work, bool able, std::int64_t now, std::uint64_t starved_ms) {
  heard_ = now;
  if (starved_ms > starved_ms_)
    moved_ = std::min(now, moved_ + static_cast<std::int64_t>(starved_ms - starved_ms_));
  starved_ms_ = starved_ms;
  // From the first word that speaks of work on: what came before it may have been rest.
  if (steps != steps_ || !has_work || !able || !works_)
    moved_ = now;
  steps_ = steps;
  works_ = has_work && able;
}

liveness::verdict liveness::judge(const liveness_limits& limits, std::int64_t now) const {
  if (silent_ms(now) >= limits.dead_ms)
    return verdict::dead;
  if (silent_ms(now) >= limits.suspect_ms)
    return verdict::suspect;
  const std::int64_t longest = steps_ == 0 ? std::max(limits.stuck_ms, limits.first_step_ms) : limits.stuck_ms;
  return works_ && still_ms(now) >= longest ? verdict::stuck : verdict::well;
}

} // namespace troupe
