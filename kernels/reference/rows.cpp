#include "kernels/reference/rows.hpp"

#include "kernels/reference/records.hpp"
#include "kernels/reference/sums.hpp"
#include "kernels/reference/table.hpp"
#include "kernels/reference/weights.hpp"
#include <algorithm>
#include <cmath>

namespace troupe::reference {

void embed(const embed_args& a, int begin, int end) {
  const auto& table = static_cast<const host_table&>(*a.table);
  for (int i = begin; i < end; ++i) {
    float* first = a.out.raw() + std::int64_t{i} * a.streams * table.cols;
    table.row(a.ids.raw()[i], first);
    for (int s = 1; s < a.streams; ++s)
      std::copy_n(first, table.cols, first + s * table.cols);
  }
}

void gather(const gather_args& a, int begin, int end) {
  const auto& table = static_cast<const host_table&>(*a.table);
  for (std::int64_t i = std::int64_t{begin} * a.per_row; i < std::int64_t{end} * a.per_row; ++i)
    table.row(a.index.raw()[i], a.out.raw() + i * table.cols);
}

void copy_rows(const copy_rows_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    std::copy_n(a.x.raw() + a.index.raw()[i] * a.cols, a.cols, a.out.raw() + i * a.cols);
}

void copy_columns(const copy_columns_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* x = a.x.raw() + i * a.x_stride;
    float* out = a.out.raw() + i * a.out_stride;
    for (std::int64_t c = 0; c < a.cols; ++c)
      out[c] = a.add ? out[c] + x[c] : x[c];
  }
}

void rms_norm(const rms_norm_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* x = a.x.raw() + std::int64_t{i} * a.cols;
    float* out = a.out.raw() + std::int64_t{i} * a.cols;
    const float mean = dot16(x, x, a.cols) / static_cast<float>(a.cols);
    const float r = 1.0f / std::sqrt(mean + a.eps);
    for (int c = 0; c < a.cols; ++c)
      out[c] = x[c] * r * a.w.raw()[c];
  }
}

void round(const round_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    round_row(a.format, a.x.raw() + std::int64_t{i} * a.cols, a.cols, a.out.raw() + std::int64_t{i} * a.cols);
}

void linear(const linear_args& a, int begin, int end) {
  const auto& w = static_cast<const reference_weight&>(*a.w);
  const std::int64_t per_group = w.rows / a.groups;
  for (int i = begin; i < end; ++i)
    for (int g = 0; g < a.groups; ++g)
      product(a.x.raw() + (std::int64_t{i} * a.groups + g) * w.cols, w.w.data() + g * per_group, w.cols, per_group,
              w.rows, a.out.raw() + i * w.rows + g * per_group);
}

void rope(const rope_args& a, int begin, int end) {
  const int half = a.rope_dim / 2;
  for (int i = begin; i < end; ++i) {
    const float* cosines = a.cos_sin.raw() + std::int64_t{a.position.raw()[i]} * a.rope_dim;
    const float* sines = cosines + half;
    for (int h = 0; h < a.heads; ++h) {
      float* x = a.x.raw() + (std::int64_t{i} * a.heads + h) * a.dim + a.dim - a.rope_dim;
      for (int j = 0; j < half; ++j) {
        const float c = cosines[j], s = a.inverse ? -sines[j] : sines[j];
        const float u = x[2 * j], v = x[2 * j + 1];
        x[2 * j] = u * c - v * s;
        x[2 * j + 1] = u * s + v * c;
      }
    }
  }
}

} // namespace troupe::reference
