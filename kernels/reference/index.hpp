// The index of compressed positions: scores, candidate blocks, selection (model.md §5.2, §5.3). begin and end count
// from the first row of the call: row first + i of the step. Positions past the block table are treated as not visible.
#pragma once
#include "kernels/ops.hpp"
#include <cstddef>
#include <span>

namespace troupe::reference {

constexpr std::size_t index_scores_scratch(const index_scores_args& a) { // floats
  return static_cast<std::size_t>(a.heads) * static_cast<std::size_t>(a.dim) + static_cast<std::size_t>(a.dim) +
         static_cast<std::size_t>(a.heads);
}
void index_scores(const index_scores_args& a, int begin, int end, std::span<float> scratch);

// Order of scores: larger first, -0 equals +0, NaN behind everything. Among equals the smaller index wins.
std::uint32_t order_key(float score);

void candidates(const candidate_args& a, int begin, int end);
void select(const select_args& a, int begin, int end);

} // namespace troupe::reference
