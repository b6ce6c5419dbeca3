// Operations on the trunk of M parallel streams: mHC (model.md §3) and Engram (model.md §8). Rows [begin, end).
#pragma once
#include "kernels/plain/trunk.hpp"

namespace troupe::reference {

using plain::max_streams;

void hc_collapse(const hc_collapse_args& a, int begin, int end);
void hc_mixes(const hc_mixes_args& a, int begin, int end); // fn must be a reference_weight
// The part of hc_mixes behind the matrix product: products[M*(M+2)] = fn @ v of this row.
void hc_mixes_row(const hc_mixes_args& a, int row, const float* products);
void hc_expand(const hc_expand_args& a, int begin, int end);
void hc_mean(const hc_mean_args& a, int begin, int end);
void engram_rows(const engram_rows_args& a, int begin, int end);
void engram_gate(const engram_gate_args& a, int begin, int end);

} // namespace troupe::reference
