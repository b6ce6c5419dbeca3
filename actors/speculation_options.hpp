// What the options say about speculation, checked against the checkpoint.
#pragma once
#include "actors/llm.hpp"
#include <string>
#include <vector>

namespace troupe {

struct speculation_options {
  int nextn = 0;                    // drafts of one round; 0 = no speculation
  bool varlen = true;               // verification lengths by confidence
  bool rejection = false;           // accept by the rejection rule instead of comparing tokens
  std::vector<double> temperatures; // [nextn] of the confidences
  std::string note;                 // for people: what the checkpoint does not allow; empty = nothing
};

// `block`: drafts that the checkpoint was trained for, 0 without a drafter. expert_group: the engine shares experts
// with other processes. Throws config_error for values outside what the checkpoint allows and for options that would
// have no effect.
speculation_options checked_speculation(const engine_options& options, int block, bool expert_group = false);

// One number for all positions of a block, or one for each, separated by commas. Throws config_error.
std::vector<double> confidence_temperatures(const std::string& text, int nextn);

} // namespace troupe
