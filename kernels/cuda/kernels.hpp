// Launches of every operation's kernels on a stream; formulas stand in kernels/ops.hpp, arithmetic in kernels/plain/.
// Arguments were checked by the caller (devices/cuda/ops.cpp). Throw device_error when a launch fails.
#pragma once
#include "kernels/cuda/launch.hpp"
#include "kernels/ops.hpp"
#include "kernels/plain/weights.hpp"
#include <cstddef>

namespace troupe::cuda {

// rows.cu
void embed(const launch& l, const plain::stored_view& table, const embed_args& a);
void gather(const launch& l, const plain::stored_view& table, const gather_args& a);
void copy_rows(const launch& l, const copy_rows_args& a);
void copy_columns(const launch& l, const copy_columns_args& a);
void rms_norm(const launch& l, const rms_norm_args& a);
void round(const launch& l, const round_args& a);
void rope(const launch& l, const rope_args& a);
void encode(const launch& l, const encode_args& a);
void ring_commit(const launch& l, const ring_commit_args& a);
void block_store(const launch& l, const block_store_args& a);
void compress(const launch& l, const compress_args& a);
void engram_rows(const launch& l, const engram_rows_args& a);
void engram_gate(const launch& l, const engram_gate_args& a);
void hc_collapse(const launch& l, const hc_collapse_args& a);
void hc_mixes(const launch& l, const hc_mixes_args& a, const float* products); // products: fn @ v, [rows, M*(M+2)]
void hc_expand(const launch& l, const hc_expand_args& a);
void hc_mean(const launch& l, const hc_mean_args& a);
void swiglu(const launch& l, const swiglu_args& a);
void combine(const launch& l, const combine_args& a);

// drafts.cu
void share_drafts(const launch& l, const share_drafts_args& a);
void lay_out_rows(const launch& l, const lay_out_rows_args& a);
void verify_drafts(const launch& l, const verify_drafts_args& a);
void lay_out_drafts(const launch& l, const lay_out_drafts_args& a);
void keep_drafts(const launch& l, const keep_drafts_args& a);

// products.cu
// out[i, o] = fma over k ascending of x[i, g*cols + k] * w[k, o], g = o / (outputs / groups); w is [cols][outputs].
void product(const launch& l, const float* x, const float* w, std::int64_t rows, std::int64_t groups, std::int64_t cols,
             std::int64_t outputs, float* out);
// A stored weight as fp32 in that layout. All pointers in device memory.
void unpack(const launch& l, const plain::stored_view& from, float* to);
struct expert_weights { // device addresses, [inputs][outputs]
  const float *w1 = nullptr, *w3 = nullptr, *w2 = nullptr;
};
// Floats of scratch for experts.
std::size_t experts_scratch(const experts_args& a);
// set: [slots] in device memory.
void experts(const launch& l, const experts_args& a, const expert_weights* set, float* scratch);

// context.cu
void index_scores(const launch& l, const index_scores_args& a);
void candidates(const launch& l, const candidate_args& a);
void select(const launch& l, const select_args& a);
// Bytes of scratch for attention; 0 while the keys of a row fit into a block's own memory.
std::size_t attention_scratch(const attention_args& a);
void attention(const launch& l, const attention_args& a, std::byte* scratch);
void route(const launch& l, const route_args& a);

// sample.cu
std::size_t sample_scratch_bytes(const sample_rows_args& a);
void sample_rows(const launch& l, const sample_rows_args& a, std::byte* scratch);

// Whether the current GPU can run these kernels.
bool has_code();

// Writes `value` to mapped host memory when everything before it on the stream has finished.
void signal(const launch& l, volatile std::uint64_t* to, std::uint64_t value);

} // namespace troupe::cuda
