#include "runtime/speculation/draft_outlook.hpp"
#include "runtime/base/draft_split.hpp"
#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

draft_outlook::draft_outlook(std::int32_t nextn)
    : nextn_(nextn), blocks_(static_cast<std::size_t>(nextn) * static_cast<std::size_t>(most), 0.0f) {
  float survival = 1;
  for (std::int32_t j = 0; j < nextn; ++j)
    blocks_[static_cast<std::size_t>(j)] = survival *= at_first;
}

void draft_outlook::add(std::span<const float> confidences) {
  const auto row = std::span(blocks_).subspan(
      static_cast<std::size_t>(added_ % most) * static_cast<std::size_t>(nextn_), static_cast<std::size_t>(nextn_));
  const auto drafts = static_cast<std::int32_t>(std::min(confidences.size(), row.size()));
  survivals_of(confidences.data(), drafts, nextn_, row.data());
  std::ranges::fill(row.subspan(static_cast<std::size_t>(drafts)), 0.0f);
  ++added_;
  kept_ = anew_ ? 1 : std::min(kept_ + 1, most);
  anew_ = false;
}

// As many blocks as sequences make a step; where there are more blocks, several steps are made of all of them.
draft_outlook::prospect draft_outlook::expect(std::int32_t sequences, std::int64_t kv_tokens, std::int64_t most_rows,
                                              const step_cost& cost, const acceptance_forecast& forecast) {
  if (!cost.known())
    return {.gain = std::numeric_limits<double>::infinity()};
  cost.times(sequences, kv_tokens, times_);
  const std::int32_t count = std::min(kept_, std::clamp(sequences, fewest, most)),
                     steps = std::max(1, count / std::max(sequences, 1));
  const std::uint64_t newest = std::max<std::uint64_t>(added_, 1) - 1; // before any came, the first place is filled
  const auto room = static_cast<std::size_t>(std::max<std::int64_t>(most_rows - sequences, 0));
  row_budget sum;
  double right = 0;
  std::uint64_t back = 0;
  for (std::int32_t step = 0; step < steps; ++step) {
    survivals_.clear();
    for (std::int32_t i = 0; i < sequences; ++i, back = (back + 1) % static_cast<std::uint64_t>(count)) {
      const auto at = static_cast<std::ptrdiff_t>((newest - back) % most) * nextn_;
      survivals_.insert(survivals_.end(), blocks_.begin() + at, blocks_.begin() + at + nextn_);
      forecast.correct(std::span(survivals_).last(static_cast<std::size_t>(nextn_)), true);
    }
    for (const float v : survivals_)
      right += v;
    sort_descending(survivals_, scratch_);
    const row_budget b =
        best_budget(sequences, std::span(std::as_const(survivals_)).first(std::min(room, survivals_.size())), times_);
    sum.expected += b.expected;
    sum.ms += b.ms;
  }
  return {against_plain(sum, sequences, cost), sum.ms / steps, right / (steps * sequences)};
}

double draft_outlook::highest_gain(std::int32_t sequences, std::int64_t kv_tokens, std::int64_t most_rows,
                                   const step_cost& cost) {
  if (!cost.known())
    return std::numeric_limits<double>::infinity();
  cost.times(sequences, kv_tokens, times_);
  const std::int64_t room = std::max<std::int64_t>(most_rows - sequences, 0);
  survivals_.assign(static_cast<std::size_t>(std::min(room, std::int64_t{sequences} * nextn_)), 1.0f);
  return against_plain(best_budget(sequences, survivals_, times_), sequences, cost);
}

// A step that neither verifies nor drafts gives a token for each sequence.
double draft_outlook::against_plain(const row_budget& with, std::int32_t sequences, const step_cost& cost) const {
  const double plain_ms = budget_of(sequences, {}, times_).ms - cost.drafting_ms(sequences);
  return static_cast<double>(with.expected) * plain_ms / (with.ms * sequences);
}

} // namespace troupe
