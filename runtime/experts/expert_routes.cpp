#include "runtime/experts/expert_routes.hpp"

namespace troupe {

expert_routes::expert_routes(shared_placement placement)
    : placement_(std::move(placement)), named_(static_cast<std::size_t>(placement_->ranks)) {
  const expert_placement& p = *placement_;
  for (std::int32_t layer = 0; layer < p.layers; ++layer)
    for (const std::vector<std::int32_t>& slots : slots_of(p, layer)) {
      replicas_.push_back({static_cast<std::uint32_t>(slots_.size()), static_cast<std::uint32_t>(slots.size())});
      complete_ = complete_ && !slots.empty();
      for (const std::int32_t slot : slots) {
        slots_.push_back(slot);
        named_[static_cast<std::size_t>(slot / p.slots_per_rank)] = true;
      }
    }
}

} // namespace troupe
