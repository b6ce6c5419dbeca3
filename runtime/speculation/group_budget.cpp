#include "runtime/speculation/group_budget.hpp"
#include <algorithm>

namespace troupe {

namespace {

// What a rank can do, best first seen in time: more time never means fewer rows.
struct step_choice {
  double ms = 0;
  std::int64_t rows = 0;
  double expected = 0;
};

step_choice choice_of(const row_budget& b) {
  return {b.ms, b.rows, b.expected};
}

std::vector<step_choice> choices_of(const rank_load& r) {
  if (r.sequences == 0)
    return {{}};
  const auto all = static_cast<std::int64_t>(r.survivals.size());
  const auto drafts = [&](std::int64_t rows) {
    return r.survivals.first(static_cast<std::size_t>(std::clamp<std::int64_t>(rows - r.sequences, 0, all)));
  };
  if (r.fixed_rows > 0)
    return {choice_of(budget_of(r.sequences, drafts(r.fixed_rows), r.times))};
  const auto first = std::ranges::lower_bound(r.times, r.sequences, {}, &timed_size::rows);
  if (first == r.times.end()) // no curve, or more sequences than it knows
    return {choice_of(budget_of(r.sequences, drafts(r.times.empty() ? r.sequences + all : r.sequences), r.times))};

  std::vector<step_choice> out; // the largest budget of each size
  row_budget b{r.sequences, static_cast<float>(r.sequences), 0};
  for (auto size = first; size != r.times.end(); ++size) {
    const std::int64_t rows = std::min<std::int64_t>(size->rows, r.sequences + all);
    for (; b.rows < rows; ++b.rows)
      b.expected += r.survivals[static_cast<std::size_t>(b.rows - r.sequences)];
    out.push_back({size->ms, rows, b.expected});
    if (rows == r.sequences + all)
      break;
  }
  std::ranges::stable_sort(out, {}, &step_choice::ms);
  std::vector<step_choice> rising;
  for (const step_choice& c : out) {
    if (!rising.empty() && c.rows <= rising.back().rows)
      continue;
    if (!rising.empty() && c.ms == rising.back().ms)
      rising.pop_back();
    rising.push_back(c);
  }
  return rising;
}

} // namespace

group_budget best_group_budget(std::span<const rank_load> ranks) {
  std::vector<std::vector<step_choice>> choices;
  std::vector<double> levels;
  double least = 0; // no level below: some rank could not keep it
  for (const rank_load& r : ranks) {
    choices.push_back(choices_of(r));
    least = std::max(least, choices.back().front().ms);
    for (const step_choice& c : choices.back())
      levels.push_back(c.ms);
  }
  std::ranges::sort(levels);
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());

  group_budget best;
  double best_rate = -1;
  std::vector<std::size_t> at(ranks.size(), 0);
  for (const double t : levels) {
    if (t < least)
      continue;
    double expected = 0, slowest = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      while (at[i] + 1 < choices[i].size() && choices[i][at[i] + 1].ms <= t)
        ++at[i];
      expected += choices[i][at[i]].expected;
      slowest = std::max(slowest, choices[i][at[i]].ms);
    }
    const double rate = slowest > 0 ? expected / slowest : 0;
    if (rate <= best_rate)
      continue;
    best_rate = rate;
    best.expected = expected;
    best.ms = slowest;
    best.rows.clear();
    for (std::size_t i = 0; i < ranks.size(); ++i)
      best.rows.push_back(choices[i][at[i]].rows);
  }
  return best;
}

} // namespace troupe
