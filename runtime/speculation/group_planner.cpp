#include "runtime/speculation/group_planner.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

group_planner::group_planner(group_settings settings) : settings_(std::move(settings)) {
  rank_state first;
  first.cost = settings_.untimed_sizes.empty() ? step_cost(settings_.curve, settings_.drafting)
                                               : step_cost::untimed(settings_.untimed_sizes);
  first.missed = most_missed + 1; // nobody waits for a rank that never reported
  ranks_.assign(static_cast<std::size_t>(settings_.ranks), first);
}

bool group_planner::take(std::uint32_t rank, load l) {
  if (rank >= ranks_.size())
    return false;
  rank_state& r = ranks_[rank];
  const bool again = std::exchange(r.fresh, true);
  r.last = std::move(l);
  r.missed = 0;
  return again || std::ranges::all_of(ranks_, [](const rank_state& s) { return s.fresh || s.missed > most_missed; });
}

void group_planner::observe(std::uint32_t rank, const step_observation& o) {
  if (rank < ranks_.size())
    ranks_[rank].cost.observe(o);
}

std::vector<timed_size> group_planner::times(std::uint32_t rank) const {
  std::vector<timed_size> out;
  const rank_state& r = ranks_[rank];
  r.cost.times(r.last.sequences, r.last.kv_tokens, out);
  return out;
}

void group_planner::decide() {
  std::vector<std::vector<timed_size>> times(ranks_.size());
  std::vector<rank_load> loads(ranks_.size());
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
    rank_state& r = ranks_[i];
    if (!r.fresh) {
      late_ += r.missed <= most_missed ? 1 : 0;
      r.missed = std::min(r.missed + 1, most_missed + 1);
    }
    if (r.missed > most_missed || r.last.sequences == 0)
      continue; // idle
    times[i] = this->times(i);
    const auto room = static_cast<std::size_t>(std::max(settings_.most_rows - r.last.sequences, 0));
    loads[i] = {r.last.sequences,
                std::span(std::as_const(r.last.survivals)).first(std::min(room, r.last.survivals.size())), times[i],
                r.fresh ? 0 : r.total_q};
  }
  const group_budget b = best_group_budget(loads);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].total_q = b.rows[i];
    ranks_[i].fresh = false;
  }
  ++decisions_;
}

} // namespace troupe
