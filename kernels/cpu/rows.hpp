// Operations of the cpu device that treat each row by itself, with the bits of kernels/reference. Rows [begin, end).
#pragma once
#include "kernels/ops.hpp"

namespace troupe::cpu {

void rms_norm(const rms_norm_args& a, int begin, int end);
void round(const round_args& a, int begin, int end);
void swiglu(const swiglu_args& a, int begin, int end);
void rope(const rope_args& a, int begin, int end);
void combine(const combine_args& a, int begin, int end);
void copy_columns(const copy_columns_args& a, int begin, int end);
void hc_collapse(const hc_collapse_args& a, int begin, int end);
void hc_mixes_row(const hc_mixes_args& a, int row, const float* products); // as kernels/reference/trunk.hpp
void hc_expand(const hc_expand_args& a, int begin, int end);
void hc_mean(const hc_mean_args& a, int begin, int end);
void engram_gate(const engram_gate_args& a, int begin, int end);
// out[e] = sqrt(softplus(logits[e])), e < n.
void expert_scores(const float* logits, int n, float* out);

} // namespace troupe::cpu
