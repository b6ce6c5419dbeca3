// Operations that treat each row by itself: copies, norms, rounding, rotation. Formulas: kernels/ops.hpp, orders:
// docs/numerics.md.
#pragma once
#include "kernels/plain/records.hpp"
#include "kernels/plain/team.hpp"

namespace troupe::plain {

template <class Team> TROUPE_PLAIN void copy_rows_row(Team& t, const copy_rows_args& a, std::int64_t i) {
  const float* x = a.x.raw() + a.index.raw()[i] * a.cols;
  float* out = a.out.raw() + i * a.cols;
  for (std::int64_t c = t.rank(); c < a.cols; c += t.size())
    out[c] = x[c];
}

template <class Team> TROUPE_PLAIN void copy_columns_row(Team& t, const copy_columns_args& a, std::int64_t i) {
  const float* x = a.x.raw() + i * a.x_stride;
  float* out = a.out.raw() + i * a.out_stride;
  for (std::int64_t c = t.rank(); c < a.cols; c += t.size())
    out[c] = a.add ? out[c] + x[c] : x[c];
}

template <class Team> TROUPE_PLAIN void rms_norm_row(Team& t, const rms_norm_args& a, std::int64_t i) {
  const float* x = a.x.raw() + i * a.cols;
  const float* w = a.w.raw();
  float* out = a.out.raw() + i * a.cols;
  const float mean = t.sum16(x, x, a.cols) / static_cast<float>(a.cols);
  const float r = 1.0f / root(mean + a.eps);
  for (int c = t.rank(); c < a.cols; c += t.size())
    out[c] = x[c] * r * w[c];
}

// x[n] -> out[n] through `format` and back; out may be x.
template <class Team> TROUPE_PLAIN void round_values(Team& t, kv_format f, const float* x, std::int64_t n, float* out) {
  const int block = scale_block(f);
  for (std::int64_t b = t.rank() * block; b < n; b += t.size() * block)
    round_block(f, x + b, out + b);
}
template <class Team> TROUPE_PLAIN void round_row(Team& t, const round_args& a, std::int64_t i) {
  if (a.format != kv_format::f32)
    return round_values(t, a.format, a.x.raw() + i * a.cols, a.cols, a.out.raw() + i * a.cols);
  for (std::int64_t c = t.rank(); c < a.cols; c += t.size())
    a.out.raw()[i * a.cols + c] = a.x.raw()[i * a.cols + c];
}

template <class Team> TROUPE_PLAIN void rope_row(Team& t, const rope_args& a, std::int64_t i) {
  const int half = a.rope_dim / 2;
  const float* cosines = a.cos_sin.raw() + std::int64_t{a.position.raw()[i]} * a.rope_dim;
  const float* sines = cosines + half;
  for (int h = 0; h < a.heads; ++h) {
    float* x = a.x.raw() + (i * a.heads + h) * a.dim + a.dim - a.rope_dim;
    for (int j = t.rank(); j < half; j += t.size()) {
      const float c = cosines[j], s = a.inverse ? -sines[j] : sines[j];
      const float u = x[2 * j], v = x[2 * j + 1];
      x[2 * j] = u * c - v * s;
      x[2 * j + 1] = u * s + v * c;
    }
  }
}

} // namespace troupe::plain
