// How much of what was foretold of drafting came true: series of drafting steps brought 10 to 15 % less than was
// foretold where several sequences ran (bench/README.md), as much as drafting gains where it gains little.
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

class realised_gain {
public:
  // Of a step that drafted or verified drafts: tokens that it emitted and ms that it took, and what its plan expected.
  void observe(std::int32_t sequences, double expected_tokens, double expected_ms, double tokens, double ms) {
    if (!(expected_tokens > 0 && expected_ms > 0 && ms > 0))
      return;
    fade(std::max(1 - sequences / window, .5));
    blocks_ += sequences;
    expected_tokens_ += expected_tokens;
    expected_ms_ += expected_ms;
    tokens_ += tokens;
    ms_ += std::clamp(ms, expected_ms / most_off, expected_ms * most_off);
  }
  // What was seen says less of what comes: a text may be another by now.
  void forget_half() { fade(.5); }

  // Tokens per ms that come, as a multiple of those foretold; 1 as long as nothing was observed.
  double factor(std::int32_t sequences) const {
    if (!(blocks_ > 0))
      return 1;
    const double ratio = tokens_ / expected_tokens_ * expected_ms_ / ms_;
    return std::clamp(1 + (1 - 1.0 / sequences) * blocks_ / (blocks_ + prior) * (ratio - 1), .5, 1.0);
  }

  static constexpr double window = 1024; // newest blocks that count, about
  static constexpr double prior = 128;   // blocks that would have come as foretold
  static constexpr double most_off = 2;  // a step counts at most so many times as long, or as short, as foretold

private:
  void fade(double keep) {
    for (double* sum : {&blocks_, &expected_tokens_, &expected_ms_, &tokens_, &ms_})
      *sum *= keep;
  }

  double blocks_ = 0, expected_tokens_ = 0, expected_ms_ = 0, tokens_ = 0, ms_ = 0;
};

} // namespace troupe
