// From one placement to another by overwriting one slot at a time, so that no expert is ever without a slot
// (cluster.md §3.6).
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/experts/expert_ranks.hpp"
#include "runtime/experts/placement.hpp"
#include <span>
#include <vector>

namespace troupe {

struct expert_move {
  std::int32_t layer = 0, slot = 0;
  std::int32_t from = -1; // expert that the slot loses, -1 = it is empty
  std::int32_t to = -1;   // expert that the slot gets, -1 = it stays empty
  bool operator==(const expert_move&) const = default;
};

// The same sets of experts on every rank, with every expert that stays on its rank in its slot of `current`.
std::vector<std::int32_t> relabelled(std::span<const std::int32_t> current, std::span<const std::int32_t> wanted,
                                     std::int32_t slots_per_rank);
expert_placement relabelled(const expert_placement& current, const expert_placement& wanted);

// Slots that differ.
std::int32_t differing_slots(const expert_placement& current, const expert_placement& wanted);

// Moves in an order in which each may begin when those before it are done: the expert that a move overwrites has
// another slot then. Experts without any slot now (lost) come first. Fails with "no_redundancy" if every copy is the
// only one and no slot of a live rank is empty. Slots of ranks that do not live must be equal in both.
result<std::vector<expert_move>> plan_moves(const expert_placement& current, const expert_placement& wanted,
                                            const expert_ranks& group);

// Which of the slots that hold an expert a rank copies from, the same for everybody who asks: one of its own, else of
// its node, else of another; among these of the rank with the fewest copies to serve, the lowest slot. -1 = no holder.
// serving: [ranks]
std::int32_t source_slot(std::span<const std::int32_t> holders, std::int32_t to_rank, const expert_ranks& group,
                         std::span<const std::int32_t> serving);

} // namespace troupe
