// One round of the balancer (cluster.md §3.6): what the policy wants, by which moves, and whether it is worth them.
#pragma once
#include "runtime/experts/load_window.hpp"
#include "runtime/experts/move_planner.hpp"
#include "runtime/experts/policy.hpp"

namespace troupe {

struct rebalance_settings {
  placement_policy policy = deepinfer_policy{};
  replica_spread spread = replica_spread::rank;
  double min_gain = 0.03;     // the busiest rank's load over the mean must fall by that much, unless copies are missing
  std::int32_t max_moves = 0; // 0 = any number; not looked at when copies are missing
};

struct rebalance_plan {
  enum class verdict : std::uint8_t { go, nothing_to_do, no_gain, too_many_moves };
  verdict what = verdict::nothing_to_do;
  expert_placement wanted; // relabelled, version that of the current one
  std::vector<expert_move> moves;
  double imbalance = 1, predicted = 1; // sum of peaks over sum of means in the window: now, with `wanted`
  std::int32_t shared_copies = 0;      // that `spread` could not part, over all layers
};

// Fails as wanted_placement and plan_moves do.
result<rebalance_plan> plan_rebalance(const rebalance_settings& settings, const load_window& window,
                                      const expert_placement& current, const expert_ranks& group);

// When the balancer runs: every `interval` steps, for the first time after a quarter of it (cluster.md §1.5).
class rebalance_schedule {
public:
  // interval 0 = never.
  explicit rebalance_schedule(std::int64_t interval)
      : interval_(interval), counted_(interval - (interval >= 4 ? interval / 4 : 1)) {}
  // Steps have passed: is it time?
  bool steps(std::int64_t n) {
    if (interval_ <= 0)
      return false;
    counted_ += n;
    if (counted_ < interval_)
      return false;
    counted_ = 0;
    return true;
  }

private:
  std::int64_t interval_, counted_;
};

} // namespace troupe
