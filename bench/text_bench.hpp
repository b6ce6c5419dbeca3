// Speed of the model's tokenizer on texts that are made on the spot; bench/tokenizer_bench.hpp measures files.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// MB per second and core of encoding English-like text and code, of streaming decoding, and milliseconds of loading.
void bench_text(const bench_settings& settings);

} // namespace troupe
