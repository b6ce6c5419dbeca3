// Where the rows of a step go under one version of the placement (cluster.md §1.5): a look-up for each routed row, made
// once for each version.
#pragma once
#include "runtime/experts/expert_slots.hpp"
#include <cstdint>
#include <vector>

namespace troupe {

class expert_routes {
public:
  explicit expert_routes(shared_placement placement);

  const expert_placement& placement() const { return *placement_; }

  // Slot of the group to which expert rank `rank` sends row `row` of its step; -1 = no slot holds the expert. Replicas
  // share the rows of all ranks by a rule that every rank knows, so that nobody has to ask.
  std::int32_t slot_of(std::int32_t layer, std::int32_t expert, std::int32_t rank, std::int32_t row) const {
    const replicas& r = replicas_[static_cast<std::size_t>(layer) * static_cast<std::size_t>(placement_->experts) +
                                  static_cast<std::size_t>(expert)];
    if (r.count == 0)
      return -1;
    const std::uint32_t number = static_cast<std::uint32_t>(rank) + 23333u * static_cast<std::uint32_t>(row);
    return slots_[r.first + number % r.count];
  }

  // Whether every expert has a slot.
  bool complete() const { return complete_; }
  // Whether rows may be sent to a rank: it has a slot in some layer.
  bool names(std::int32_t rank) const { return named_[static_cast<std::size_t>(rank)]; }

private:
  struct replicas {
    std::uint32_t first = 0, count = 0; // in slots_
  };
  shared_placement placement_;
  std::vector<replicas> replicas_;  // [layers, experts]
  std::vector<std::int32_t> slots_; // of each expert, ascending
  std::vector<bool> named_;         // [ranks]
  bool complete_ = true;
};

} // namespace troupe
