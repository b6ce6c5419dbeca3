#include "runtime/model/replay.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/cache_layout.hpp"

namespace troupe {

int least_keep(const model_config& config) {
  return config.sliding_window + backtracking_tokens(config);
}

int exact_keep(const model_config& config) {
  const int consumers = config.num_hidden_layers - config.n_prefill_layer;
  return least_keep(config) + (consumers - 1) * (config.sliding_window - 1);
}

int kept_rows(yoco_mode mode, int keep, const model_config& config) {
  return mode == yoco_mode::exact ? exact_keep(config) : keep;
}

bool replayed_step::assign(const step_rows& step, int window, bool leave_out) {
  if (step.replay_from.empty())
    return false;
  bool narrow = false;
  for (std::size_t q = 0; q < step.slot.size(); ++q)
    narrow =
        narrow || first_visible(step.start[q], window, step.replay_from[q]) > std::max(step.start[q] - window + 1, 0);
  if (!narrow)
    return false;
  rows_.slot.clear(), rows_.start.clear(), rows_.rows.clear(), rows_.first_block.clear(), rows_.blocks_of.clear();
  rows_.tokens.clear(), rows_.history.clear(), rows_.replay_from.clear(), runs_.clear();
  rows_.blocks = step.blocks;
  std::int32_t first = 0;
  for (std::size_t q = 0; q < step.slot.size(); ++q) {
    const std::int32_t out = leave_out ? rows_left_out(step.start[q], step.rows[q], step.replay_from[q]) : 0;
    if (out < step.rows[q])
      add(step, q, first, out);
    first += step.rows[q];
  }
  some_left_out_ = rows_.tokens.size() < step.tokens.size();
  return true;
}

// The rows of one sequence, which starts at first_row of the step, but for the first `out`.
void replayed_step::add(const step_rows& step, std::size_t sequence, std::int32_t first_row, std::int32_t out) {
  const std::int32_t from = first_row + out, count = step.rows[sequence] - out;
  runs_.push_back({0, from, static_cast<std::int32_t>(rows_.tokens.size()), count});
  rows_.slot.push_back(step.slot[sequence]);
  rows_.start.push_back(step.start[sequence] + out);
  rows_.rows.push_back(count);
  rows_.first_block.push_back(step.first_block[sequence]);
  rows_.blocks_of.push_back(step.blocks_of[sequence]);
  rows_.replay_from.push_back(step.replay_from[sequence]);
  rows_.tokens.insert(rows_.tokens.end(), step.tokens.begin() + from, step.tokens.begin() + from + count);
  const auto ngram = static_cast<std::ptrdiff_t>(step.history.size() / step.slot.size());
  const auto history = step.history.begin() + static_cast<std::ptrdiff_t>(sequence) * ngram; // only producers read it
  rows_.history.insert(rows_.history.end(), history, history + ngram);
}

std::int32_t replayed_step::row_of(std::int32_t step_row) const {
  const auto behind = std::upper_bound(runs_.begin(), runs_.end(), step_row,
                                       [](std::int32_t row, const context_run& r) { return row < r.from; });
  TROUPE_CHECK(behind != runs_.begin() && step_row < behind[-1].from + behind[-1].rows,
               "a row that the consumer layers left out has no result");
  return behind[-1].to + step_row - behind[-1].from;
}

} // namespace troupe
