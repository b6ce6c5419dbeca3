// Cost of scheduler core and KV cache without actors, model or device.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Microseconds per decode step at 16 to 1024 running sequences: the core's share (intent, want, plan, complete) and
// that of the KV cache's turn.
void bench_scheduler(const bench_settings& settings);
// A million requests of many kinds, at most 200 at a time, in a cache that is too small for those that run: requests
// per second, and how much the process's memory grew in the second half.
void bench_soak(const bench_settings& settings);

} // namespace troupe
