// How many rows a decode step gets (speculation.md §6.1): as many as make expected tokens per time largest.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// A size that steps are filled up to, and what a step of it takes.
struct timed_size {
  std::int32_t rows = 0;
  double ms = 0;
};

struct row_budget {
  std::int64_t rows = 0; // one per sequence and one per draft to verify
  float expected = 0;    // tokens that the step emits
  double ms = 0;         // that it takes; 0 without times
};

// The budget with the largest expected / ms over all of them, the smaller one at a tie. `survivals`: of all drafts that
// could be verified, descending. `times`: ascending sizes, ms > 0; a step takes the smallest one that holds its rows,
// budgets beyond the largest are not considered. Without times every draft is verified; never fewer rows than
// sequences.
row_budget best_budget(std::int32_t sequences, std::span<const float> survivals, std::span<const timed_size> times);

// The budget that verifies exactly these drafts.
row_budget budget_of(std::int32_t sequences, std::span<const float> survivals, std::span<const timed_size> times);

// Numbers in [0, 1], largest first. The second vector is scratch.
void sort_descending(std::vector<float>& values, std::vector<float>& scratch);

} // namespace troupe
