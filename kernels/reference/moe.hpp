// Mixture of experts: routing, activation, routed experts, combination (model.md §7). Rows [begin, end).
#pragma once
#include "kernels/ops.hpp"
#include <cstddef>
#include <span>

namespace troupe::reference {

constexpr std::size_t route_scratch(const route_args& a) {
  return 2 * static_cast<std::size_t>(a.experts);
} // floats
void route(const route_args& a, int begin, int end, std::span<float> scratch); // k <= experts
void count_routed(const route_args& a);                                        // after route of all rows

void swiglu(const swiglu_args& a, int begin, int end);
// out[c] = silu(min(gate[c], limit)) * clamp(up[c], -limit, limit); no clamping with limit <= 0. out may be gate.
void swiglu_row(const float* gate, const float* up, std::int64_t n, float limit, float* out);

constexpr std::size_t experts_scratch(const experts_args& a) { // floats
  return 2 * static_cast<std::size_t>(a.set->intermediate);
}
void experts(const experts_args& a, int begin, int end, std::span<float> scratch); // set must be a reference_expert_set

void combine(const combine_args& a, int begin, int end);

} // namespace troupe::reference
