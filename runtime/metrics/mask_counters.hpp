// What the masks of constrained sequences cost.
#pragma once
#include "runtime/metrics/histogram.hpp"
#include <array>
#include <cstdint>

namespace troupe {

namespace bounds {
inline constexpr std::array mask{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1,  0.5,  1.0};
} // namespace bounds

// Counters only grow. Of the masks of one sequence in one step, those behind its drafts included.
struct mask_counters {
  std::uint64_t in_time = 0, late = 0; // late: more work than a step has for them, made beside the steps
  histogram<bounds::mask> fill_time;   // seconds of each making; late ones count twice, up to the limit and whole

  bool operator==(const mask_counters&) const = default;
};

} // namespace troupe
