// The step-cost curve that an engine starts with (speculation.md §6.4): from its file, or from steps timed now.
#pragma once
#include "runtime/speculation/cost_file.hpp"
#include <functional>
#include <string>
#include <vector>

namespace troupe {

struct starting_curve {
  std::vector<timed_size> curve;  // of all sizes; empty if there are none, or not even two could be timed
  std::vector<std::string> notes; // for people: where it comes from, what was wrong with the file
};

// Runs a decode step of so many rows and gives its time in ms; not positive: it cannot be timed.
using step_timer = std::function<double(std::int32_t rows)>;

// `file` empty: none. A file that is missing, is old at `now` (unix seconds) or does not fit is measured anew and
// written; one that cannot be written is a note. Timed are the smallest size and the largest of up to 16 rows, then
// those of 4, 2 and 8 rows, then ever larger ones, then those in the middle of what is not known yet; each once to warm
// up and twice to count. No step begins when `most_ms` are spent. Beyond the largest one timed the curve goes on as a
// line.
starting_curve make_starting_curve(const std::string& file, const cost_key& key, const step_timer& time_step,
                                   std::int64_t now, double most_ms = 60);

} // namespace troupe
