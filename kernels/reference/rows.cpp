#include "kernels/reference/rows.hpp"

#include "kernels/plain/rows.hpp"
#include "kernels/reference/alone.hpp"
#include "kernels/reference/table.hpp"
#include "kernels/reference/weights.hpp"
#include <algorithm>

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
  alone t;
  for (int i = begin; i < end; ++i)
    plain::copy_rows_row(t, a, i);
}

void copy_columns(const copy_columns_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::copy_columns_row(t, a, i);
}

void rms_norm(const rms_norm_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::rms_norm_row(t, a, i);
}

void round(const round_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::round_row(t, a, i);
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
  alone t;
  for (int i = begin; i < end; ++i)
    plain::rope_row(t, a, i);
}

} // namespace troupe::reference
