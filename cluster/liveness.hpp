// What a process's heartbeats say of it (cluster.md §3.4). Exits and lost connections need no judgement and do not come
// here. No clock: times are steady and given, in ms.
#pragma once
#include <cstdint>

namespace troupe {

struct liveness_limits {
  std::int64_t suspect_ms = 1000, dead_ms = 3000; // without a word
  std::int64_t stuck_ms = 90000;                  // with work and without a step
  std::int64_t first_step_ms = 0; // likewise before its first step, if that is longer: it finds every cache cold
};

class liveness {
public:
  enum class verdict : std::uint8_t {
    well,
    suspect, // silent
    dead,    // silent for too long
    stuck    // it speaks, has work, and takes no step: as dead
  };

  explicit liveness(std::int64_t now) : heard_(now), moved_(now) {}
  // able: it takes steps at present. steps: that it has taken since it began. starved_ms: for which it had no CPU since
  // then; that is no standing still of its own.
  void hear(std::uint64_t steps, bool has_work, bool able, std::int64_t now, std::uint64_t starved_ms = 0);
  verdict judge(const liveness_limits& limits, std::int64_t now) const;
  std::int64_t silent_ms(std::int64_t now) const { return now - heard_; }
  std::int64_t still_ms(std::int64_t now) const { return now - moved_; } // with work and without a step

private:
  std::int64_t heard_, moved_; // moved: when it had a reason to stand still last
  std::uint64_t steps_ = 0, starved_ms_ = 0;
  bool works_ = false;
};

} // namespace troupe
