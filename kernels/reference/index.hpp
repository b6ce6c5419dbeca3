// The index of compressed positions: scores, candidate blocks, selection (model.md §5.2, §5.3). begin and end count
// from the first row of the call: row first + i of the step. Positions past the block table are treated as not visible.
#pragma once
#include "kernels/plain/index.hpp"
#include <cstddef>
#include <span>

namespace troupe::reference {

constexpr std::size_t index_scores_scratch(const index_scores_args& a) { // floats
  return static_cast<std::size_t>(a.heads) * static_cast<std::size_t>(a.dim) + static_cast<std::size_t>(a.dim) +
         static_cast<std::size_t>(a.heads);
}
void index_scores(const index_scores_args& a, int begin, int end, std::span<float> scratch);

using plain::order_key;

void candidates(const candidate_args& a, int begin, int end);
void select(const select_args& a, int begin, int end);

} // namespace troupe::reference
