#include "kernels/reference/trunk.hpp"

#include "kernels/plain/trunk.hpp"
#include "kernels/reference/alone.hpp"
#include "kernels/reference/weights.hpp"

namespace troupe::reference {

TROUPE_FMA_CLONES
void hc_collapse(const hc_collapse_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::hc_collapse_row(t, a, i);
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
  alone t;
  plain::hc_mixes_row(t, a, row, products);
}

TROUPE_FMA_CLONES
void hc_expand(const hc_expand_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::hc_expand_row(t, a, i);
}

void hc_mean(const hc_mean_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::hc_mean_row(t, a, i);
}

void engram_rows(const engram_rows_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::engram_rows_row(t, a, i);
}

TROUPE_FMA_CLONES
void engram_gate(const engram_gate_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::engram_gate_row(t, a, i);
}

} // namespace troupe::reference
