// The sampler: one row of logits to one token (exactness.md §4-5). A pure function of its arguments, in integers and
// binary64, so it serves every device: drafts, targets, replays and scoring all call it.
#pragma once
#include "kernels/plain/sample.hpp"
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

// Token ids outside [0, V) in the lists below are ignored.
struct sample_args {
  std::span<const float> logits{}; // [V], the model's own
  float temperature = 1;           // >= 0; below 1e-5 argmax
  float top_p = 1;                 // (0, 1], 1 = off
  std::int32_t top_k = -1;         // >= 1, otherwise off
  float min_p = 0;                 // [0, 1], 0 = off
  std::uint64_t seed = 0;
  std::uint64_t position = 0;                                   // of the token to draw, zero-based in prompt + output
  std::span<const std::pair<std::int32_t, float>> logit_bias{}; // distinct ids
  std::span<const std::int32_t> blacklist{};                    // never drawn
  std::span<const std::uint32_t> mask{};                        // bit i % 32 of word i / 32 allows id i; empty = all
  std::span<const std::int32_t> suppressed{}; // masked too, unless that would leave nothing (EOS and stop ids)
  std::int32_t forced = -1;                   // >= 0: the token, whatever the row says
  bool logprob = true;                        // compute sample_result::logprob
  bool processed = false;                     // log-probabilities of what was drawn from, not of the model's own row
  std::int32_t top_logprobs = 0;              // entries wanted in the top list
};

// For people, without a full stop; nullptr for ok.
const char* describe(sample_status s);

// Working memory for rows of up to `vocab` logits; one per thread.
struct sample_scratch {
  explicit sample_scratch(std::size_t vocab) : row(vocab), keys(vocab) {}
  std::vector<float> row;
  std::vector<std::uint64_t> keys;
};

// top: receives [id, log-probability], larger first, equal ones by id. Allocates nothing.
sample_result sample_row(const sample_args& a, sample_scratch& scratch,
                         std::span<std::pair<std::int32_t, float>> top = {});

// The same for a row of an operation: forced below vocab, lists in range, scratch of at least its vocab.
sample_result sample_row(const plain::sample_view& v, sample_scratch& scratch,
                         std::span<std::pair<std::int32_t, float>> top);

// The distribution that sample_row draws from, as integers: MASS of kept ids, 0 elsewhere (greedy: 2^44 at the argmax).
// weights: [V]. For the rejection rule (runtime/speculation/verify.hpp).
sample_status kept_weights(const sample_args& a, sample_scratch& scratch, std::span<std::uint64_t> weights);

// Raw log-probability of `token` under softmax(logits), as prompt log-probabilities need it; -9999 is the floor.
sample_result row_logprob(std::span<const float> logits, std::int32_t token);

} // namespace troupe
