// The op table of cuda-reference: arguments are checked here, the work is queued on the stream.
#pragma once
#include "devices/cuda/memory.hpp"
#include "devices/device.hpp"
#include "kernels/cuda/kernels.hpp"
#include <vector>

namespace troupe::cuda {

struct gpu_weight : weight {
  std::unique_ptr<buffer::storage> memory; // fp32 [cols][rows]
  const float* w() const { return reinterpret_cast<const float*>(memory->data); }
};

// A table in its checkpoint format: in GPU memory, or, when that would take too much of it, in mapped host memory.
struct gpu_table : row_table {
  std::unique_ptr<buffer::storage> memory;
  host_memory mapped;
  plain::stored_view view;
};

struct gpu_expert_set : expert_set {
  std::vector<std::unique_ptr<gpu_weight>> weights;
  std::unique_ptr<buffer::storage> places; // expert_weights [slots]
};

class gpu_ops : public op_table {
public:
  void share_drafts(stream&, const share_drafts_args&) override;
  void lay_out_rows(stream&, const lay_out_rows_args&) override;
  void verify_drafts(stream&, const verify_drafts_args&) override;
  void lay_out_drafts(stream&, const lay_out_drafts_args&) override;
  void keep_drafts(stream&, const keep_drafts_args&) override;
  void embed(stream&, const embed_args&) override;
  void engram_rows(stream&, const engram_rows_args&) override;
  void gather(stream&, const gather_args&) override;
  void engram_gate(stream&, const engram_gate_args&) override;
  void hc_collapse(stream&, const hc_collapse_args&) override;
  void hc_mixes(stream&, const hc_mixes_args&) override;
  void hc_expand(stream&, const hc_expand_args&) override;
  void hc_mean(stream&, const hc_mean_args&) override;
  void rms_norm(stream&, const rms_norm_args&) override;
  void round(stream&, const round_args&) override;
  void linear(stream&, const linear_args&) override;
  void rope(stream&, const rope_args&) override;
  void encode(stream&, const encode_args&) override;
  void ring_commit(stream&, const ring_commit_args&) override;
  void block_store(stream&, const block_store_args&) override;
  void compress(stream&, const compress_args&) override;
  void index_scores(stream&, const index_scores_args&) override;
  void candidates(stream&, const candidate_args&) override;
  void select(stream&, const select_args&) override;
  void attention(stream&, const attention_args&) override;
  void route(stream&, const route_args&) override;
  void swiglu(stream&, const swiglu_args&) override;
  void experts(stream&, const experts_args&) override;
  void combine(stream&, const combine_args&) override;
  void copy_rows(stream&, const copy_rows_args&) override;
  void copy_columns(stream&, const copy_columns_args&) override;
  void sample_rows(stream&, const sample_rows_args&) override;
};

} // namespace troupe::cuda
