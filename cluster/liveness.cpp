#include "cluster/liveness.hpp"

namespace troupe {

void liveness::hear(std::uint64_t steps, bool has_work, bool able, std::int64_t now) {
  heard_ = now;
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
  return works_ && still_ms(now) >= limits.stuck_ms ? verdict::stuck : verdict::well;
}

} // namespace troupe
