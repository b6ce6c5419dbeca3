// Cost of the control path: gateway, scheduler, KV manager, executor and sessions with real messages, over a step
// engine that computes nothing.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Microseconds per step from the scheduler's plan to its next one, at 1, 16 and 64 running sequences that decode.
void bench_control(const bench_settings& settings);

// Microseconds that a device of known speed waits between two decode steps, with one and with two steps out.
void bench_idle(const bench_settings& settings);

} // namespace troupe
