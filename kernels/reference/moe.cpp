#include "kernels/reference/moe.hpp"

#include "kernels/plain/moe.hpp"
#include "kernels/reference/alone.hpp"
#include "kernels/reference/weights.hpp"

namespace troupe::reference {

TROUPE_FMA_CLONES
void route(const route_args& a, int begin, int end, std::span<float> scratch) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::route_row(t, a, i, scratch.data());
}

void count_routed(const route_args& a) {
  if (!a.counts)
    return;
  for (std::int64_t at = 0; at < std::int64_t{a.rows} * a.k; ++at)
    if (const std::int32_t expert = a.expert.raw()[at]; expert >= 0)
      ++a.counts.raw()[expert];
}

TROUPE_FMA_CLONES
void swiglu_row(const float* gate, const float* up, std::int64_t n, float limit, float* out) {
  for (std::int64_t c = 0; c < n; ++c)
    out[c] = plain::swiglu_value(gate[c], up[c], limit);
}

void swiglu(const swiglu_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const std::int64_t at = std::int64_t{i} * a.cols;
    swiglu_row(a.gate.raw() + at, a.up.raw() + at, a.cols, a.limit, a.out.raw() + at);
  }
}

TROUPE_FMA_CLONES
void experts(const experts_args& a, int begin, int end, std::span<float> scratch) {
  const auto& set = static_cast<const reference_expert_set&>(*a.set);
  const std::int64_t hidden = set.hidden, inner = set.intermediate;
  float *gate = scratch.data(), *up = gate + inner;
  alone t;
  for (std::int64_t at = std::int64_t{begin} * a.k; at < std::int64_t{end} * a.k; ++at) {
    const std::int32_t slot = plain::expert_slot(a, at);
    if (slot < 0)
      continue;
    const reference_expert& e = set.experts[static_cast<std::size_t>(slot)];
    const float* x = a.x.raw() + at / a.k * hidden;
    product(x, e.w1.w.data(), hidden, inner, inner, gate);
    product(x, e.w3.w.data(), hidden, inner, inner, up);
    plain::expert_inner(t, gate, up, inner, a.limit, a.weight.raw()[at], a.round_inner);
    product(gate, e.w2.w.data(), inner, hidden, hidden, a.y.raw() + at * hidden);
  }
}

void combine(const combine_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::combine_row(t, a, i);
}

} // namespace troupe::reference
