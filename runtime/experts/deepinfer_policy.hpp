// Policy `deepinfer` (cluster.md §1.5): replicas where they lower the sum over steps of the busiest slot, then slots to
// ranks so that the sum over steps of the busiest rank stays small. All arithmetic is binary32 in a fixed order, so
// that everybody who computes it finds the same.
#pragma once
#include "runtime/experts/layer_load.hpp"

namespace troupe {

// ranks * slots_per_rank >= experts * min_replicas. min_replicas above 1 is how `fault_aware` differs.
layer_layout place_deepinfer(const layer_load& load, std::int32_t ranks, std::int32_t slots_per_rank,
                             std::int32_t min_replicas = 1);

} // namespace troupe
