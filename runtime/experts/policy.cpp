#include "runtime/experts/policy.hpp"
#include "runtime/base/check.hpp"
#include "runtime/experts/deepinfer_policy.hpp"
#include "runtime/experts/eplb_policy.hpp"
#include "runtime/experts/load_window.hpp"
#include <algorithm>
#include <set>
#include <string>

namespace troupe {

namespace {

constexpr std::string_view names[] = {"static", "deepinfer", "eplb_global", "eplb_hier", "fault_aware"};

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

template <class... F> struct overloaded : F... { using F::operator()...; };
template <class... F> overloaded(F...) -> overloaded<F...>;

// Over the live ranks alone, which are numbered through.
result<layer_layout> place_layer(const placement_policy& policy, const layer_load& load, std::int32_t ranks,
                                 std::int32_t slots_per_rank, std::int32_t nodes) {
  return std::visit(
      overloaded{[&](const eplb_global_policy&) {
                   return place_eplb(sums_of(load), {ranks, slots_per_rank, 1, 1});
                 },
                 [&](const eplb_hier_policy& p) {
                   return place_eplb(sums_of(load), {ranks, slots_per_rank, p.groups, nodes});
                 },
                 [&](const fault_aware_policy& p) {
                   return result<layer_layout>(place_deepinfer(load, ranks, slots_per_rank, p.min_replicas));
                 },
                 [&](const auto&) { return result<layer_layout>(place_deepinfer(load, ranks, slots_per_rank)); }},
      policy);
}

struct live_ranks {
  std::vector<std::int32_t> ranks; // by node, then by number, so that nodes are contiguous
  std::int32_t nodes = 0;
  bool equal_nodes = true;
};

live_ranks live_ranks_of(const expert_ranks& group) {
  live_ranks out;
  std::vector<std::int32_t> on_node;
  for (std::int32_t r = 0; r < group.ranks(); ++r)
    if (group.live[index(r)])
      out.ranks.push_back(r);
  std::stable_sort(out.ranks.begin(), out.ranks.end(),
                   [&](auto a, auto b) { return group.node_of[index(a)] < group.node_of[index(b)]; });
  for (std::size_t i = 0; i < out.ranks.size(); ++i) {
    if (i == 0 || group.node_of[index(out.ranks[i])] != group.node_of[index(out.ranks[i - 1])])
      on_node.push_back(0);
    ++on_node.back();
  }
  out.nodes = static_cast<std::int32_t>(on_node.size());
  out.equal_nodes = std::set<std::int32_t>(on_node.begin(), on_node.end()).size() <= 1;
  return out;
}

status check_slots(const placement_policy& policy, std::int32_t experts, std::int32_t slots, const live_ranks& live) {
  const auto* fault_aware = std::get_if<fault_aware_policy>(&policy);
  const std::int32_t copies = fault_aware ? fault_aware->min_replicas : 1;
  if (live.ranks.size() < index(copies) || slots < experts * copies)
    return error{"too_few_slots", std::string("policy ") + std::string(name_of(policy)) + ": " + std::to_string(slots) +
                                      " slots on " + std::to_string(live.ranks.size()) + " live ranks hold no " +
                                      std::to_string(copies) + " copies of each of " + std::to_string(experts) +
                                      " experts; add ranks or lower min_replicas"};
  if (std::holds_alternative<eplb_hier_policy>(policy) && !live.equal_nodes)
    return error{"policy_unsuitable",
                 "eplb_hier: the nodes have different numbers of live ranks; choose eplb_global or "
                 "deepinfer"};
  return nothing{};
}

} // namespace

result<placement_policy> policy_of(std::string_view name) {
  const placement_policy values[] = {static_policy{}, deepinfer_policy{}, eplb_global_policy{}, eplb_hier_policy{},
                                     fault_aware_policy{}};
  for (const placement_policy& p : values)
    if (name_of(p) == name)
      return p;
  std::string known;
  for (const std::string_view n : names)
    known += (known.empty() ? "" : ", ") + std::string(n);
  return error{"invalid_config",
               "policy = " + std::string(name) + ": there is no such placement policy; one of " + known};
}

std::string_view name_of(const placement_policy& policy) {
  return names[policy.index()];
}

result<expert_placement> wanted_placement(const placement_policy& policy, const load_window& window,
                                          const expert_placement& current, const expert_ranks& group,
                                          replica_spread spread) {
  if (std::holds_alternative<static_policy>(policy))
    return current;
  const live_ranks live = live_ranks_of(group);
  const auto ranks = static_cast<std::int32_t>(live.ranks.size());
  if (const status s = check_slots(policy, current.experts, ranks * group.slots_per_rank, live); !s)
    return s.failure();
  if (std::holds_alternative<fault_aware_policy>(policy) && spread == replica_spread::none)
    spread = replica_spread::rank; // copies that die together are one copy
  expert_placement wanted = current;
  for (std::int32_t layer = 0; layer < current.layers; ++layer) {
    const layer_load load = window.layer(layer);
    TROUPE_CHECK(load.experts == current.experts, "a load window of the placement's shape");
    const auto layout = place_layer(policy, load, ranks, group.slots_per_rank, live.nodes);
    if (!layout)
      return layout.failure();
    std::vector<std::int32_t> expert_of(index(group.slots()), -1);
    for (std::size_t i = 0; i < layout->expert_of.size(); ++i) {
      const auto n = static_cast<std::int32_t>(i);
      expert_of[index(live.ranks[index(n / group.slots_per_rank)] * group.slots_per_rank + n % group.slots_per_rank)] =
          layout->expert_of[i];
    }
    spread_replicas(expert_of, sums_of(load), group, spread);
    std::copy(expert_of.begin(), expert_of.end(), wanted.expert_of.begin() + layer * group.slots());
  }
  return wanted;
}

} // namespace troupe
