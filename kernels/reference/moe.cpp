#include "kernels/reference/moe.hpp"

#include "kernels/reference/index.hpp"
#include "kernels/reference/records.hpp"
#include "kernels/reference/sums.hpp"
#include "kernels/reference/weights.hpp"
#include "runtime/base/exact_math.hpp"
#include "runtime/base/number_formats.hpp"
#include <cmath>

namespace troupe::reference {

TROUPE_FMA_CLONES
void route(const route_args& a, int begin, int end, std::span<float> scratch) {
  float *s = scratch.data(), *biased = s + a.experts;
  for (int i = begin; i < end; ++i) {
    const float* logits = a.logits.raw() + std::int64_t{i} * a.experts;
    std::int32_t* expert = a.expert.raw() + std::int64_t{i} * a.k;
    float* weight = a.weight.raw() + std::int64_t{i} * a.k;
    for (int e = 0; e < a.experts; ++e) {
      s[e] = std::sqrt(softplus_f32(logits[e]));
      biased[e] = s[e] + a.bias.raw()[e];
    }
    // each pass takes the best expert behind the one before
    const auto before = [&](int x, int y) {
      const std::uint32_t kx = order_key(biased[x]), ky = order_key(biased[y]);
      return kx > ky || (kx == ky && x < y);
    };
    for (int j = 0; j < a.k; ++j) {
      int best = -1;
      for (int e = 0; e < a.experts; ++e)
        if ((j == 0 || before(expert[j - 1], e)) && (best < 0 || before(e, best)))
          best = e;
      expert[j] = best;
    }
    float sum = 0;
    for (int j = 0; j < a.k; ++j)
      sum = sum + s[expert[j]];
    for (int j = 0; j < a.k; ++j)
      weight[j] = s[expert[j]] / (sum + 1e-20f) * a.scale;
  }
}

TROUPE_FMA_CLONES
void swiglu_row(const float* gate, const float* up, std::int64_t n, float limit, float* out) {
  for (std::int64_t c = 0; c < n; ++c) {
    float g = gate[c], u = up[c];
    if (limit > 0) {
      g = g > limit ? limit : g;
      u = u > limit ? limit : u < -limit ? -limit : u;
    }
    out[c] = silu_f32(g) * u;
  }
}

void swiglu(const swiglu_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const std::int64_t at = std::int64_t{i} * a.cols;
    swiglu_row(a.gate.raw() + at, a.up.raw() + at, a.cols, a.limit, a.out.raw() + at);
  }
}

void experts(const experts_args& a, int begin, int end, std::span<float> scratch) {
  const auto& set = static_cast<const reference_expert_set&>(*a.set);
  const std::int64_t hidden = set.hidden, inner = set.intermediate;
  float *gate = scratch.data(), *up = gate + inner;
  for (std::int64_t at = std::int64_t{begin} * a.k; at < std::int64_t{end} * a.k; ++at) {
    const std::int32_t slot = a.slot_of.raw()[a.expert.raw()[at]];
    if (slot < 0)
      continue;
    const reference_expert& e = set.experts[static_cast<std::size_t>(slot)];
    const float* x = a.x.raw() + at / a.k * hidden;
    product(x, e.w1.w.data(), hidden, inner, inner, gate);
    product(x, e.w3.w.data(), hidden, inner, inner, up);
    swiglu_row(gate, up, inner, a.limit, gate);
    for (std::int64_t c = 0; c < inner; ++c)
      gate[c] = gate[c] * a.weight.raw()[at];
    if (a.round_inner)
      round_row(kv_format::fp8_ue8m0_32, gate, inner, gate);
    product(gate, e.w2.w.data(), inner, hidden, hidden, a.y.raw() + at * hidden);
  }
}

void combine(const combine_args& a, int begin, int end) {
  const auto rounded = [&](float v) { return a.round_bf16 ? round_to_bf16(v) : v; };
  for (int i = begin; i < end; ++i) {
    const std::int64_t at = std::int64_t{i} * a.hidden;
    for (int d = 0; d < a.hidden; ++d) {
      float t = rounded(a.shared.raw()[at + d]);
      for (int j = 0; j < a.k; ++j)
        t = t + rounded(a.y.raw()[at * a.k + std::int64_t{j} * a.hidden + d]);
      a.out.raw()[at + d] = t;
    }
  }
}

} // namespace troupe::reference
