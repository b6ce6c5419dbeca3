// How many drafts each sequence verifies in a decode step (speculation.md §6). Plans change speed, never tokens or, by
// rejection, never their law.
//
// An engine owns one planner. Before each decode step: plan(); after it: observe(). The verifier's advice, where an
// engine has one, replaces the engine's own choice of the number of rows (advise()).
#pragma once
#include "runtime/speculation/acceptance_forecast.hpp"
#include "runtime/speculation/budget.hpp"
#include "runtime/speculation/draft_outlook.hpp"
#include "runtime/speculation/draft_switch.hpp"
#include "runtime/speculation/realised_gain.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// What is known about one decoding sequence when its step is planned. Confidences: raw, in [0, 1], one for each draft;
// empty = none are known (confidence_history keeps them).
struct draft_candidate {
  std::int32_t drafts = 0;             // that the step could verify: at hand, or on the device when a step is still out
  std::int64_t kv_tokens = 0;          // positions in its cache
  std::span<const float> for_budget{}; // of round N-2: they decide how many rows the step has
  std::span<const float> for_split{};  // of round N-1: they decide whose drafts these are
};

struct draft_plan {
  std::uint64_t round = 0;
  std::int64_t total_rows = 0; // rows of the step: one per sequence and one per verified draft
  std::vector<std::int32_t>
      lengths;               // [sequences] drafts to verify, each <= its candidate's; sum = total_rows - sequences
  bool draft = false;        // whether the step should end with a draft round
  float expected_tokens = 0; // that the step emits; 0 where nothing is predicted
  double expected_ms = 0;
};

// The verifier's choice for an engine (message spec_plan).
struct draft_advice {
  std::uint64_t round = 0;    // that it was made for
  std::int32_t sequences = 0; // of that round
  std::int64_t total_rows = 0;
};

// Advice counts for its own round and the one after; older ones are replaced by the local rule (cluster.md §3.3).
inline bool plan_is_current(std::uint64_t advised_round, std::uint64_t round) {
  return advised_round + 2 > round && advised_round <= round;
}

struct planner_settings {
  std::int32_t nextn = 0;       // drafts of one round; 0 = no speculation
  bool varlen = true;           // lengths by confidence; false: all drafts, always
  std::int32_t most_rows = 512; // of one step; every sequence has a row whatever this says
};

class draft_planner {
public:
  explicit draft_planner(const planner_settings& settings, step_cost cost = {})
      : settings_(settings), cost_(std::move(cost)), forecast_(settings.nextn), outlook_(settings.nextn) {}

  // `out` is overwritten, its memory reused.
  void plan(std::uint64_t round, std::span<const draft_candidate> candidates, draft_plan& out);
  // Whether a prompt's last step drafts, when so many sequences run.
  bool drafts_behind_prompt(std::int32_t sequences, std::int64_t kv_tokens);
  void advise(const draft_advice& a) { advice_ = a; }
  // A step that ran, what its plan expected, and the tokens that it emitted. Plans of tries take confidences as they
  // are.
  void observe(const step_observation& o, double expected_tokens, double expected_ms, double emitted) {
    cost_.observe(o);
    if (switch_.on() && (o.drafted || o.rows > o.sequences))
      realised_.observe(o.sequences, expected_tokens, expected_ms, emitted, o.forward_ms + o.sampler_ms);
  }
  // What became of the drafts of one sequence; `before` as in acceptance_forecast.
  void observe(std::span<const float> before, std::int32_t verified, std::int32_t accepted) {
    forecast_.observe(before, verified, accepted);
  }

  const step_cost& cost() const { return cost_; }
  const planner_settings& settings() const { return settings_; }
  // Of the candidates of the last plan, descending, as far as they are to be believed: what the verifier wants to know
  // (spec_load). Round N-2.
  std::span<const float> survivals() const { return budget_survivals_; }

private:
  std::int64_t take_drafts(std::span<const draft_candidate> candidates);
  std::int64_t choose_by_confidence(std::uint64_t round, std::span<const draft_candidate> candidates, std::int64_t most,
                                    draft_plan& out);
  row_budget budget(std::uint64_t round, std::int32_t sequences, std::span<const float> survivals) const;
  std::size_t most_timed_drafts(std::int32_t sequences) const;
  double step_ms(std::int32_t rows) const; // drafting, and with as many as a step may have at most
  double hope_beyond(std::int32_t sequences, std::int64_t kv_tokens, double foretold);
  void price(const draft_outlook::prospect& p, double drafting_ms);
  bool pauses_for_a_plain_step(std::int32_t sequences) const;
  bool go_on_drafting(std::int32_t sequences, std::int64_t kv_tokens);

  planner_settings settings_;
  step_cost cost_;
  draft_advice advice_;
  acceptance_forecast forecast_;
  draft_outlook outlook_;
  realised_gain realised_;
  draft_switch switch_;
  draft_switch::prospect prospect_;                // as of the last look
  std::uint64_t looked_at_ = ~std::uint64_t{0};    // blocks at that time; at first: never
  std::int32_t in_try_ = draft_switch::try_blocks; // blocks that a step of a try verifies
  std::int32_t since_look_ = 0, since_plain_ = 0;  // plans, the latter since one without drafts
  std::vector<float> budget_survivals_, split_survivals_, scratch_;
  std::vector<std::int32_t> drafts_; // of each candidate, that may be verified
  std::vector<timed_size> times_;
};

} // namespace troupe
