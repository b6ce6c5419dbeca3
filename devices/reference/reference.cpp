#include "devices/reference/reference.hpp"

#include "devices/host.hpp"
#include "kernels/reference/attention.hpp"
#include "kernels/reference/cache.hpp"
#include "kernels/reference/drafts.hpp"
#include "kernels/reference/index.hpp"
#include "kernels/reference/moe.hpp"
#include "kernels/reference/rows.hpp"
#include "kernels/reference/sample_rows.hpp"
#include "kernels/reference/table.hpp"
#include "kernels/reference/trunk.hpp"
#include "kernels/reference/weights.hpp"

namespace troupe {
namespace {

void expect(bool condition, const char* what) {
  if (!condition)
    throw device_error(std::string("reference: ") + what);
}
// Objects made by another device have another layout.
template <class T, class Base> void expect_own(const Base* object, const char* what) {
  expect(dynamic_cast<const T*>(object) != nullptr, what);
}
host_stream& own(stream& s) {
  auto* p = dynamic_cast<host_stream*>(&s);
  expect(p != nullptr, "the stream belongs to another device");
  return *p;
}

class reference_ops : public op_table {
public:
  void share_drafts(stream&, const share_drafts_args& a) override { reference::share_drafts(a); }
  void lay_out_rows(stream&, const lay_out_rows_args& a) override { reference::lay_out_rows(a); }
  void verify_drafts(stream&, const verify_drafts_args& a) override { reference::verify_drafts(a); }
  void lay_out_drafts(stream&, const lay_out_drafts_args& a) override { reference::lay_out_drafts(a); }
  void keep_drafts(stream&, const keep_drafts_args& a) override { reference::keep_drafts(a); }
  void embed(stream&, const embed_args& a) override {
    expect_own<reference::host_table>(a.table, "embed: the table was not packed by this device");
    reference::embed(a, 0, a.rows);
  }
  void engram_rows(stream&, const engram_rows_args& a) override { reference::engram_rows(a, 0, a.map.rows); }
  void gather(stream&, const gather_args& a) override {
    expect_own<reference::host_table>(a.table, "gather: the table was not packed by this device");
    reference::gather(a, 0, a.rows);
  }
  void engram_gate(stream&, const engram_gate_args& a) override { reference::engram_gate(a, 0, a.rows); }
  void hc_collapse(stream&, const hc_collapse_args& a) override { reference::hc_collapse(a, 0, a.rows); }
  void hc_mixes(stream&, const hc_mixes_args& a) override {
    expect_own<reference::reference_weight>(a.fn, "hc_mixes: fn was not packed by this device");
    expect(a.streams >= 1 && a.streams <= reference::max_streams, "hc_mixes: between 1 and 16 streams");
    expect(a.fn->rows == std::int64_t{a.streams} * (a.streams + 2) && a.fn->cols == std::int64_t{a.streams} * a.hidden,
           "hc_mixes: fn must be [M*(M+2), M*H]");
    reference::hc_mixes(a, 0, a.rows);
  }
  void hc_expand(stream&, const hc_expand_args& a) override {
    expect(a.streams >= 1 && a.streams <= reference::max_streams, "hc_expand: between 1 and 16 streams");
    reference::hc_expand(a, 0, a.rows);
  }
  void hc_mean(stream&, const hc_mean_args& a) override { reference::hc_mean(a, 0, a.rows); }
  void rms_norm(stream&, const rms_norm_args& a) override { reference::rms_norm(a, 0, a.rows); }
  void round(stream&, const round_args& a) override {
    expect(a.cols % 32 == 0, "round: columns must be a multiple of 32");
    reference::round(a, 0, a.rows);
  }
  void linear(stream&, const linear_args& a) override {
    expect_own<reference::reference_weight>(a.w, "linear: the weight was not packed by this device");
    expect(a.groups >= 1 && a.w->rows % a.groups == 0, "linear: the groups do not divide the outputs");
    reference::linear(a, 0, a.rows);
  }
  void rope(stream&, const rope_args& a) override { reference::rope(a, 0, a.rows); }
  void encode(stream&, const encode_args& a) override {
    expect(a.format == kv_format::f32 || a.dim % 32 == 0, "encode: the dimension must be a multiple of 32");
    reference::encode(a, 0, a.rows);
  }
  void ring_commit(stream&, const ring_commit_args& a) override { reference::ring_commit(a, 0, a.map.rows); }
  void block_store(stream&, const block_store_args& a) override {
    expect(a.blocks.format == kv_format::f32 || a.blocks.dim % 32 == 0,
           "block_store: the dimension must be a multiple of 32");
    reference::block_store(a, 0, a.rows);
  }
  void compress(stream&, const compress_args& a) override {
    expect(a.pending.format == kv_format::f32 && a.pending.dim == 2 * a.dim, "compress: the ring must be f32 of 2*dim");
    reference::compress(a, 0, a.blocks);
  }
  void index_scores(stream& s, const index_scores_args& a) override {
    expect(a.keys.dim == a.dim, "index_scores: keys and queries differ in dimension");
    reference::index_scores(a, 0, a.count, own(s).scratch(reference::index_scores_scratch(a)));
  }
  void candidates(stream&, const candidate_args& a) override { reference::candidates(a, 0, a.count); }
  void select(stream&, const select_args& a) override { reference::select(a, 0, a.count); }
  void attention(stream& s, const attention_args& a) override {
    expect(a.ring.dim == a.dim && (!a.selected || a.blocks.dim == a.dim),
           "attention: keys and queries differ in dimension");
    reference::attention(a, 0, a.map.rows, own(s).scratch(reference::attention_scratch(a, 0, a.map.rows)));
  }
  void route(stream& s, const route_args& a) override {
    expect(a.k <= a.experts, "route: more experts per token than experts");
    reference::route(a, 0, a.rows, own(s).scratch(reference::route_scratch(a)));
    reference::count_routed(a);
  }
  void swiglu(stream&, const swiglu_args& a) override { reference::swiglu(a, 0, a.rows); }
  void experts(stream& s, const experts_args& a) override {
    expect_own<reference::reference_expert_set>(a.set, "experts: the set was not packed by this device");
    expect(!a.round_inner || a.set->intermediate % 32 == 0, "experts: the inner width must be a multiple of 32");
    reference::experts(a, 0, a.rows, own(s).scratch(reference::experts_scratch(a)));
  }
  void combine(stream&, const combine_args& a) override { reference::combine(a, 0, a.rows); }
  void copy_rows(stream&, const copy_rows_args& a) override { reference::copy_rows(a, 0, a.rows); }
  void copy_columns(stream&, const copy_columns_args& a) override { reference::copy_columns(a, 0, a.rows); }
  void sample_rows(stream& s, const sample_rows_args& a) override {
    own(s).make_samplers(1, static_cast<std::size_t>(a.vocab));
    reference::sample_rows(a, 0, a.rows, own(s).sampler(0));
  }
};

class reference_device : public host_device {
public:
  std::string name() const override { return "reference"; }
  std::string description() const override { return "scalar fp32, one thread"; }
  std::shared_ptr<const weight> pack(const weight_source& s) override {
    return std::make_shared<reference::reference_weight>(reference::make_weight(s));
  }
  std::shared_ptr<expert_set> pack_experts(std::span<const expert_source> sources) override {
    return reference::make_experts(sources);
  }
  void replace_expert(expert_set& set, std::int32_t slot, const expert_source& source) override {
    expect_own<reference::reference_expert_set>(&set, "replace_expert: the set was not packed by this device");
    reference::replace_expert(static_cast<reference::reference_expert_set&>(set), slot, source);
  }
  op_table& ops() override { return ops_; }

private:
  reference_ops ops_;
};

} // namespace

std::unique_ptr<device> make_reference_device() {
  return std::make_unique<reference_device>();
}

} // namespace troupe
