// Placement policies as values (cluster.md §3.6): from the load of the last steps to a wanted placement. None of them
// knows how experts get there.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/experts/expert_ranks.hpp"
#include "runtime/experts/layer_load.hpp"
#include "runtime/experts/placement.hpp"
#include "runtime/experts/spread.hpp"
#include <string_view>
#include <variant>

namespace troupe {

class load_window;

struct static_policy {}; // what is, stays
struct deepinfer_policy {};
struct eplb_global_policy {};
struct eplb_hier_policy {
  std::int32_t groups = 1; // of experts; as many nodes as live ranks lie on
};
struct fault_aware_policy { // deepinfer, with every expert on that many ranks at least
  std::int32_t min_replicas = 2;
};
using placement_policy =
    std::variant<static_policy, deepinfer_policy, eplb_global_policy, eplb_hier_policy, fault_aware_policy>;

// By its configuration name; "invalid_config" names those that exist.
result<placement_policy> policy_of(std::string_view name);
std::string_view name_of(const placement_policy& policy);

// A placement of `current`'s shape over the live ranks of the group, slots of others empty, its version that of
// current. Fails: "policy_unsuitable" (the policy cannot do this shape), "too_few_slots".
result<expert_placement> wanted_placement(const placement_policy& policy, const load_window& window,
                                          const expert_placement& current, const expert_ranks& group,
                                          replica_spread spread);

} // namespace troupe
