// Anti-affinity of replicas (cluster.md §3.6, `spread`): two copies on one rank help nobody, two on one node are lost
// together.
#pragma once
#include "runtime/experts/expert_ranks.hpp"
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

enum class replica_spread : std::uint8_t {
  none, // as the policy placed them: reproduces golden vectors
  rank, // no two copies of an expert on one rank
  node  // nor on one node, as long as there are as many nodes as copies; else evenly over the nodes
};

// Copies of one expert that share a rank (node), over what cannot be avoided: 0 is what `spread` asks for.
std::int32_t shared_copies(std::span<const std::int32_t> expert_of, std::int32_t experts, const expert_ranks& group,
                           replica_spread spread);

// Exchanges slots of one layer, each time for the partner of the nearest weight, until no copies are shared or no
// exchange helps. An expert with more copies than live ranks gives the surplus to the experts with the heaviest slots.
// weights: [experts], rows of an expert. Slots of ranks that do not live are left alone.
void spread_replicas(std::vector<std::int32_t>& expert_of, std::span<const float> weights, const expert_ranks& group,
                     replica_spread spread);

} // namespace troupe
