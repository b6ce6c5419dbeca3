// What a decode step takes (speculation.md §6.4): a curve over the sizes that steps are filled up to, measured once or
// made from the first real steps, and what real steps teach about it since.
#pragma once
#include "runtime/speculation/budget.hpp"
#include "runtime/speculation/running_median.hpp"
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

// A decode step that ran. Times are milliseconds.
struct step_observation {
  std::int32_t rows = 0, sequences = 0;
  std::int64_t kv_tokens = 0; // cached positions of all its sequences
  double forward_ms = 0;      // everything but the draft round
  double sampler_ms = 0;      // the draft round
  bool drafted = true;        // it ended with one
};

// What a draft round takes, as far as was measured before any real one ran: ms for one sequence and for each further.
struct drafting_time {
  double first = 0, further = 0;
  double ms(std::int32_t sequences) const { return sequences > 0 ? first + further * (sequences - 1) : 0; }
};

// Time of a step = pace * shape[g] * curve[g] + ms_per_kv_token * kv_tokens, g = smallest size that holds it, and
// drafting_ms if it ends with a draft round. pace: how much slower the machine is at present, for all steps alike, so
// that sizes and draft rounds that ran at different times can be compared. shape[g]: the median of the steps of that
// size at an even pace. Sizes of which too few ran are as much slower or faster than the curve as those next to them.
// What sizes took is forgotten step by step once `window` others have run: the machine or the load may be another by
// now. And as shapes are medians of many more steps than pace is, both do not drift against each other meanwhile.
class step_cost {
public:
  step_cost() = default; // no curve: every draft is worth verifying
  // Sizes ascend, times are positive (see check_curve).
  explicit step_cost(std::vector<timed_size> curve, drafting_time drafting = {});
  // For an engine that could not be timed: the curve goes through the medians of the first steps of different sizes.
  // Sizes ascend.
  static step_cost untimed(std::vector<std::int32_t> sizes);

  bool known() const { return !curve_.empty(); }
  bool has_seen(std::int32_t rows) const; // enough steps of that size ran for a time of its own
  // How many of so many drafts a step should verify so that steps of different sizes teach a curve that is not known.
  std::int64_t drafts_to_learn_from(std::int64_t most) const;
  // A step that is larger than the curve or whose times are no numbers teaches nothing.
  void observe(const step_observation& o);
  // Times of all sizes for a step of so many sequences and cached positions that drafts, into `out`.
  void times(std::int32_t sequences, std::int64_t kv_tokens, std::vector<timed_size>& out) const;

  std::span<const timed_size> curve() const { return curve_; }
  // Median over the sizes of each one's median time a row beyond the curve; never negative.
  double slope() const { return slope_; }
  // The same of the change of time by change of kv_tokens between two steps of one size.
  double ms_per_kv_token() const { return kv_ms_; }
  // Of a draft round: median of the last ones of as many sequences. Where there are too few, what was measured at the
  // start, times the median of what the last ones took compared with it; or without a measurement their median.
  double sampler_ms(std::int32_t sequences) const { return drafting_.ms(sequences, at_start_); }
  // The same at the present pace.
  double drafting_ms(std::int32_t sequences) const { return pace() * even_drafting_.ms(sequences, at_start_); }
  // What a step takes longer that drafts behind several that did not: it makes up for what plain steps left undone of
  // the drafter's cache (runner_options::defers_drafter). Median of the last ones a sequence, times the sequences.
  double make_up_ms(std::int32_t sequences) const { return std::max(0.0, make_up_.median()) * sequences; }
  // Median of the newest steps' times, as multiples of what their sizes take; 1 as long as there are too few.
  double pace() const { return pace_.size() >= least_pace ? pace_.median() : 1; }
  std::uint64_t observations() const { return observed_; } // that counted

  static constexpr std::size_t window = 5000;      // newest steps that count
  static constexpr std::size_t least_samples = 10; // of one size before it counts
  static constexpr std::size_t sampler_window = 9, least_sampler = 5;
  static constexpr std::size_t even_drafting_window = 2 * least_samples - 1; // a try of costs outvotes what was before
  static constexpr std::size_t pace_window = 15, least_pace = 5;
  static constexpr std::size_t make_up_window = 5;
  static constexpr int first_steps = 24; // that an untimed engine's curve is made from

private:
  struct size_samples {
    running_median residual{window}, kv{window}, shape{window};
    std::int64_t anchor_kv = -1; // of the step that later ones are compared with; -1 = none yet
    double anchor_ms = 0;
    std::uint64_t anchored_at = 0; // observations before it
  };
  struct seen_step {
    std::uint32_t size = 0;
    bool has_kv = false; // it gave a difference
  };
  struct drafting_samples {
    explicit drafting_samples(std::size_t newest) : window(newest), all(newest), to_start(newest) {}
    std::size_t window;
    std::unordered_map<std::int32_t, running_median> of; // by sequences
    running_median all, to_start;
    void add(std::int32_t sequences, double ms, const drafting_time& start);
    double ms(std::int32_t sequences, const drafting_time& start) const;
  };
  void set_curve(std::vector<timed_size> curve);
  void learn_curve(const step_observation& o);
  void learn_drafting(const step_observation& o, double pace);
  bool learn_context(size_samples& s, const step_observation& o);
  void learn_make_up(const step_observation& o);
  bool forget(const seen_step& oldest); // whether it gave a difference
  double learn_shape(size_samples& s, double curve_ms, double ms);
  double median_of_medians(running_median size_samples::*which) const;

  std::vector<timed_size> curve_;
  std::vector<size_samples> sizes_; // [curve]
  std::vector<seen_step> recent_;   // ring [window]: the newest
  drafting_time at_start_;
  drafting_samples drafting_{sampler_window}, even_drafting_{even_drafting_window}; // as they were; at an even pace
  running_median pace_{pace_window}, make_up_{make_up_window};
  int undrafted_ = 0;                                       // steps, since one that drafted
  std::vector<std::int32_t> sizes_to_learn_;                // of an untimed engine, until its curve is there
  std::map<std::int32_t, std::vector<double>> first_times_; // by rows
  int first_seen_ = 0;
  double slope_ = 0, kv_ms_ = 0;
  std::uint64_t observed_ = 0;
};

// Why a curve cannot be used; empty if it can: sizes ascend from at least 1, times are positive numbers.
const char* curve_fault(std::span<const timed_size> curve);

// Times of all `sizes` from a few timed ones, both ascending: straight lines between the points, the outer lines
// continued. A time below that of a smaller size counts as equal to it: it was measured badly.
std::vector<timed_size> curve_through(std::span<const timed_size> points, std::span<const std::int32_t> sizes);

} // namespace troupe
