// The op table of the device "cpu": cuts every operation into pieces that do not influence one another's bits (rows, or
// panels of outputs) and runs them on the pool; small operations stay on the calling thread.
#pragma once
#include "devices/cpu/thread_pool.hpp"
#include "devices/host.hpp"
#include "kernels/cpu/products.hpp"
#include <cstdint>
#include <vector>

namespace troupe {

// A host stream with the working space of the operations that need more than plain floats. Grows, never shrinks.
class cpu_stream : public host_stream {
public:
  struct routed_rows {                               // rows of an experts call, ordered by expert
    std::vector<std::int32_t> first, slot;           // groups: first entry, slot
    std::vector<std::int32_t> next;                  // by slot
    std::vector<const float*> x, weight, inner_read; // by entry
    std::vector<float*> inner, y;
  };
  routed_rows routed;
  // At least n words that stay valid until the next call.
  std::span<std::uint32_t> words(std::size_t n) {
    if (words_.size() < n)
      words_.resize(n);
    return {words_.data(), n};
  }

private:
  std::vector<std::uint32_t> words_;
};

class cpu_ops : public op_table {
public:
  explicit cpu_ops(thread_pool& pool) : pool_(pool) {}
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

private:
  // Chunks for `units` pieces that take about unit_ns nanoseconds each: 1 when a fork would cost more than it saves.
  int chunks_for(std::int64_t units, double unit_ns) const;
  // f(begin, end, worker) over parts of [0, units).
  template <class F> void split(std::int64_t units, double unit_ns, F&& f) {
    const int chunks = chunks_for(units, unit_ns);
    if (chunks <= 1) {
      f(std::int64_t{0}, units, 0);
      return;
    }
    pool_.run(chunks, [&](int c, int worker) { f(units * c / chunks, units * (c + 1) / chunks, worker); });
  }
  // The same for the rows of an operation.
  template <class F> void rows(int n, double row_ns, F&& f) {
    split(n, row_ns, [&](std::int64_t begin, std::int64_t end, int worker) {
      f(static_cast<int>(begin), static_cast<int>(end), worker);
    });
  }

  thread_pool& pool_;
};

} // namespace troupe
