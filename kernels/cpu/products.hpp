// Matrix products and routed experts of the cpu device. The instruction set is chosen at run time; the bits are those
// of kernels/reference with every one of them.
#pragma once
#include "kernels/cpu/panels.hpp"
#include "kernels/ops.hpp"
#include <cstdint>
#include <span>

namespace troupe::cpu {

// Outputs [first, last) of rows [begin, end); a.w is a panel_weight.
void linear(const linear_args& a, std::int64_t first, std::int64_t last, int begin, int end);

// Rows of x (one routed row each) of one expert: inner[r][c] = act(w1 x, w3 x)[c] * weight[r], for channels [first,
// last). first is a multiple of inner_step; last too, or the number of channels.
constexpr std::int64_t inner_step = 64;
struct expert_inner_job {
  const panel_expert* expert = nullptr;
  std::int64_t intermediate = 0;
  std::int64_t first = 0, last = 0;
  int rows = 0;
  const float* const* x = nullptr;
  const float* const* weight = nullptr; // address of each row's weight
  float* const* inner = nullptr;
  float limit = 0;
  bool round = false; // onto fp8_ue8m0_32, blocks of 32 channels
};
void expert_inner(const expert_inner_job& job);

// Asks memory for the beginning of what a product from output `first` on will read; the product itself asks further on.
void ask_ahead(const panel_view& w, std::int64_t first);

// out[r][o] = w[o, :] . x[r] for outputs [first, last).
void product(const panel_view& w, std::int64_t first, std::int64_t last, int rows, const float* const* x,
             float* const* out);

} // namespace troupe::cpu
