// Whether the next steps draft. Where that does not pay it stops, and is tried again now and then, as often as costs a
// small share of the time (speculation.md §11: speculation must switch itself off). What pays saves up for tries too: a
// text may be hard for a while only. And at first two come soon, for what was measured at the start may be wrong. What
// drafts cost is seen only where they are verified: once in a long while all are, whatever that is believed to take.
#pragma once
#include "runtime/speculation/step_cost.hpp"
#include <algorithm>
#include <cstdint>
#include <utility>

namespace troupe {

class draft_switch {
public:
  struct prospect {
    double gain = 1;     // of drafting, by what is known (draft_outlook)
    double hope = 0;     // how much more it may be, as long as little is known
    bool can_pay = true; // if every draft were right
    double plain_ms = 0; // of a step that does not draft
    double try_ms = 0;   // that a step of a try loses
    double whole_ms = 0; // that a step takes longer if it drafts and verifies every draft
    std::int32_t sequences = 1;
  };

  bool next(const prospect& p) {
    tries_ = false;
    if (left_ > 0) {
      --left_;
      return true;
    }
    verifies_all_ = false;
    const std::int32_t steps = try_steps(p.sequences);
    if (pays(p)) {
      waited_ = 0;
      const double gained = p.gain < 1 ? p.gain - 1 : share_on;
      saved_ms_ =
          std::clamp(saved_ms_ + gained * p.plain_ms, -most_owed * steps * p.try_ms, most_saved * steps * p.try_ms);
      return on_ = true;
    }
    on_ = false;
    if (std::exchange(first_, false))
      saved_ms_ = first_tries * steps * p.try_ms;
    saved_ms_ += try_share * p.plain_ms;
    saved_for_costs_ms_ += cost_share * p.plain_ms;
    if (++waited_ < least_pause)
      return false;
    if (p.can_pay && saved_ms_ >= steps * p.try_ms) {
      saved_ms_ = std::min(saved_ms_ - steps * p.try_ms, most_saved * steps * p.try_ms);
      return begin(steps);
    }
    if (saved_for_costs_ms_ < cost_steps * p.whole_ms)
      return false;
    saved_for_costs_ms_ = 0;
    verifies_all_ = true;
    return begin(cost_steps);
  }
  // Whether drafting does, by what is known and hoped for. What is hoped for is paid for: it ends where a try's worth
  // is owed, and counts again when nothing is.
  bool pays(const prospect& p) const {
    const double least = on_ ? -most_owed * try_steps(p.sequences) * p.try_ms : 0;
    return p.gain + (saved_ms_ > least || !(p.try_ms > 0) ? p.hope : 0) >= least_gain();
  }
  bool on() const { return on_; }
  double least_gain() const { return on_ ? 1 : back_on; } // with which it is on
  bool begins_try() const { return tries_; }              // the last answer does
  static std::int32_t try_steps(std::int32_t sequences) { return (try_blocks + sequences - 1) / sequences; }
  bool verifies_all() const { return verifies_all_; } // of the drafts that the last answer asks for

  static constexpr double back_on = 1.02;    // gain: what lies between it and 1 changes nothing
  static constexpr double try_share = .005;  // of the time, for tries
  static constexpr double cost_share = .001; // likewise, where all drafts are verified
  static constexpr double share_on = .02, most_saved = 4, most_owed = 1; // while drafting pays; tries
  static constexpr int first_tries = 2;                                  // that need not be saved for
  static constexpr std::int32_t try_blocks = 8, least_pause = 64;        // steps
  static constexpr auto cost_steps = static_cast<std::int32_t>(step_cost::least_samples);

private:
  bool begin(std::int32_t steps) {
    waited_ = 0;
    left_ = steps - 1;
    return tries_ = true;
  }

  bool on_ = true, tries_ = false, first_ = true, verifies_all_ = false;
  std::int32_t left_ = 0, waited_ = 0;
  double saved_ms_ = 0, saved_for_costs_ms_ = 0;
};

} // namespace troupe
