#include "runtime/speculation/planner.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/draft_split.hpp"
#include "runtime/speculation/confidences.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

// Row of a table of survivals. Drafts without numbers count as certain.
void put_survivals(std::span<const float> confidences, std::int32_t drafts, std::span<float> row) {
  const auto numbers = static_cast<std::int32_t>(confidences.size());
  if (numbers >= drafts)
    return survivals_of(confidences.data(), drafts, static_cast<std::int32_t>(row.size()), row.data());
  std::array<float, most_drafts> known;
  known.fill(1.0f);
  std::ranges::copy(confidences, known.begin());
  survivals_of(known.data(), drafts, static_cast<std::int32_t>(row.size()), row.data());
}

// The same for all sequences, and falling: split_drafts then shortens the longest first.
void put_equal_survivals(std::int32_t drafts, std::span<float> row) {
  for (std::size_t j = 0; j < row.size(); ++j)
    row[j] = static_cast<std::int32_t>(j) < drafts ? 1.0f / static_cast<float>(j + 1) : no_draft;
}

} // namespace

// Fills drafts_. A try looks at a few blocks only, whoever has them. Returns how many drafts the step has room for.
std::int64_t draft_planner::take_drafts(std::span<const draft_candidate> candidates) {
  std::int32_t blocks = settings_.varlen && !switch_.on() && !switch_.verifies_all()
                            ? in_try_
                            : static_cast<std::int32_t>(candidates.size());
  std::int64_t sum = 0;
  drafts_.clear();
  for (const draft_candidate& c : candidates) {
    const std::int32_t n = blocks > 0 ? std::clamp(c.drafts, 0, settings_.nextn) : 0;
    blocks -= n > 0;
    sum += n;
    drafts_.push_back(n);
  }
  return std::min(sum, std::max<std::int64_t>(settings_.most_rows - std::ssize(candidates), 0));
}

double draft_planner::step_ms(std::int32_t rows) const {
  const auto at = std::ranges::lower_bound(times_, std::min(rows, settings_.most_rows), {}, &timed_size::rows);
  return (at == times_.end() ? times_.back() : *at).ms;
}

std::size_t draft_planner::most_timed_drafts(std::int32_t sequences) const {
  return static_cast<std::size_t>(std::max(times_.back().rows - sequences, 0));
}

// The verifier's choice where it made one for these sequences, else the best one; every draft where that is to be
// tried.
row_budget draft_planner::budget(std::uint64_t round, std::int32_t sequences, std::span<const float> survivals) const {
  if (!cost_.known())
    return budget_of(sequences,
                     survivals.first(static_cast<std::size_t>(cost_.drafts_to_learn_from(std::ssize(survivals)))), {});
  if (switch_.verifies_all())
    return budget_of(sequences, survivals.first(std::min(survivals.size(), most_timed_drafts(sequences))), times_);
  if (!plan_is_current(advice_.round, round) || advice_.sequences != sequences || advice_.total_rows < sequences)
    return best_budget(sequences, survivals, times_);
  const auto drafts = std::min(survivals.size(), static_cast<std::size_t>(advice_.total_rows - sequences));
  return budget_of(sequences, survivals.first(drafts), times_);
}

// Few blocks tell little, and those of one sequence less, for a text is hard or easy for some time: drafting is given
// more credit the fewer there are, as far as it can bring that much.
double draft_planner::hope_beyond(std::int32_t sequences, std::int64_t kv_tokens, double foretold) {
  constexpr double credit = .5; // of one block
  if (!cost_.known())           // everything is hoped for
    return 0;
  const double most = outlook_.highest_gain(sequences, kv_tokens, settings_.most_rows, cost_);
  const double n = sequences, count = outlook_.kept() / (1 + 3 / (n * n));
  return std::clamp(foretold * credit / std::sqrt(1 + count), 0.0, std::max(most - foretold, 0.0));
}

// While all steps verify drafts, nobody sees what others take now. Where drafting gains little that decides.
bool draft_planner::pauses_for_a_plain_step(std::int32_t sequences) const {
  constexpr std::int32_t seldom = 64, first = 8; // plans
  constexpr double clear = 1.5;
  return cost_.known() && prospect_.gain < clear && since_plain_ >= (cost_.has_seen(sequences) ? seldom : first);
}

// What a plain step, a step of a try and one that verifies every draft take.
void draft_planner::price(const draft_outlook::prospect& p, double drafting_ms) {
  const std::int32_t sequences = prospect_.sequences;
  prospect_.plain_ms = budget_of(sequences, {}, times_).ms - drafting_ms;
  prospect_.whole_ms = step_ms(sequences * (1 + settings_.nextn)) - prospect_.plain_ms;
  // Drafts of all sequences are made: as many are verified as take that much time again.
  const double block_ms = (prospect_.whole_ms - drafting_ms) / sequences;
  in_try_ = sequences;
  if (sequences * block_ms > drafting_ms)
    in_try_ =
        std::min(sequences, std::max(draft_switch::try_blocks, static_cast<std::int32_t>(drafting_ms / block_ms)));
  // All of them are, as long as the confidences of two rounds ago are those of a round without drafts.
  const std::int32_t steps = draft_switch::try_steps(sequences), blind = std::min(steps, 2);
  const double blind_ms = drafting_ms + in_try_ * (block_ms - prospect_.plain_ms * p.right / sequences);
  const double make_up_ms = cost_.make_up_ms(sequences); // once in a try
  prospect_.whole_ms += make_up_ms / static_cast<double>(step_cost::least_samples);
  prospect_.try_ms = std::max((blind * blind_ms + (steps - blind) * p.ms * (1 - p.gain)) / steps,
                              drafting_ms / 4) + // what is foretold may be too good
                     make_up_ms / steps;
}

