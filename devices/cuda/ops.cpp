#include "devices/cuda/ops.hpp"

#include "devices/cuda/stream.hpp"
#include "kernels/plain/trunk.hpp"

namespace troupe::cuda {
namespace {

void expect(bool condition, const char* what) {
  if (!condition)
    throw device_error(std::string("cuda-reference: ") + what);
}
// Objects made by another device have another layout.
template <class T, class Base> const T& own(const Base* object, const char* what) {
  const auto* p = dynamic_cast<const T*>(object);
  expect(p != nullptr, what);
  return *p;
}
stream_state& own(stream& s) {
  auto* p = dynamic_cast<gpu_stream*>(&s);
  expect(p != nullptr, "the stream belongs to another device");
  return p->state();
}
// The stream of an operation, whose GPU becomes the thread's.
launch on(stream& s) {
  stream_state& state = own(s);
  use_gpu(state.gpu());
  return state.next();
}
template <class T> T* scratch(stream& s, std::size_t count) {
  return reinterpret_cast<T*>(own(s).scratch(count * sizeof(T)));
}

bool whole_blocks(kv_format f, std::int64_t dim) {
  return f == kv_format::f32 || dim % 32 == 0;
}

} // namespace

void gpu_ops::share_drafts(stream& s, const share_drafts_args& a) {
  cuda::share_drafts(on(s), a);
}
void gpu_ops::lay_out_rows(stream& s, const lay_out_rows_args& a) {
  cuda::lay_out_rows(on(s), a);
}
void gpu_ops::verify_drafts(stream& s, const verify_drafts_args& a) {
  cuda::verify_drafts(on(s), a);
}
void gpu_ops::lay_out_drafts(stream& s, const lay_out_drafts_args& a) {
  cuda::lay_out_drafts(on(s), a);
}
void gpu_ops::keep_drafts(stream& s, const keep_drafts_args& a) {
  cuda::keep_drafts(on(s), a);
}
void gpu_ops::embed(stream& s, const embed_args& a) {
  cuda::embed(on(s), own<gpu_table>(a.table, "embed: the table was not packed by this device").view, a);
}
void gpu_ops::engram_rows(stream& s, const engram_rows_args& a) {
  cuda::engram_rows(on(s), a);
}
void gpu_ops::gather(stream& s, const gather_args& a) {
  cuda::gather(on(s), own<gpu_table>(a.table, "gather: the table was not packed by this device").view, a);
}
void gpu_ops::engram_gate(stream& s, const engram_gate_args& a) {
  cuda::engram_gate(on(s), a);
}
void gpu_ops::hc_collapse(stream& s, const hc_collapse_args& a) {
  cuda::hc_collapse(on(s), a);
}
void gpu_ops::hc_mixes(stream& s, const hc_mixes_args& a) {
  const auto& fn = own<gpu_weight>(a.fn, "hc_mixes: fn was not packed by this device");
  expect(a.streams >= 1 && a.streams <= plain::max_streams, "hc_mixes: between 1 and 16 streams");
  expect(fn.rows == std::int64_t{a.streams} * (a.streams + 2) && fn.cols == std::int64_t{a.streams} * a.hidden,
         "hc_mixes: fn must be [M*(M+2), M*H]");
  const launch l = on(s);
  auto* products = scratch<float>(s, static_cast<std::size_t>(a.rows) * static_cast<std::size_t>(fn.rows));
  product(l, a.trunk.raw(), fn.w(), a.rows, 1, fn.cols, fn.rows, products);
  cuda::hc_mixes(l, a, products);
}
void gpu_ops::hc_expand(stream& s, const hc_expand_args& a) {
  expect(a.streams >= 1 && a.streams <= plain::max_streams, "hc_expand: between 1 and 16 streams");
  cuda::hc_expand(on(s), a);
}
void gpu_ops::hc_mean(stream& s, const hc_mean_args& a) {
  cuda::hc_mean(on(s), a);
}
void gpu_ops::rms_norm(stream& s, const rms_norm_args& a) {
  cuda::rms_norm(on(s), a);
}
void gpu_ops::round(stream& s, const round_args& a) {
  expect(a.cols % 32 == 0, "round: columns must be a multiple of 32");
  cuda::round(on(s), a);
}
void gpu_ops::linear(stream& s, const linear_args& a) {
  const auto& w = own<gpu_weight>(a.w, "linear: the weight was not packed by this device");
  expect(a.groups >= 1 && w.rows % a.groups == 0, "linear: the groups do not divide the outputs");
  product(on(s), a.x.raw(), w.w(), a.rows, a.groups, w.cols, w.rows, a.out.raw());
}
void gpu_ops::rope(stream& s, const rope_args& a) {
  cuda::rope(on(s), a);
}
void gpu_ops::encode(stream& s, const encode_args& a) {
  expect(whole_blocks(a.format, a.dim), "encode: the dimension must be a multiple of 32");
  cuda::encode(on(s), a);
}
void gpu_ops::ring_commit(stream& s, const ring_commit_args& a) {
  cuda::ring_commit(on(s), a);
}
void gpu_ops::block_store(stream& s, const block_store_args& a) {
  expect(whole_blocks(a.blocks.format, a.blocks.dim), "block_store: the dimension must be a multiple of 32");
  cuda::block_store(on(s), a);
}
void gpu_ops::compress(stream& s, const compress_args& a) {
  expect(a.pending.format == kv_format::f32 && a.pending.dim == 2 * a.dim, "compress: the ring must be f32 of 2*dim");
  cuda::compress(on(s), a);
}
void gpu_ops::index_scores(stream& s, const index_scores_args& a) {
  expect(a.keys.dim == a.dim, "index_scores: keys and queries differ in dimension");
  cuda::index_scores(on(s), a);
}
void gpu_ops::candidates(stream& s, const candidate_args& a) {
  cuda::candidates(on(s), a);
}
void gpu_ops::select(stream& s, const select_args& a) {
  cuda::select(on(s), a);
}
void gpu_ops::attention(stream& s, const attention_args& a) {
  expect(a.ring.dim == a.dim && (!a.selected || a.blocks.dim == a.dim),
         "attention: keys and queries differ in dimension");
  const launch l = on(s);
  cuda::attention(l, a, scratch<std::byte>(s, attention_scratch(a)));
}
void gpu_ops::route(stream& s, const route_args& a) {
  expect(a.k <= a.experts, "route: more experts per token than experts");
  cuda::route(on(s), a);
}
void gpu_ops::swiglu(stream& s, const swiglu_args& a) {
  cuda::swiglu(on(s), a);
}
void gpu_ops::experts(stream& s, const experts_args& a) {
  const auto& set = own<gpu_expert_set>(a.set, "experts: the set was not packed by this device");
  expect(!a.round_inner || set.intermediate % 32 == 0, "experts: the inner width must be a multiple of 32");
  const launch l = on(s);
  if (set.slots > 0)
    cuda::experts(l, a, reinterpret_cast<const expert_weights*>(set.places->data),
                  scratch<float>(s, experts_scratch(a)));
}
void gpu_ops::combine(stream& s, const combine_args& a) {
  cuda::combine(on(s), a);
}
void gpu_ops::copy_rows(stream& s, const copy_rows_args& a) {
  cuda::copy_rows(on(s), a);
}
void gpu_ops::copy_columns(stream& s, const copy_columns_args& a) {
  cuda::copy_columns(on(s), a);
}
void gpu_ops::sample_rows(stream& s, const sample_rows_args& a) {
  const launch l = on(s);
  cuda::sample_rows(l, a, scratch<std::byte>(s, sample_scratch_bytes(a)));
}

} // namespace troupe::cuda
