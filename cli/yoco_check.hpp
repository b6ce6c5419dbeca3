// The equalities that yoco modes promise (exactness.md §7), looked for on given prompts.
#pragma once
#include "actors/llm.hpp"
#include <vector>

namespace troupe {

// Runs the prompts and 16 greedy tokens after each with every mode: mask and compact, then exact and off, must give
// equal tokens and log-probabilities (the 1,000 highest of every step), bit for bit. Says on the log what differs;
// returns the exit code. `prompts` have ids; engine options but for yoco apply.
int check_yoco(const engine_options& engine, const std::vector<generation_request>& prompts);

} // namespace troupe
