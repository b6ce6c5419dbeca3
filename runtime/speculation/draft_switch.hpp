// Whether the next steps draft. Where that does not pay it stops, and is tried again now and then, as often as costs a
// small share of the time (speculation.md §11: speculation must switch itself off).
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

class draft_switch {
public:
  struct prospect {
    double gain = 1;     // of drafting, by what is known (draft_outlook)
    bool can_pay = true; // if every draft were right
    double plain_ms = 0; // of a step that does not draft
    double try_ms = 0;   // that drafting adds to a step
    std::int32_t sequences = 1;
  };

  bool next(const prospect& p) {
    tries_ = false;
    if (left_ > 0) {
      --left_;
      return true;
    }
    if (on_ ? p.gain >= 1 : p.gain >= back_on)
      return on_ = true;
    on_ = false;
    saved_ms_ += try_share * p.plain_ms;
    const std::int32_t steps = (try_blocks + p.sequences - 1) / p.sequences;
    if (++waited_ < least_pause || saved_ms_ < steps * p.try_ms || !p.can_pay)
      return false;
    saved_ms_ = 0;
    waited_ = 0;
    left_ = steps - 1;
    tries_ = true;
    return true;
  }
  bool on() const { return on_; }
  bool begins_try() const { return tries_; } // the last answer does

  static constexpr double back_on = 1.03;                         // gain: what lies between it and 1 changes nothing
  static constexpr double try_share = .005;                       // of the time, for tries
  static constexpr std::int32_t try_blocks = 8, least_pause = 64; // steps

private:
  bool on_ = true, tries_ = false;
  std::int32_t left_ = 0, waited_ = 0;
  double saved_ms_ = 0;
};

} // namespace troupe
