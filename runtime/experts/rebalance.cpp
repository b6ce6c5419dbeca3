#include "runtime/experts/rebalance.hpp"

#include <set>

namespace troupe {

namespace {

// A copy is missing that no figure of load asks for: of an expert without a slot, or below what fault_aware keeps.
bool lacks_copies(const placement_policy& policy, const expert_placement& p, const expert_ranks& group) {
  const auto* fault_aware = std::get_if<fault_aware_policy>(&policy);
  const std::size_t least = fault_aware ? static_cast<std::size_t>(fault_aware->min_replicas) : 1;
  for (std::int32_t layer = 0; layer < p.layers; ++layer)
    for (const auto& slots : slots_of(p, layer)) {
      std::set<std::int32_t> ranks;
      for (const std::int32_t slot : slots)
        if (group.is_live(slot))
          ranks.insert(group.rank_of(slot));
      if (ranks.size() < least)
        return true;
    }
  return false;
}

} // namespace

result<rebalance_plan> plan_rebalance(const rebalance_settings& settings, const load_window& window,
                                      const expert_placement& current, const expert_ranks& group) {
  auto wanted = wanted_placement(settings.policy, window, current, group, settings.spread);
  if (!wanted)
    return wanted.failure();
  rebalance_plan plan;
  plan.wanted = relabelled(current, *wanted);
  plan.imbalance = 1 / window.balancedness(current);
  plan.predicted = 1 / window.balancedness(plan.wanted);
  for (std::int32_t layer = 0; layer < current.layers; ++layer)
    plan.shared_copies += shared_copies(
        std::span(plan.wanted.expert_of)
            .subspan(static_cast<std::size_t>(layer * current.slots()), static_cast<std::size_t>(current.slots())),
        current.experts, group, settings.spread);
  auto moves = plan_moves(current, plan.wanted, group);
  if (!moves)
    return moves.failure();
  plan.moves = std::move(*moves);
  using verdict = rebalance_plan::verdict;
  if (plan.moves.empty())
    plan.what = verdict::nothing_to_do;
  else if (lacks_copies(settings.policy, current, group))
    plan.what = verdict::go;
  else if (plan.imbalance - plan.predicted < settings.min_gain)
    plan.what = verdict::no_gain;
  else if (settings.max_moves > 0 && plan.moves.size() > static_cast<std::size_t>(settings.max_moves))
    plan.what = verdict::too_many_moves;
  else
    plan.what = verdict::go;
  return plan;
}

} // namespace troupe
