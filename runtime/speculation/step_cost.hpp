// What a decode step takes (speculation.md §6.4): a curve over the sizes that steps are filled up to, measured once,
// and what real steps teach about it since.
#pragma once
#include "runtime/speculation/budget.hpp"
#include "runtime/speculation/running_median.hpp"
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

// A decode step that ran. Times are milliseconds.
struct step_observation {
  std::int32_t rows = 0, sequences = 0;
  std::int64_t kv_tokens = 0; // cached positions of all its sequences
  double forward_ms = 0;      // backbone
  double sampler_ms = 0;      // verification and drafting
  bool drafted = true;        // it ended with a draft round
};

// What a draft round takes, as far as was measured before any real one ran: ms for one sequence and for each further.
struct drafting_time {
  double first = 0, further = 0;
  double ms(std::int32_t sequences) const { return sequences > 0 ? first + further * (sequences - 1) : 0; }
};

// Time of a step = curve[g] + slope * g + ms_per_kv_token * kv_tokens + sampler_ms, g = smallest size that holds it.
class step_cost {
public:
  step_cost() = default; // no curve: every draft is worth verifying
  // Sizes ascend, times are positive (see check_curve).
  explicit step_cost(std::vector<timed_size> curve, drafting_time drafting = {});

  bool known() const { return !curve_.empty(); }
  // A step that is larger than the curve or whose times are no numbers teaches nothing.
  void observe(const step_observation& o);
  // Times of all sizes for a step of so many sequences and cached positions, into `out`.
  void times(std::int32_t sequences, std::int64_t kv_tokens, std::vector<timed_size>& out) const;

  std::span<const timed_size> curve() const { return curve_; }
  // Median over the sizes of each one's median time a row beyond the curve; never negative.
  double slope() const { return slope_; }
  // The same of the change of time by change of kv_tokens between two steps of one size.
  double ms_per_kv_token() const { return kv_ms_; }
  // Median of the last steps of as many sequences; where there are too few, of the last steps; else as measured at the
  // start.
  double sampler_ms(std::int32_t sequences) const;
  // Of a step's time as one number, the part that its draft round took: what was measured at the start.
  double drafting_part(std::int32_t sequences) const { return at_start_.ms(sequences); }
  // What a step of so many sequences saves if it does not draft; as measured at the start until steps of both kinds
  // ran.
  double drafting_ms(std::int32_t sequences) const;
  std::uint64_t observations() const { return observed_; } // that counted

  static constexpr std::size_t window = 5000;      // newest steps that slope is made from
  static constexpr std::size_t least_samples = 10; // of one size before it counts
  static constexpr std::size_t sampler_window = 9, least_sampler = 5;
  static constexpr std::size_t kv_window = 64; // differences of one size

private:
  struct size_samples {
    running_median residual{window}, kv{kv_window};
    std::int64_t anchor_kv = -1; // of the step that later ones are compared with; -1 = none yet
    double anchor_ms = 0;
  };
  struct sampler_samples { // of steps with, or without, a draft round
    std::unordered_map<std::int32_t, running_median> by_sequences;
    running_median all{sampler_window};
    void add(std::int32_t sequences, double ms);
    double ms(std::int32_t sequences) const;
  };
  void learn_context(size_samples& s, const step_observation& o);
  double median_of_medians(running_median size_samples::*which) const;

  std::vector<timed_size> curve_;
  std::vector<size_samples> sizes_;   // [curve]
  std::vector<std::uint32_t> recent_; // ring [window]: sizes of the newest steps
  drafting_time at_start_;
  sampler_samples drafting_, plain_;
  double slope_ = 0, kv_ms_ = 0;
  std::uint64_t observed_ = 0;
};

// Why a curve cannot be used; empty if it can: sizes ascend from at least 1, times are positive numbers.
const char* curve_fault(std::span<const timed_size> curve);

// Times of all `sizes` from a few timed ones, both ascending: straight lines between the points, the outer lines
// continued. A time below that of a smaller size counts as equal to it: it was measured badly.
std::vector<timed_size> curve_through(std::span<const timed_size> points, std::span<const std::int32_t> sizes);

} // namespace troupe
