// What one step costs apart from the model: front, scheduler, executor and back, with an engine that computes nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace troupe {

struct control_path_figures {
  int steps = 0;
  int sequences = 0;  // decoding together
  double mean_us = 0; // per step, from the start of one step to the start of the next
  double p50_us = 0, p99_us = 0;
};

// Runs `steps` decode steps of `sequences` requests through the whole engine; tokenizer_file: any tokenizer.json.
control_path_figures measure_control_path(const std::string& tokenizer_file, int sequences, int steps);

// Mixed requests, at most 200 branches at a time, through the whole engine over a device that throws dice. Calls look
// when a tenth of them, when half of them and when all have ended and nothing is under way: the process is in the same
// state each time.
struct soak_figures {
  std::uint64_t branches = 0, aborts = 0; // that ended; that were asked for
};
soak_figures soak_process(const std::string& tokenizer_file, std::uint64_t requests, const std::function<void()>& look);

// How long a device waits between two decode steps: from the end of one to the begin of the next.
struct idle_figures {
  int gaps = 0;
  double mean_us = 0, p50_us = 0, p99_us = 0;
};

// As above, over a device of known speed: a thread that is busy for `step_us` with every step. nextn: drafts of each
// sequence, of which the first two are right; 0 = none. async: two steps are out.
idle_figures measure_idle_gap(const std::string& tokenizer_file, int sequences, int nextn, int steps, int step_us,
                              bool async);

} // namespace troupe
