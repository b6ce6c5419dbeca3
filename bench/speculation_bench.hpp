// Cost of planning verification lengths, without model or device.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Microseconds to choose a budget and split it, at 1 to 256 sequences of 5 drafts, on one core; and what a plan of the
// group's verifier takes for 8 engines.
void bench_speculation(const bench_settings& settings);

} // namespace troupe
