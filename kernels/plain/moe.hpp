// Mixture of experts: routing, activation, the step between an expert's products, combination (model.md §7).
#pragma once
#include "kernels/plain/index.hpp"
#include "kernels/plain/rows.hpp"

namespace troupe::plain {

// A row behind the live ones goes to no expert; true if row i is one.
template <class Team> TROUPE_PLAIN bool route_nowhere(Team& t, const route_args& a, std::int64_t i) {
  if (!a.live || i < *a.live.raw())
    return false;
  for (int j = t.rank(); j < a.k; j += t.size()) {
    a.expert.raw()[i * a.k + j] = -1;
    a.weight.raw()[i * a.k + j] = 0;
  }
  return true;
}

// scratch: 2 * experts floats of this row's own. k <= experts.
template <class Team> TROUPE_PLAIN void route_row(Team& t, const route_args& a, std::int64_t i, float* scratch) {
  if (route_nowhere(t, a, i))
    return;
  float *s = scratch, *biased = s + a.experts;
  const float *logits = a.logits.raw() + i * a.experts, *bias = a.bias.raw();
  std::int32_t* expert = a.expert.raw() + i * a.k;
  float* weight = a.weight.raw() + i * a.k;
  for (int e = t.rank(); e < a.experts; e += t.size()) {
    s[e] = root(softplus_f32(logits[e]));
    biased[e] = s[e] + bias[e];
  }
  t.sync();
  // each pass takes the best expert behind the one before; a key holds the score's order and then the smaller index
  std::uint64_t last = ~std::uint64_t{0};
  for (int j = 0; j < a.k; ++j) {
    std::uint64_t best = 0;
    for (int e = t.rank(); e < a.experts; e += t.size()) {
      const std::uint64_t key = std::uint64_t{order_key(biased[e])} << 32 | (0xffffffffu - static_cast<unsigned>(e));
      if (key < last && key > best)
        best = key;
    }
    last = t.largest(best);
    if (t.rank() == 0)
      expert[j] = static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(last));
  }
  t.sync();
  float sum = 0; // by every member for itself
  for (int j = 0; j < a.k; ++j)
    sum = sum + s[expert[j]];
  for (int j = t.rank(); j < a.k; j += t.size())
    weight[j] = s[expert[j]] / (sum + 1e-20f) * a.scale;
}

// Place of the expert of (row, choice) pair `at`; -1 when it lives elsewhere or is nobody's.
TROUPE_PLAIN std::int32_t expert_slot(const experts_args& a, std::int64_t at) {
  const std::int32_t expert = a.expert.raw()[at];
  return expert < 0 ? -1 : a.slot_of.raw()[expert];
}

// silu(min(gate, limit)) * clamp(up, -limit, limit); no clamping with limit <= 0.
TROUPE_PLAIN float swiglu_value(float gate, float up, float limit) {
  if (limit > 0) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  return silu_f32(gate) * up;
}
template <class Team> TROUPE_PLAIN void swiglu_row(Team& t, const swiglu_args& a, std::int64_t i) {
  const float *gate = a.gate.raw() + i * a.cols, *up = a.up.raw() + i * a.cols;
  float* out = a.out.raw() + i * a.cols;
  for (int c = t.rank(); c < a.cols; c += t.size())
    out[c] = swiglu_value(gate[c], up[c], a.limit);
}

// Between the products of one expert: gate[inner] and up[inner] -> the input of its second product, in gate.
template <class Team>
TROUPE_PLAIN void expert_inner(Team& t, float* gate, const float* up, std::int64_t inner, float limit, float weight,
                               bool round_inner) {
  for (std::int64_t c = t.rank(); c < inner; c += t.size())
    gate[c] = swiglu_value(gate[c], up[c], limit) * weight;
  t.sync();
  if (round_inner)
    round_values(t, kv_format::fp8_ue8m0_32, gate, inner, gate);
}

template <class Team> TROUPE_PLAIN void combine_row(Team& t, const combine_args& a, std::int64_t i) {
  const auto rounded = [&](float v) { return a.round_bf16 ? round_to_bf16(v) : v; };
  const std::int64_t at = i * a.hidden;
  const float *shared = a.shared.raw() + at, *y = a.y.raw() + at * a.k;
  for (int d = t.rank(); d < a.hidden; d += t.size()) {
    float sum = rounded(shared[d]);
    for (int j = 0; j < a.k; ++j)
      sum = sum + rounded(y[std::int64_t{j} * a.hidden + d]);
    a.out.raw()[at + d] = sum;
  }
}

} // namespace troupe::plain
