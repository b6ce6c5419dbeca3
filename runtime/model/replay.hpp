// Bounded replay of a prompt by the consumer layers (exactness.md §7; determinism_yoco.md A2, A3). They read the
// compressed KV of layer n_prefill_layer, which is made of all rows, and windows of their own; so they need not compute
// the rows before position R of a prompt, where the windows begin. Pure arithmetic on positions and row numbers.
#pragma once
#include "runtime/model/config.hpp"
#include "runtime/model/context_split.hpp"
#include "runtime/model/runner.hpp"
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Fewest rows of a prompt's end that may be computed: after everything that speculation may take back a window is left.
int least_keep(const model_config& config);
// With so many the last least_keep rows are those of a prompt computed whole: each consumer layer reaches a window
// back.
int exact_keep(const model_config& config);
// Rows that a mode keeps; `keep` is the setting of mask and compact.
int kept_rows(yoco_mode mode, int keep, const model_config& config);

// How many of the rows at positions [start, start + rows) lie before replay_from and are left out.
constexpr std::int32_t rows_left_out(std::int32_t start, std::int32_t rows, std::int32_t replay_from) {
  return std::clamp(replay_from - start, 0, rows);
}
// Lowest position that a row of a consumer layer sees in its window; position + 1 = none.
constexpr std::int32_t first_visible(std::int32_t position, std::int32_t window, std::int32_t replay_from) {
  return std::min(std::max(position - window + 1, replay_from), position + 1);
}

// The part of a step that the consumer layers compute.
class replayed_step {
public:
  // Replaces the step before. False: every row is computed and sees a whole window, as in the producer layers; nothing
  // else is then to be asked. leave_out: rows before replay_from are left out; else they stay, with empty windows.
  bool assign(const step_rows& step, int window, bool leave_out);

  const step_rows& rows() const { return rows_; } // sequences without a row are not among them
  bool some_left_out() const { return some_left_out_; }
  // Row of rows() that is this row of the step, which was not left out.
  std::int32_t row_of(std::int32_t step_row) const;
  // The rows in their order as runs {0, step row, row of rows(), rows}.
  std::span<const context_run> runs() const { return runs_; }

private:
  void add(const step_rows& step, std::size_t sequence, std::int32_t first_row, std::int32_t out);

  step_rows rows_;
  std::vector<context_run> runs_;
  bool some_left_out_ = false;
};

} // namespace troupe
