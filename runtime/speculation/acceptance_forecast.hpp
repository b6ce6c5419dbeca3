// What confidences are worth where they are used. Budgets are chosen by those of round N-2 (speculation.md §6.2): they
// say little of the drafts of round N-1 where a text changes from block to block, and a drafter may be too sure of
// itself. How often verified drafts were right shows how much of them to believe.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class acceptance_forecast {
public:
  explicit acceptance_forecast(std::int32_t nextn) : positions_(static_cast<std::size_t>(nextn)) {}

  // A step verified so many drafts of a sequence. `before`: the confidences by which its budget was chosen; empty =
  // there were none.
  void observe(std::span<const float> before, std::int32_t verified, std::int32_t accepted);

  // Survivals of drafts, from the first one on, made of known confidences or of none (1 each); in their place come the
  // shares of such drafts that were accepted with all before them. Never rising; the same as long as nothing was
  // observed.
  void correct(std::span<float> survivals, bool known) const;

  // Bins count half: it is long ago that many outcomes came, and the text may be another by now.
  void forget_half() {
    for (position& p : positions_)
      make_bins_lighter(p, .5);
  }

  static constexpr double window = 256; // newest outcomes of a position that count for its line, about
  static constexpr double prior = 8;    // outcomes that survivals are believed for at first
  // Where acceptance does not follow a line, the outcomes of survivals alike say more: in a text that repeats itself
  // the surest drafts of one block may foretell that those of the next fail (bench/README.md).
  static constexpr std::size_t bins = 16;
  static constexpr double bin_window = 512; // newest outcomes of a position that count in its bins, about
  static constexpr double bin_prior = 8;    // a bin counts from so many on, beside as many as the line says

private:
  // Sums over outcomes, older ones with less weight: survival foretold (x), whether it came true (y).
  struct position {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    double all = 0, all_y = 0; // those without a foretold survival too
    // The line through them, worked out when it is asked for: a step brings many outcomes.
    mutable float slope = 1, offset = 0;
    mutable bool fitted = true;
    // Outcomes by survival foretold. Instead of older ones becoming lighter, newer ones become heavier.
    std::array<double, bins> bin_n{}, bin_y{};
    double bin_weight = 1;
  };
  static std::size_t bin_of(double survival) { // in [0, 1]
    return std::min(bins - 1, static_cast<std::size_t>(survival * static_cast<double>(bins)));
  }
  static void make_bins_lighter(position& p, double by);
  static void fit(const position& p);
  // The more outcomes there are, the fewer the prior stands for.
  static double prior_beside(double outcomes) { return prior * prior / (prior + outcomes); }

  std::vector<position> positions_;
};

} // namespace troupe
