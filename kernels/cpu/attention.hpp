// Attention and index scores of the cpu device, with the bits of kernels/reference.
#pragma once
#include "kernels/ops.hpp"
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cpu {

// Rows whose windows are decoded together.
inline constexpr int attention_tile = 16;

// Floats of scratch for any part of the rows.
std::size_t attention_scratch(const attention_args& a);
// Heads are computed in groups of 16.
int head_groups(const attention_args& a);
// Rows [begin, end) of the step and groups [first_group, last_group) of heads. Neighbouring rows of a sequence share
// the decoded keys of their windows.
void attention(const attention_args& a, int begin, int end, int first_group, int last_group, std::span<float> scratch);

// Keys are computed in groups; units of work below.
inline constexpr int index_keys = 32, index_tile = 16;
std::size_t index_scores_scratch(const index_scores_args& a);
// Rows [begin, end) counted from a.first, at most index_tile of them; scores of keys [first_key, last_key) where
// visible. first_key is a multiple of index_keys.
void index_scores(const index_scores_args& a, int begin, int end, std::int64_t first_key, std::int64_t last_key,
                  std::span<float> scratch);

} // namespace troupe::cpu
