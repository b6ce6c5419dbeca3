// What one step costs apart from the model: front, scheduler, executor and back, with an engine that computes nothing.
#pragma once
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

} // namespace troupe
