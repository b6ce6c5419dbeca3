// What the machine can do at best, measured: the roof that speeds are compared with.
#pragma once
#include <cstddef>
#include <string>

namespace troupe {

// Reading: bytes per second of `threads` threads that sum a block of `bytes`, each its own part, over and over.
double read_bandwidth(int threads, std::size_t bytes, double seconds);
// Computing: fp32 multiply-adds per second of `threads` threads, from registers, at the widest vectors the processor
// has.
double multiply_add_peak(int threads, double seconds);

// What one token costs without its context: weights read and multiply-adds. Counts routed experts by the share that is
// active; leaves out the drafter, norms and table rows.
struct token_work {
  double weight_bytes = 0, multiply_adds = 0;
  // Parts of multiply_adds: the head; the consumer layers, of which the compressed KV of their first one is made of all
  // rows whatever yoco says.
  double head = 0, consumers = 0, shared_kv = 0;
};
token_work work_of_token(const std::string& model_folder);
std::size_t model_bytes(const std::string& model_folder); // of all weight files

} // namespace troupe
