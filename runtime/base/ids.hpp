// Distinct id types: a block id is never passed where a state slot is meant.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>

namespace troupe {

template <class Tag, class Rep> struct strong_id {
  Rep value{};
  constexpr strong_id() = default;
  constexpr explicit strong_id(Rep v) : value(v) {}
  friend constexpr auto operator<=>(strong_id, strong_id) = default;
};

using sequence_id = strong_id<struct sequence_tag, std::uint64_t>; // one branch of one request, counted by the gateway
using block_id = strong_id<struct block_tag, std::int32_t>;        // KV block; 0 means none
using slot_id = strong_id<struct slot_tag, std::int32_t>;          // state slot of a sequence; 0 means none
using rank_id = strong_id<struct rank_tag, std::uint32_t>;         // engine or expert rank

// Stands in a step's input ids for a token that an earlier step draws and the host does not know yet: the device takes
// it from where that step left it, under the sequence's state slot (engine.md §8).
inline constexpr std::int32_t token_in_flight = -2;
// Likewise for a draft: the device takes those of the sequence's state slot, in order (speculation.md §4).
inline constexpr std::int32_t draft_in_flight = -3;

} // namespace troupe

template <class Tag, class Rep> struct std::hash<troupe::strong_id<Tag, Rep>> {
  std::size_t operator()(troupe::strong_id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
