// Expert layers shared by two ranks: how much of what the links take is hidden behind computing.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Two ranks of one process, linked as processes are (rings in shared memory, threads of their own), compute expert
// layers of the model at the same time, over links that take no time and over links that take 200 us; with 1, 2 and 4
// waves.
void bench_experts(const bench_settings& settings);

} // namespace troupe
