// Policies `eplb_hier` and `eplb_global` (cluster.md §1.8): replicas of the experts with the largest share, then
// packing by weight. The hierarchical one keeps groups of experts on one node. Binary32; equal weights keep their
// order.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/experts/layer_load.hpp"
#include <span>

namespace troupe {

struct eplb_shape {
  std::int32_t ranks = 1, slots_per_rank = 1;
  std::int32_t groups = 1, nodes = 1; // 1 and 1: global
};

// weights: [experts]. Fails ("policy_unsuitable") unless groups divides the experts, nodes divides groups and ranks,
// and there are at least as many slots on a node as experts.
result<layer_layout> place_eplb(std::span<const float> weights, const eplb_shape& shape);

} // namespace troupe
