// Operations that treat each row by itself: copies, norms, activation rounding, products, rotation. Every function
// computes rows [begin, end) of its arguments; formulas stand in kernels/ops.hpp, orders in docs/numerics.md.
#pragma once
#include "kernels/ops.hpp"

namespace troupe::reference {

void embed(const embed_args& a, int begin, int end);   // table must be a host_table
void gather(const gather_args& a, int begin, int end); // table must be a host_table
void copy_rows(const copy_rows_args& a, int begin, int end);
void copy_columns(const copy_columns_args& a, int begin, int end);
void rms_norm(const rms_norm_args& a, int begin, int end);
void round(const round_args& a, int begin, int end);
void linear(const linear_args& a, int begin, int end); // w must be a reference_weight
void rope(const rope_args& a, int begin, int end);

} // namespace troupe::reference
