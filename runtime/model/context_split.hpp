// How the ranks of a context-parallel group share the rows of a prefill step: the balanced ("mirror") split of
// engine.md §7.5. Of the 2N blocks of a sequence's rows, rank c computes blocks c and 2N-1-c, so that causal work is
// the same for all ranks. Pure arithmetic on row numbers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Rows [from, from + rows) of those that `rank` computes are rows [to, to + rows) of the step.
struct context_run {
  std::int32_t rank = 0, from = 0, to = 0, rows = 0;
  friend bool operator==(const context_run&, const context_run&) = default;
};

// Whether a prefill step with these rows per sequence is shared: a block must hold enough rows to be worth the exchange
// of records, and at least half of the padded places must be rows. Then every rank has a row. A function of the plan
// alone.
bool context_split_pays(std::span<const std::int32_t> rows, int ranks);

class context_split {
public:
  explicit context_split(int ranks);
  // The split of a step; rows: [sequences], each at least 1. Replaces the one before.
  void assign(std::span<const std::int32_t> rows);

  int ranks() const { return ranks_; }
  // Places of one rank: twice the sum over the sequences of ceil(rows / 2N).
  std::int32_t places() const { return places_; }
  // [places] row of the step that a rank computes in each of its places, -1 = padding.
  std::span<const std::int32_t> mirror_index(int rank) const;
  // [rows of the step] rank * places + place.
  std::span<const std::int32_t> reverse_index() const { return reverse_; }

  // Ranks compute no padding. Rows of the step that a rank computes, in its order.
  std::span<const std::int32_t> rows_of(int rank) const { return rows_[static_cast<std::size_t>(rank)]; }
  // From the ranks' rows to the step's, by step row; covers each once.
  std::span<const context_run> runs() const { return runs_; }
  // The runs, merged, of rows that are runs of step rows `from` to other numbers `to`; in their order.
  void find(std::span<const context_run> rows, std::vector<context_run>& out) const;
  // The run of one row.
  context_run row(std::int32_t step_row, std::int32_t to) const;

private:
  int ranks_;
  std::int32_t places_ = 0;
  std::vector<std::int32_t> mirror_;            // [ranks, places]
  std::vector<std::int32_t> dense_;             // [ranks, places] number of a place among those that are rows
  std::vector<std::int32_t> reverse_;           // [rows of the step]
  std::vector<std::vector<std::int32_t>> rows_; // [ranks]
  std::vector<context_run> runs_;
};

} // namespace troupe
