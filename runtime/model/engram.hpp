// Addresses of Engram rows (model.md §8): the primes and multipliers that a checkpoint was trained with, and the hash
// of the n-grams that end at a position. Everything here is integer arithmetic and has one right answer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

struct model_config;

// Primes of all tables, [layers][orders * heads], order-major: the first primes >= vocab_size, each used once, in that
// order. vocab_size >= 3.
std::vector<std::vector<std::int64_t>> engram_primes(std::int64_t vocab_size, int layers, int orders, int heads);

// Odd multipliers of one layer, one per position of the n-gram: numpy's default_rng(10007 * layer).integers(0, bound,
// n) * 2 + 1, bound chosen so that id * multiplier < 2^63 for every id < compressed_vocab_size.
std::vector<std::int64_t> engram_multipliers(int layer, std::int64_t compressed_vocab_size, int n);

struct engram_table {
  int layer = 0;
  std::vector<std::int64_t> multipliers; // [N]
  std::vector<std::int64_t> primes;      // [(N-1) * heads], order-major
  std::vector<std::int64_t> offsets;     // [(N-1) * heads], first row of each prime's part
  std::int64_t rows = 0;                 // sum of the primes
};

// One table per entry of engram_layer_ids.
std::vector<engram_table> engram_tables(const model_config& config);

// Compressed ids of positions t, t-1, ..., t-N+1 into context[N]; `pad` (the compressed id of engram_pad_token_id)
// stands for positions before the start and for everything at or behind the nearest image token (a negative id) on the
// way back.
void engram_context(std::span<const std::int32_t> compressed, std::int64_t t, std::int32_t pad,
                    std::span<std::int32_t> context);

// Rows of the table for one position: context[N] compressed ids, newest first -> rows[(N-1) * heads], order-major.
// The scalar definition that device operations are tested against.
void engram_hash_rows(const engram_table& table, std::span<const std::int32_t> context, std::span<std::int64_t> rows);

} // namespace troupe
