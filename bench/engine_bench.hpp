// Speed and memory of a whole engine through the public API.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Tokens per second of greedy decoding at 1, 4 and 16 streams without speculation, the share of the machine's limit
// that one stream reaches, memory of the process against the model file, time from process start to the end of a run of
// one token.
void bench_decode(const bench_settings& settings);
// Tokens per second of prompts of several lengths.
void bench_prefill(const bench_settings& settings);
// Time to the first token of prompts with yoco off, compact and exact in turn; the share that is saved, and the share
// that the rows left out have of the products (determinism_yoco.md A7).
void bench_replay(const bench_settings& settings);

} // namespace troupe
