#include "kernels/reference/trunk.hpp"

#include "kernels/reference/sums.hpp"
#include "kernels/reference/weights.hpp"
#include "runtime/base/exact_math.hpp"
#include <cmath>

namespace troupe::reference {
namespace {

// Row-wise softmax plus eps, then alternating normalisation of columns and rows. c[m*m], row-major.
void sinkhorn(float* c, int m, int iterations, float eps) {
  const auto scale_lines = [&](int line_stride, int step) { // divides each line by its sum + eps
    for (int line = 0; line < m; ++line) {
      float* x = c + line * line_stride;
      float sum = 0;
      for (int t = 0; t < m; ++t)
        sum = sum + x[t * step];
      for (int t = 0; t < m; ++t)
        x[t * step] = x[t * step] / (sum + eps);
    }
  };
  for (int j = 0; j < m; ++j) {
    float* x = c + j * m;
    float top = x[0], sum = 0;
    for (int k = 1; k < m; ++k)
      top = x[k] > top ? x[k] : top;
    for (int k = 0; k < m; ++k) {
      x[k] = exp_f32(x[k] - top);
      sum = sum + x[k];
    }
    for (int k = 0; k < m; ++k)
      x[k] = x[k] / sum + eps;
  }
  scale_lines(1, m); // columns
  for (int n = 1; n < iterations; ++n) {
    scale_lines(m, 1); // rows
    scale_lines(1, m);
  }
}

} // namespace

TROUPE_FMA_CLONES
void hc_collapse(const hc_collapse_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* trunk = a.trunk.raw() + std::int64_t{i} * a.streams * a.hidden;
    const float* pre = a.pre.raw() + std::int64_t{i} * a.streams;
    float* out = a.out.raw() + std::int64_t{i} * a.hidden;
    for (int d = 0; d < a.hidden; ++d) {
      float acc = 0;
      for (int m = 0; m < a.streams; ++m)
        acc = std::fma(pre[m], trunk[std::int64_t{m} * a.hidden + d], acc);
      out[d] = acc;
    }
  }
}

void hc_mixes(const hc_mixes_args& a, int begin, int end) {
  const auto& fn = static_cast<const reference_weight&>(*a.fn);
  float products[max_streams * (max_streams + 2)];
  for (int i = begin; i < end; ++i) {
    product(a.trunk.raw() + i * fn.cols, fn.w.data(), fn.cols, fn.rows, fn.rows, products);
    hc_mixes_row(a, i, products);
  }
}

TROUPE_FMA_CLONES
void hc_mixes_row(const hc_mixes_args& a, int row, const float* products) {
  const int m = a.streams;
  const std::int64_t n = std::int64_t{m} * a.hidden;
  const float* v = a.trunk.raw() + row * n;
  const float r = 1.0f / std::sqrt(dot16(v, v, n) / static_cast<float>(n) + a.norm_eps);
  const float *scale = a.scale.raw(), *base = a.base.raw();
  const auto mix = [&](int o, int part) { return std::fma(products[o] * r, scale[part], base[o]); };
  float* pre = a.pre.raw() + std::int64_t{row} * m;
  float* post = a.post.raw() + std::int64_t{row} * m;
  float* comb = a.comb.raw() + std::int64_t{row} * m * m;
  for (int k = 0; k < m; ++k) {
    pre[k] = sigmoid_f32(mix(k, 0)) + a.hc_eps;
    post[k] = 2.0f * sigmoid_f32(mix(m + k, 1));
  }
  for (int k = 0; k < m * m; ++k)
    comb[k] = mix(2 * m + k, 2);
  sinkhorn(comb, m, a.sinkhorn_iters, a.hc_eps);
}

