// What carries steps and bulk bytes between processes: the step board and link, rings in shared memory, ZeroMQ links;
// each beside a plain peer that does the least that could be done instead, in the same run.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Steps to 8 processes and back, small records to one process and back (us); frames of 4 MiB from process to process
// (10^6 bytes a second). Starts processes of its own.
void bench_transport(const bench_settings& settings);

} // namespace troupe