// What drafting would bring is worked out anew when the number of sequences changes, and every few plans.
bool draft_planner::go_on_drafting(std::int32_t sequences, std::int64_t kv_tokens) {
  constexpr std::int32_t look_every = 4, look_anyway = 64;
  ++since_look_;
  const std::uint64_t blocks = outlook_.blocks();
  if (prospect_.sequences != sequences || looked_at_ == ~std::uint64_t{0} || since_look_ >= look_anyway ||
      (looked_at_ != blocks && (since_look_ >= look_every || blocks >= 2 * looked_at_))) {
    prospect_.sequences = sequences;
    draft_outlook::prospect p = outlook_.expect(sequences, kv_tokens, settings_.most_rows, cost_, forecast_);
    prospect_.gain = p.gain *= realised_.factor(sequences);
    prospect_.hope = hope_beyond(sequences, kv_tokens, p.gain);
    prospect_.can_pay =
        outlook_.highest_gain(sequences, kv_tokens, settings_.most_rows, cost_) >= draft_switch::back_on;
    const double drafting_ms = cost_.drafting_ms(sequences);
    if (!times_.empty())
      price(p, drafting_ms);
    looked_at_ = blocks;
    since_look_ = 0;
  }
  const bool draft = switch_.next(prospect_);
  if (switch_.begins_try()) {
    outlook_.start_anew();
    realised_.forget_half();
    forecast_.forget_half();
  }
  if (!draft || !switch_.on() || !pauses_for_a_plain_step(sequences))
    return draft;
  since_plain_ = 0;
  return false;
}

bool draft_planner::drafts_behind_prompt(std::int32_t sequences, std::int64_t kv_tokens) {
  if (settings_.nextn == 0 || !settings_.varlen)
    return settings_.nextn > 0;
  sequences = std::max(sequences, 1);
  draft_switch::prospect p = prospect_; // its times are those of the last look
  p.sequences = sequences;
  p.gain =
      outlook_.expect(sequences, kv_tokens, settings_.most_rows, cost_, forecast_).gain * realised_.factor(sequences);
  p.hope = hope_beyond(sequences, kv_tokens, p.gain);
  return switch_.pays(p);
}

std::int64_t draft_planner::choose_by_confidence(std::uint64_t round, std::span<const draft_candidate> candidates,
                                                 std::int64_t most, draft_plan& out) {
  const auto sequences = static_cast<std::int32_t>(candidates.size());
  // What is foretold to fail is not verified, and nobody would see that it succeeds by now: in a try, and once in a
  // while, confidences are taken as they are.
  constexpr std::uint64_t as_they_are = 256;
  const bool corrects = switch_.on() && round % as_they_are != 0;
  std::int64_t kv_tokens = 0;
  std::array<float, most_drafts> row;
  budget_survivals_.clear();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const draft_candidate& c = candidates[i];
    const std::int32_t n = drafts_[i];
    kv_tokens += c.kv_tokens;
    if (!c.for_budget.empty()) // each block comes by once
      outlook_.add(c.for_budget);
    put_survivals(c.for_budget, n, std::span(row).first(static_cast<std::size_t>(settings_.nextn)));
    if (corrects)
      forecast_.correct(std::span(row).first(static_cast<std::size_t>(n)), !c.for_budget.empty());
    budget_survivals_.insert(budget_survivals_.end(), row.begin(), row.begin() + n);
  }
  sort_descending(budget_survivals_, scratch_);
  cost_.times(sequences, kv_tokens, times_);
  const auto fitting = std::span(std::as_const(budget_survivals_)).first(static_cast<std::size_t>(most));
  const row_budget chosen = budget(round, sequences, fitting);
  out.expected_tokens = chosen.expected;
  out.expected_ms = chosen.ms;
  since_plain_ = chosen.rows == sequences ? 0 : since_plain_ + 1;
  out.draft = go_on_drafting(sequences, kv_tokens);
  if (!out.draft && out.expected_ms > 0)
    out.expected_ms -= cost_.drafting_ms(sequences);
  return chosen.rows - sequences;
}

void draft_planner::plan(std::uint64_t round, std::span<const draft_candidate> candidates, draft_plan& out) {
  TROUPE_CHECK(settings_.nextn <= most_drafts, "more drafts than a round may have");
  const auto sequences = static_cast<std::int32_t>(candidates.size());
  out.round = round;
  out.total_rows = sequences;
  out.lengths.assign(candidates.size(), 0);
  out.draft = settings_.nextn > 0;
  out.expected_tokens = 0;
  out.expected_ms = 0;
  if (settings_.nextn == 0 || candidates.empty())
    return;
  const std::int64_t most = take_drafts(candidates),
                     wanted = settings_.varlen ? choose_by_confidence(round, candidates, most, out) : most;
  const auto width = static_cast<std::size_t>(settings_.nextn);
  split_survivals_.resize(candidates.size() * width);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const draft_candidate& c = candidates[i];
    const std::int32_t n = drafts_[i];
    const auto row = std::span(split_survivals_).subspan(i * width, width);
    if (settings_.varlen)
      put_survivals(c.for_split.empty() ? c.for_budget : c.for_split, n, row);
    else
      put_equal_survivals(n, row);
  }
  split_drafts(split_survivals_.data(), sequences, settings_.nextn, static_cast<std::int32_t>(wanted),
               out.lengths.data());
  out.total_rows += wanted;
}

} // namespace troupe
