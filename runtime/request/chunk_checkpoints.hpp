// A request's chunk_checkpoints: prompt positions that others are likely to share, such as the end of a system message
// or of a turn of a conversation (engine.md §4). A chunk of the prompt ends, and the prefix cache keeps the state, at
// the last whole block before each. They change no token.
#pragma once
#include "runtime/base/result.hpp"
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

inline constexpr std::size_t most_chunk_checkpoints = 32; // each takes a place among the states that are kept

// Code: invalid_params. Positions behind the prompt's end are legal and do nothing.
inline status check_chunk_checkpoints(std::span<const std::int32_t> at) {
  if (at.size() > most_chunk_checkpoints)
    return error{"invalid_params", "chunk_checkpoints has " + std::to_string(at.size()) + " positions: at most " +
                                       std::to_string(most_chunk_checkpoints)};
  for (std::size_t i = 0; i < at.size(); ++i)
    if (at[i] <= (i == 0 ? 0 : at[i - 1]))
      return error{"invalid_params", "chunk_checkpoints[" + std::to_string(i) + "] = " + std::to_string(at[i]) +
                                         " is out of range: positive and ascending"};
  return nothing{};
}

} // namespace troupe
