// The trunk of M parallel streams: mHC (model.md §3) and Engram (model.md §8).
#pragma once
#include "kernels/ops.hpp"
#include "kernels/plain/qualifiers.hpp"
#include "kernels/plain/team.hpp"

namespace troupe::plain {

inline constexpr int max_streams = 16;

template <class Team> TROUPE_PLAIN void hc_collapse_row(Team& t, const hc_collapse_args& a, std::int64_t i) {
  const float* trunk = a.trunk.raw() + i * a.streams * a.hidden;
  const float* pre = a.pre.raw() + i * a.streams;
  float* out = a.out.raw() + i * a.hidden;
  for (int d = t.rank(); d < a.hidden; d += t.size()) {
    float acc = 0;
    for (int m = 0; m < a.streams; ++m)
      acc = fma(pre[m], trunk[std::int64_t{m} * a.hidden + d], acc);
    out[d] = acc;
  }
}

// Row-wise softmax plus eps, then alternating normalisation of columns and rows. c[m*m], row-major. Lines are
// independent of one another.
template <class Team> TROUPE_PLAIN void sinkhorn(Team& t, float* c, int m, int iterations, float eps) {
  const auto scale_lines = [&](int line_stride, int step) { // divides each line by its sum + eps
    for (int line = t.rank(); line < m; line += t.size()) {
      float* x = c + line * line_stride;
      float sum = 0;
      for (int k = 0; k < m; ++k)
        sum = sum + x[k * step];
      for (int k = 0; k < m; ++k)
        x[k * step] = x[k * step] / (sum + eps);
    }
    t.sync();
  };
  for (int j = t.rank(); j < m; j += t.size()) {
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
  t.sync();
  scale_lines(1, m); // columns
  for (int n = 1; n < iterations; ++n) {
    scale_lines(m, 1); // rows
    scale_lines(1, m);
  }
}

// The part of hc_mixes behind the matrix product: products[M*(M+2)] = fn @ v of this row.
template <class Team>
TROUPE_PLAIN void hc_mixes_row(Team& t, const hc_mixes_args& a, std::int64_t row, const float* products) {
  const int m = a.streams;
  const std::int64_t n = std::int64_t{m} * a.hidden;
  const float* v = a.trunk.raw() + row * n;
  const float r = 1.0f / root(t.sum16(v, v, n) / static_cast<float>(n) + a.norm_eps);
  const float *scale = a.scale.raw(), *base = a.base.raw();
  const auto mix = [&](int o, int part) { return fma(products[o] * r, scale[part], base[o]); };
  float* pre = a.pre.raw() + row * m;
  float* post = a.post.raw() + row * m;
  float* comb = a.comb.raw() + row * m * m;
  for (int k = t.rank(); k < m; k += t.size()) {
    pre[k] = sigmoid_f32(mix(k, 0)) + a.hc_eps;
    post[k] = 2.0f * sigmoid_f32(mix(m + k, 1));
  }
  for (int k = t.rank(); k < m * m; k += t.size())
    comb[k] = mix(2 * m + k, 2);
  t.sync();
  sinkhorn(t, comb, m, a.sinkhorn_iters, a.hc_eps);
}

template <class Team> TROUPE_PLAIN void hc_expand_row(Team& t, const hc_expand_args& a, std::int64_t i) {
  const float* y = a.y.raw() + i * a.hidden;
  const float* post = a.post.raw() + i * a.streams;
  const float* comb = a.comb.raw() + i * a.streams * a.streams;
  float* trunk = a.trunk.raw() + i * a.streams * a.hidden;
  for (int d = t.rank(); d < a.hidden; d += t.size()) {
    float old[max_streams];
    for (int j = 0; j < a.streams; ++j)
      old[j] = trunk[std::int64_t{j} * a.hidden + d];
    for (int k = 0; k < a.streams; ++k) {
      float acc = post[k] * y[d];
      for (int j = 0; j < a.streams; ++j)
        acc = fma(comb[j * a.streams + k], old[j], acc);
      trunk[std::int64_t{k} * a.hidden + d] = acc;
    }
  }
}

template <class Team> TROUPE_PLAIN void hc_mean_row(Team& t, const hc_mean_args& a, std::int64_t i) {
  const float* trunk = a.trunk.raw() + i * a.streams * a.hidden;
  float* out = a.out.raw() + i * a.out_stride;
  for (int d = t.rank(); d < a.hidden; d += t.size()) {
    float sum = 0;
    for (int m = 0; m < a.streams; ++m)
      sum = sum + trunk[std::int64_t{m} * a.hidden + d];
    out[d] = sum / static_cast<float>(a.streams);
  }
}

// Compressed id of the token `back` positions before row i.
TROUPE_PLAIN std::uint64_t compressed_id(const engram_rows_args& a, std::int64_t i, int back) {
  const int back_max = a.ngram - 1;
  const std::int32_t sequence = a.map.sequence.raw()[i];
  const std::int32_t offset = a.map.position.raw()[i] - a.map.start.raw()[sequence]; // among its sequence's key rows
  std::int32_t raw = -1;
  if (back <= offset)
    raw = a.tokens.raw()[a.map.first_row.raw()[sequence] + offset - back];
  else if (back - offset <= back_max)
    raw = a.history.raw()[std::int64_t{sequence} * back_max + back_max - (back - offset)];
  return static_cast<std::uint64_t>(raw < 0 ? a.pad : a.token_map.raw()[raw]);
}

template <class Team> TROUPE_PLAIN void engram_rows_row(Team& t, const engram_rows_args& a, std::int64_t i) {
  const int orders = a.ngram - 1;
  std::int64_t* out = a.out.raw() + i * orders * a.heads;
  std::uint64_t hash = compressed_id(a, i, 0) * static_cast<std::uint64_t>(a.multipliers.raw()[0]);
  for (int order = 0; order < orders; ++order) {
    hash ^= compressed_id(a, i, order + 1) * static_cast<std::uint64_t>(a.multipliers.raw()[order + 1]);
    for (int h = t.rank(); h < a.heads; h += t.size()) {
      const int at = order * a.heads + h;
      out[at] = a.offsets.raw()[at] + static_cast<std::int64_t>(hash) % a.primes.raw()[at];
    }
  }
}

template <class Team> TROUPE_PLAIN void engram_gate_row(Team& t, const engram_gate_args& a, std::int64_t i) {
  const std::int64_t n = a.hidden;
  const auto length = static_cast<float>(n);
  const float* kv = a.kv.raw() + i * (a.streams + 1) * n;
  const float* v = kv + a.streams * n;
  for (int m = 0; m < a.streams; ++m) {
    float* s = a.trunk.raw() + (i * a.streams + m) * n;
    const float* k = kv + m * n;
    const float rs = 1.0f / root(t.sum16(s, s, n) / length + a.eps);
    const float rk = 1.0f / root(t.sum16(k, k, n) / length + a.eps);
    const float dot = t.sum16_weighted(s, k, a.qk_weight.raw() + m * n, n) * rs * rk * (1.0f / root(length));
    const float size = magnitude(dot);
    const float strength = root(size < 1e-6f ? 1e-6f : size);
    const float gate = sigmoid_f32(dot > 0 ? strength : dot < 0 ? -strength : 0.0f);
    for (std::int64_t d = t.rank(); d < n; d += t.size())
      s[d] = fma(gate, v[d], s[d]);
  }
}

} // namespace troupe::plain
