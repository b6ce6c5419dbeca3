// How a prefill step divides its rows among prompts (C9).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

struct row_share {
  std::int32_t wants = 0; // rows, at least 1
  std::int32_t rows = 0;  // result
};

// `prompts` come in the order of service. Half of the budget goes to them in that order, so that the first always
// advances; the rest goes to the shortest, ties in order, so that a long prompt does not hold up short ones. No share
// is smaller than `least` unless it is all that is wanted; least <= budget.
void share_rows(std::span<row_share> prompts, std::int32_t budget, std::int32_t least,
                std::vector<std::int32_t>& scratch);
// Whole prompts only, in order, passing over those that do not fit any more.
void share_whole(std::span<row_share> prompts, std::int32_t budget);

} // namespace troupe
