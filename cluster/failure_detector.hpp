// From evidence to verdicts (cluster.md §3.4): who is suspect, dead or stuck. Exits and closed connections need no
// judgement and do not come here. Time is a parameter, steady, in ms.
#pragma once
#include "cluster/view.hpp"
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe {

struct failure_settings {
  std::int64_t suspect_ms = 1000, dead_ms = 3000;
  std::int64_t step_timeout_ms = 2000;
};

enum class evidence : std::uint8_t { timeout, crc, closed };

class failure_detector {
public:
  struct verdict {
    enum class kind : std::uint8_t {
      suspect, // silent
      alive,   // speaks again
      dead,    // silent for too long, and no connection
      stuck    // lives and does not move: to be killed, then dead
    };
    rank_id rank;
    kind what = kind::suspect;
    std::string why;
  };

  explicit failure_detector(const failure_settings& settings) : settings_(settings) {}

  void watch(rank_id rank, std::int64_t now);
  // It takes that group's steps from now on, and is judged by them; no_group: by none.
  void enter(rank_id rank, std::uint32_t group, std::int64_t now);
  void forget(rank_id rank);
  // step: the last one that the rank committed. queued: it has work that waits for steps.
  void heartbeat(rank_id rank, std::uint64_t step, bool queued, std::int64_t now);
  void link(rank_id rank, bool up); // the control connection; lost by a time-out, not closed
  // `from` misses the part of `accused` in a step.
  void accuse(rank_id from, rank_id accused, std::uint64_t step, evidence what, std::int64_t now);
  // Steps of the group stand still on purpose, or go on: nobody is stuck meanwhile.
  void halt(std::uint32_t group, bool halted, std::int64_t now);

  void tick(std::int64_t now, std::vector<verdict>& out);

  // Accusations of a rank that came to nothing because both went on: a bad link.
  std::uint64_t dropped_accusations(rank_id accused) const;

private:
  struct accusation {
    std::uint64_t step = 0;
    std::int64_t at = 0;
    evidence what = evidence::timeout;
  };
  struct subject {
    std::int64_t heard = 0, moved = 0;
    std::uint32_t group = no_group;
    std::uint64_t step = 0;
    bool linked = true, queued = false, suspect = false;
    std::map<rank_id, accusation> accusers{};
  };
  bool accuses_somebody(rank_id rank) const;
  void judge_silence(rank_id rank, subject& s, std::int64_t now, std::vector<verdict>& out) const;
  void judge_groups(std::int64_t now, std::vector<verdict>& out) const;

  failure_settings settings_;
  std::map<rank_id, subject> subjects_;
  std::map<std::uint32_t, bool> halted_;
  std::map<rank_id, std::uint64_t> dropped_;
};

} // namespace troupe
