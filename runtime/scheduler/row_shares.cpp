#include "runtime/scheduler/row_shares.hpp"
#include <algorithm>

namespace troupe {

namespace {

std::int32_t give(row_share& p, std::int32_t left, std::int32_t least) {
  const std::int32_t rows = std::min(p.wants - p.rows, left);
  if (p.rows + rows < std::min(p.wants, least))
    return 0;
  p.rows += rows;
  return rows;
}

} // namespace

void share_rows(std::span<row_share> prompts, std::int32_t budget, std::int32_t least,
                std::vector<std::int32_t>& scratch) {
  std::int32_t left = budget, in_order = std::max((budget + 1) / 2, std::min(least, budget));
  for (row_share& p : prompts) {
    const std::int32_t rows = give(p, in_order, least);
    in_order -= rows, left -= rows;
    if (in_order == 0)
      break;
  }
  scratch.clear();
  for (std::size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].wants > prompts[i].rows)
      scratch.push_back(static_cast<std::int32_t>(i));
  const auto at = [&](std::int32_t i) -> row_share& { return prompts[static_cast<std::size_t>(i)]; };
  std::sort(scratch.begin(), scratch.end(), [&](std::int32_t a, std::int32_t b) {
    return at(a).wants != at(b).wants ? at(a).wants < at(b).wants : a < b;
  });
  for (const std::int32_t i : scratch)
    left -= give(at(i), left, least);
}

void share_whole(std::span<row_share> prompts, std::int32_t budget) {
  for (row_share& p : prompts)
    if (p.wants <= budget) {
      p.rows = p.wants;
      budget -= p.wants;
    }
}

} // namespace troupe