TROUPE_FMA_CLONES
void hc_expand(const hc_expand_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* y = a.y.raw() + std::int64_t{i} * a.hidden;
    const float* post = a.post.raw() + std::int64_t{i} * a.streams;
    const float* comb = a.comb.raw() + std::int64_t{i} * a.streams * a.streams;
    float* trunk = a.trunk.raw() + std::int64_t{i} * a.streams * a.hidden;
    for (int d = 0; d < a.hidden; ++d) {
      float old[max_streams];
      for (int j = 0; j < a.streams; ++j)
        old[j] = trunk[std::int64_t{j} * a.hidden + d];
      for (int k = 0; k < a.streams; ++k) {
        float acc = post[k] * y[d];
        for (int j = 0; j < a.streams; ++j)
          acc = std::fma(comb[j * a.streams + k], old[j], acc);
        trunk[std::int64_t{k} * a.hidden + d] = acc;
      }
    }
  }
}

void hc_mean(const hc_mean_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* trunk = a.trunk.raw() + std::int64_t{i} * a.streams * a.hidden;
    float* out = a.out.raw() + i * a.out_stride;
    for (int d = 0; d < a.hidden; ++d) {
      float sum = 0;
      for (int m = 0; m < a.streams; ++m)
        sum = sum + trunk[std::int64_t{m} * a.hidden + d];
      out[d] = sum / static_cast<float>(a.streams);
    }
  }
}

void engram_rows(const engram_rows_args& a, int begin, int end) {
  const int back_max = a.ngram - 1;
  for (int i = begin; i < end; ++i) {
    const std::int32_t sequence = a.map.sequence.raw()[i];
    const int offset = i - a.map.first_row.raw()[sequence];
    // compressed id of the token `back` positions before row i
    const auto compressed = [&](int back) -> std::uint64_t {
      std::int32_t raw = -1;
      if (back <= offset)
        raw = a.tokens.raw()[i - back];
      else if (back - offset <= back_max)
        raw = a.history.raw()[std::int64_t{sequence} * back_max + back_max - (back - offset)];
      return static_cast<std::uint64_t>(raw < 0 ? a.pad : a.token_map.raw()[raw]);
    };
    std::int64_t* out = a.out.raw() + std::int64_t{i} * back_max * a.heads;
    std::uint64_t hash = compressed(0) * static_cast<std::uint64_t>(a.multipliers.raw()[0]);
    for (int order = 0; order < back_max; ++order) {
      hash ^= compressed(order + 1) * static_cast<std::uint64_t>(a.multipliers.raw()[order + 1]);
      for (int h = 0; h < a.heads; ++h) {
        const int at = order * a.heads + h;
        out[at] = a.offsets.raw()[at] + static_cast<std::int64_t>(hash) % a.primes.raw()[at];
      }
    }
  }
}

TROUPE_FMA_CLONES
void engram_gate(const engram_gate_args& a, int begin, int end) {
  const std::int64_t n = a.hidden;
  const auto length = static_cast<float>(n);
  for (int i = begin; i < end; ++i) {
    const float* kv = a.kv.raw() + i * (a.streams + 1) * n;
    const float* v = kv + a.streams * n;
    for (int m = 0; m < a.streams; ++m) {
      float* s = a.trunk.raw() + (std::int64_t{i} * a.streams + m) * n;
      const float* k = kv + m * n;
      const float rs = 1.0f / std::sqrt(dot16(s, s, n) / length + a.eps);
      const float rk = 1.0f / std::sqrt(dot16(k, k, n) / length + a.eps);
      const float dot = dot16_weighted(s, k, a.qk_weight.raw() + m * n, n) * rs * rk * (1.0f / std::sqrt(length));
      const float magnitude = std::fabs(dot);
      const float root = std::sqrt(magnitude < 1e-6f ? 1e-6f : magnitude);
      const float gate = sigmoid_f32(dot > 0 ? root : dot < 0 ? -root : 0.0f);
      for (std::int64_t d = 0; d < n; ++d)
        s[d] = std::fma(gate, v[d], s[d]);
    }
  }
}

} // namespace troupe::reference
