// Rows of a step for each of the engines that wait for one another (speculation.md §6.5): expert-parallel layers make
// the fastest as slow as the slowest, so the group has one time and its engines fill it.
#pragma once
#include "runtime/speculation/budget.hpp"
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

struct rank_load {
  std::int32_t sequences = 0;        // 0: the rank has no decode step
  std::span<const float> survivals;  // as best_budget
  std::span<const timed_size> times; // as best_budget; empty: it verifies every draft and its time is not known
  std::int64_t fixed_rows = 0;       // > 0: it takes these rows whatever the others do
};

struct group_budget {
  std::vector<std::int64_t> rows; // [ranks]
  double expected = 0;            // tokens of all ranks together
  double ms = 0;                  // of the slowest
};

// Over all time levels t, each rank with the most rows whose step takes at most t: the largest sum of expected tokens
// per time of the slowest rank; the smaller t at a tie. A level counts only if every rank can keep it with one row a
// sequence.
group_budget best_group_budget(std::span<const rank_load> ranks);

} // namespace troupe
