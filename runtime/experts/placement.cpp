#include "runtime/experts/placement.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>

namespace troupe {

expert_placement initial_placement(std::int32_t layers, std::int32_t experts, std::int32_t ranks) {
  TROUPE_CHECK(layers >= 0 && ranks >= 1 && ranks <= experts, "expert ranks");
  expert_placement p;
  p.version = 1;
  p.ranks = ranks;
  p.layers = layers;
  p.experts = experts;
  p.slots_per_rank = (experts + ranks - 1) / ranks;
  for (std::int32_t layer = 0; layer < layers; ++layer)
    for (std::int32_t slot = 0; slot < p.slots(); ++slot)
      p.expert_of.push_back(slot < experts ? slot : -1);
  return p;
}

expert_placement initial_placement(std::int32_t layers, std::int32_t experts, std::int32_t ranks, std::int32_t extra) {
  TROUPE_CHECK(layers >= 0 && ranks >= 1 && extra >= 0 && (experts + extra) % ranks == 0, "expert ranks");
  expert_placement p;
  p.version = 1;
  p.ranks = ranks;
  p.layers = layers;
  p.experts = experts;
  p.slots_per_rank = (experts + extra) / ranks;
  for (std::int32_t layer = 0; layer < layers; ++layer)
    for (std::int32_t slot = 0; slot < p.slots(); ++slot)
      p.expert_of.push_back(slot % experts);
  return p;
}

expert_range initial_range(std::int32_t experts, std::int32_t ranks, std::int32_t rank) {
  const std::int32_t per_rank = (experts + ranks - 1) / ranks;
  const std::int32_t first = std::min(experts, rank * per_rank);
  return {first, std::min(experts, first + per_rank) - first};
}

std::vector<std::vector<std::int32_t>> slots_of(const expert_placement& p, std::int32_t layer) {
  std::vector<std::vector<std::int32_t>> slots(static_cast<std::size_t>(p.experts));
  for (std::int32_t slot = 0; slot < p.slots(); ++slot) {
    const std::int32_t e = p.expert_of[static_cast<std::size_t>(layer * p.slots() + slot)];
    if (e >= 0)
      slots[static_cast<std::size_t>(e)].push_back(slot);
  }
  return slots;
}

std::string fault_of(const expert_placement& p) {
  if (p.expert_of.size() != static_cast<std::size_t>(p.layers) * static_cast<std::size_t>(p.slots()))
    return "the slot table has the wrong size";
  for (const std::int32_t e : p.expert_of)
    if (e < -1 || e >= p.experts)
      return "expert " + std::to_string(e) + " does not exist";
  for (std::int32_t layer = 0; layer < p.layers; ++layer) {
    const auto slots = slots_of(p, layer);
    for (std::size_t e = 0; e < slots.size(); ++e)
      if (slots[e].empty())
        return "expert " + std::to_string(e) + " of layer " + std::to_string(layer) + " has no slot";
  }
  return {};
}

} // namespace troupe
