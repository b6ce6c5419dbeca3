// Drafting costs time even where no draft is worth verifying: after a few such rounds it pauses, and tries again after
// ever longer pauses, or when far fewer sequences are left (speculation.md §11: speculation must switch itself off).
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

class draft_switch {
public:
  // Whether the next rounds draft, after one in which drafts were worth verifying or not. `none`:
  // there was nothing to judge.
  enum class verdict : std::uint8_t { worth, not_worth, none };
  bool next(verdict v, std::int32_t sequences = 1) {
    if (paused_ > 0 && 2 * sequences <= paused_at_) {
      paused_ = 0;
      pause_ = first_pause;
      return true;
    }
    if (paused_ > 0)
      return --paused_ == 0;
    if (v == verdict::worth) {
      vain_ = 0;
      pause_ = first_pause;
    } else if (v == verdict::not_worth && ++vain_ >= patience) {
      vain_ = 0;
      paused_ = pause_;
      paused_at_ = sequences;
      pause_ = std::min(2 * pause_, longest_pause);
    }
    return paused_ == 0;
  }
  bool on() const { return paused_ == 0; }

  static constexpr std::int32_t patience = 4, first_pause = 64, longest_pause = 4096; // rounds

private:
  std::int32_t vain_ = 0, paused_ = 0, paused_at_ = 0, pause_ = first_pause;
};

} // namespace troupe
