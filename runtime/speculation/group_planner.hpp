// What the verifier of a group of engines knows and decides, without actors (speculation.md §6.5, §9): loads come in
// one by one, a decision for all ranks is made as soon as nobody is worth waiting for.
#pragma once
#include "runtime/speculation/calibration.hpp"
#include "runtime/speculation/group_budget.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

struct group_settings {
  std::int32_t ranks = 1;
  std::int32_t most_rows = 512;              // of one rank's step
  std::vector<timed_size> curve{};           // that every rank starts with
  drafting_time drafting{};                  // likewise
  std::vector<std::int32_t> untimed_sizes{}; // instead of both: of the steps that teach each rank a curve
  std::vector<double> temperatures{}; // that the confidences were made with, by position; 1 where it is too short
};

class group_planner {
public:
  struct load {
    std::uint64_t round = 0;
    std::int32_t sequences = 0;
    std::int64_t kv_tokens = 0;
    std::vector<float> survivals; // descending
  };
  struct rank_state {
    load last;
    step_cost cost;
    std::int64_t total_q = 0; // last budget; 0 = none yet
    bool fresh = false;       // a load came since the last decision
    std::int32_t missed = 0;  // decisions since its last load
  };

  explicit group_planner(group_settings settings);

  // Loads of a rank that the group does not have are ignored. True: decide() is due, because every rank that decodes
  // has reported, or because this one reports again while others are late.
  bool take(std::uint32_t rank, load l);
  void observe(std::uint32_t rank, const step_observation& o);
  void observe(const verified_drafts& v) { calibration_.observe(v); }

  // One budget for all ranks, then nobody is fresh. A late rank keeps its last budget, and for more than two decisions
  // counts as idle.
  void decide();

  std::span<const rank_state> ranks() const { return ranks_; }
  // Whether its budget says anything of steps to come: a load without drafts leaves nothing to choose, while the next
  // step may have some.
  bool advises(std::uint32_t rank) const { return !ranks_[rank].last.survivals.empty(); }
  std::vector<timed_size> times(std::uint32_t rank) const; // for its last load
  const calibration& confidences() const { return calibration_; }
  std::vector<double> suggested_temperatures() const {
    return calibration_.suggested_temperatures(settings_.temperatures);
  }
  std::uint64_t decisions() const { return decisions_; }
  std::uint64_t late() const { return late_; }

private:
  static constexpr std::int32_t most_missed = 2;

  group_settings settings_;
  std::vector<rank_state> ranks_;
  calibration calibration_;
  std::uint64_t decisions_ = 0, late_ = 0;
};

} // namespace troupe
