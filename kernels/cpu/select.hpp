// Choosing the best by score (model.md §5.3, §7) without repeated passes; the choice is that of kernels/reference.
#pragma once
#include "kernels/ops.hpp"
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cpu {

// Rows [begin, end); scratch: one word per competitor, at least scratch_words().
std::size_t candidates_scratch(const candidate_args& a, int begin, int end);
void candidates(const candidate_args& a, int begin, int end, std::span<std::uint32_t> scratch);
std::size_t select_scratch(const select_args& a, int begin, int end);
void select(const select_args& a, int begin, int end, std::span<std::uint32_t> scratch);
// scratch: 2 floats per expert.
void route(const route_args& a, int begin, int end, std::span<float> scratch);

} // namespace troupe::cpu
