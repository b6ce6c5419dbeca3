#include "runtime/model/graph.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>

namespace troupe {
namespace {

constexpr std::int64_t score_tile_floats = 1 << 20; // 4 MiB of index scores at a time

} // namespace

workspace::workspace(const model_config& c, const runner_options& o, const allocator& allocate) {
  const int block = c.num_nextn_predict_layers > 0 ? c.dspark_block_size : 0;
  rows = std::max(o.max_rows, block); // a step of one row may be followed by a draft block
  const std::int64_t h = c.hidden_size, m = c.hc_mult, d = c.head_dim;
  auto floats = [&](std::int64_t per_row, const char* what) {
    return allocate(4 * rows * std::max<std::int64_t>(per_row, 1), what);
  };
  trunk = floats(m * h, "trunk");
  pre = floats(m, "mixes");
  next_pre = floats(m, "mixes");
  post = floats(m, "mixes");
  comb = floats(m * m, "mixes");
  const std::int64_t targets = static_cast<std::int64_t>(c.dspark_target_layer_ids.size());
  x = floats(h, "activations");
  normed = floats(h, "activations");
  rounded = floats(std::max({h, c.num_attention_heads * d, static_cast<std::int64_t>(c.o_groups) * c.o_lora_rank,
                             targets * h, static_cast<std::int64_t>(c.n_shared_experts) * c.moe_intermediate_size}),
                   "rounded activations");
  qa = floats(c.q_lora_rank, "activations");
  qr = floats(c.q_lora_rank, "activations");
  q = floats(c.num_attention_heads * d, "queries");
  attended = floats(c.num_attention_heads * d, "attention output");
  kv = floats(d, "activations");
  own = floats(d, "window records");
  z = floats(static_cast<std::int64_t>(c.o_groups) * c.o_lora_rank, "activations");
  y = floats(h, "activations");
  kg = floats(2 * d, "compressor input");
  if (o.shares_steps) {
    all_own = floats(d, "window records");
    all_kg = floats(2 * d, "compressor input");
  }
  latent = floats(d, "activations");
  rotated = floats(d, "activations");
  index_key = floats(c.index_head_dim, "index keys");
  index_q = floats(static_cast<std::int64_t>(c.index_n_heads) * c.index_head_dim, "index queries");
  index_a = floats(c.index_n_heads, "index weights");
  scores_floats = std::max<std::int64_t>(score_tile_floats, o.max_model_len + 15);
  scores = allocate(4 * scores_floats, "index scores");
  selected = floats(c.index_topk, "selection");
  candidates = floats(c.candidate_topk_blocks, "candidates");
  const int most_k = std::max(c.num_experts_per_tok, c.dspark_num_experts_per_tok);
  gate_logits = floats(std::max(c.n_routed_experts, c.dspark_n_routed_experts), "gate logits");
  route_expert = floats(most_k, "routes");
  route_weight = floats(most_k, "routes");
  shared_gate = floats(static_cast<std::int64_t>(c.n_shared_experts) * c.moe_intermediate_size, "shared expert");
  shared_up = floats(static_cast<std::int64_t>(c.n_shared_experts) * c.moe_intermediate_size, "shared expert");
  expert_y = floats(std::max(most_k * h, m * h), "expert outputs");
  const std::int64_t columns = static_cast<std::int64_t>(c.engram_max_ngram_size - 1) * c.engram_n_heads;
  if (!c.engram_layer_ids.empty()) {
    engram_index = floats(2 * columns, "Engram rows");
    engram_e = floats(columns * c.engram_head_dim, "Engram values");
    engram_kv = floats((m + 1) * h, "Engram values");
  }
  features = floats(targets * h, "drafter features");
  const std::int64_t logit_rows = std::max(o.max_logit_rows, block);
  logits = allocate(4 * logit_rows * c.vocab_size, "logits");
  logit_x = allocate(4 * logit_rows * h, "logits");
  logit_trunk = allocate(4 * static_cast<std::int64_t>(o.max_logit_rows) * m * h, "logits");
  logit_pre = allocate(4 * static_cast<std::int64_t>(o.max_logit_rows) * m, "logits");
  logit_index = allocate(4 * static_cast<std::int64_t>(o.max_logit_rows), "logits");
  if (block > 0)
    draft_sequences =
        static_cast<int>(std::clamp<std::int64_t>(std::min(logit_rows, rows) / block, 1, o.max_sequences));
  const auto numbers = [&](std::int64_t per_sequence, std::int64_t size = 4) {
    return allocate(size * per_sequence * draft_sequences, "drafts");
  };
  for (buffer* b :
       {&draft_ids, &draft_position, &draft_sequence, &draft_lo, &draft_hi, &draft_position_of, &drafts, &draft_conf})
    *b = numbers(block);
  for (buffer* b : {&draft_first, &draft_rows, &draft_start, &draft_score, &draft_token, &draft_status, &draft_logprob})
    *b = numbers(1);
  draft_before = numbers(1, 8);
  draft_markov = numbers(c.dspark_markov_rank);
  draft_features = numbers(h + c.dspark_markov_rank);
  draft_bias = numbers(c.vocab_size);
}

std::int64_t step_buffer_bytes(const model_config& config, const runner_options& options) {
  std::int64_t total = 0;
  const workspace counted(config, options, [&](std::size_t bytes, const char*) {
    total += static_cast<std::int64_t>(bytes);
    return buffer();
  });
  return total;
}

namespace {

// Numbers of 4 bytes that a state slot has of each kind.
struct slot_numbers {
  std::int64_t position = 1, stopped = 1, ids = 0, drafts = 0, confidence = 0, logits = 0;
  slot_numbers(const model_config& c, bool rejection)
      : ids(std::max(c.engram_max_ngram_size, 1)), drafts(c.num_nextn_predict_layers > 0 ? c.dspark_block_size : 0),
        confidence(drafts), logits(rejection ? drafts * c.vocab_size : 0) {}
  std::int64_t all() const { return position + stopped + ids + drafts + confidence + logits; }
};

// Floats of the features that a state slot keeps where the drafter's cache is deferred.
std::int64_t kept_features(const model_config& c, const runner_options& o) {
  const auto targets = static_cast<std::int64_t>(c.dspark_target_layer_ids.size());
  return o.defers_drafter && c.num_nextn_predict_layers > 0
             ? cache_layout(c, o.rounding).window_entries * targets * c.hidden_size
             : 0;
}

} // namespace

std::int64_t decode_state_bytes(const model_config& config, const runner_options& options) {
  return 4 * std::int64_t{options.state_slots} *
         (slot_numbers(config, options.rejection).all() + kept_features(config, options));
}

model_runner::impl::impl(std::shared_ptr<const model_weights> w, device& d, const runner_options& o, expert_backend* e,
                         context_group* g)
    : weights(std::move(w)), dev(d), ops(d.ops()), options(o), layout(weights->config, o.rounding),
      work(d.make_stream()), experts(e), context(g), split(g ? g->ranks() : 1), kept_split(split.ranks()),
      block_pool(d.allocate(layout.block_bytes * o.kv_blocks, "KV blocks")),
      slot_pool(d.allocate(layout.slot_bytes * o.state_slots, "state slots")),
      ws(weights->config, o, [&d](std::size_t bytes, const char* what) { return d.allocate(bytes, what); }),
      input(weights->config, d, o.max_rows, o.max_sequences, o.max_model_len),
      draft_input(d, "draft inputs",
                  static_cast<std::size_t>(ws.draft_sequences) * (4 + sizeof(sample_row_params)) +
                      4 * array_places::alignment),
      deferred_input(d, "deferred rows of the drafter",
                     o.defers_drafter ? 6 * (4 * static_cast<std::size_t>(ws.rows) + array_places::alignment) : 0) {
  // The first site applies weight 1 to stream 0.
  std::vector<float> one_hot(static_cast<std::size_t>(ws.rows) * c().hc_mult, 0.0f);
  for (std::size_t i = 0; i < one_hot.size(); i += c().hc_mult)
    one_hot[i] = 1.0f;
  first_mix = d.allocate(4 * one_hot.size(), "first mixes");
  work->to_device(first_mix.as<std::byte>(), one_hot.data(), 4 * one_hot.size());
  counts = d.allocate(4 * static_cast<std::size_t>(c().num_hidden_layers) * c().n_routed_experts, "expert counts");
  fills_decode = o.decode == decode_form::padded || (o.decode == decode_form::automatic && d.records() && e == nullptr);
  records = fills_decode && o.decode == decode_form::automatic;
  const slot_numbers numbers(c(), o.rejection);
  state.ngram = static_cast<std::int32_t>(numbers.ids);
  state.block = static_cast<std::int32_t>(numbers.drafts);
  const auto keep = [&](buffer& b, std::int64_t per_slot) {
    b = d.allocate(static_cast<std::size_t>(4 * std::int64_t{o.state_slots} * per_slot), "state of decoding");
  };
  keep(state_memory.position, numbers.position);
  keep(state_memory.ids, numbers.ids);
  keep(state_memory.drafts, numbers.drafts);
  keep(state_memory.confidence, numbers.confidence);
  keep(state_memory.stopped, numbers.stopped);
  if (o.rejection)
    keep(state_memory.logits, numbers.logits);
  if (const std::int64_t features = kept_features(c(), o); features > 0 && !fills_decode) {
    keep(features_kept, features);
    deferred.resize(static_cast<std::size_t>(o.state_slots));
  }
  state.position = state_memory.position.as<std::int32_t>();
  state.ids = state_memory.ids.as<std::int32_t>();
  state.drafts = state_memory.drafts.as<std::int32_t>();
  state.confidence = state_memory.confidence.as<float>();
  state.stopped = state_memory.stopped.as<std::int32_t>();
  state.logits = state_memory.logits.as<float>();
  survival = d.allocate(4 * static_cast<std::size_t>(o.max_sequences) * static_cast<std::size_t>(std::max(o.nextn, 1)),
                        "survival of drafts");
  TROUPE_CHECK(o.nextn >= 0 && o.nextn <= state.block, "more drafts a step than the drafter's block has");
  if (o.yoco != yoco_mode::off)
    consumer_input = std::make_unique<step_input_builder>(c(), d, o.max_rows, o.max_sequences, o.max_model_len);
}

dev_ptr<const float> model_runner::impl::product_input(dev_ptr<const float> from, int rows, int cols, buffer& to) {
  if (!act())
    return from;
  ops.round(*work, {from, rows, cols, kv_format::fp8_ue8m0_32, to.as<float>()});
  return to.as<const float>();
}

void model_runner::impl::linear(dev_ptr<const float> from, const weight_ptr& w, int rows, dev_ptr<float> to,
                                int groups) {
  ops.linear(*work, {from, w.get(), rows, groups, to});
}

void model_runner::impl::norm(dev_ptr<const float> from, const norm_weights& w, int rows, int cols, dev_ptr<float> to) {
  ops.rms_norm(*work, {from, w.get(), rows, cols, c().rms_norm_eps, to});
}

void model_runner::impl::rope(dev_ptr<float> x, int rows, int heads, int dim, dev_ptr<const std::int32_t> position,
                              bool compressed, bool inverse) {
  const auto& table = compressed ? weights->rope_compressed : weights->rope_plain;
  ops.rope(*work, {x, rows, heads, dim, c().qk_rope_head_dim, position, table.as<const float>(), inverse});
}

dev_ptr<const std::byte> model_runner::impl::of_all_rows(const step_input& in, const buffer& here,
                                                         std::int64_t row_bytes, const buffer& all) {
  if (!in.shared)
    return here.as<const std::byte>();
  context->gather(*work, here.as<const std::byte>(), row_bytes, (in.kept ? kept_split : split).runs(),
                  all.as<std::byte>());
  return all.as<const std::byte>();
}

ring_view model_runner::impl::window_ring(int layer) const {
  return {slot_pool.as<std::byte>() + layout.layers[layer].window, layout.slot_bytes, layout.window_entries,
          c().head_dim, layout.window_format};
}

block_view model_runner::impl::main_blocks(int layer) const {
  return {block_pool.as<std::byte>() + layout.layers[layer].main, layout.block_bytes,
          tokens_per_block / c().layers[layer].ratio, c().head_dim, layout.main_format};
}

block_view model_runner::impl::index_blocks(int layer) const {
  return {block_pool.as<std::byte>() + layout.layers[layer].index, layout.block_bytes,
          tokens_per_block / c().layers[layer].ratio, c().index_head_dim, layout.index_format};
}

void model_runner::impl::embed(const step_input& in) {
  const int n = in.map.rows, m = c().hc_mult;
  ops.embed(*work, {weights->embed.get(), in.tokens, n, m, ws.trunk.as<float>()});
  work->copy(ws.pre.as<std::byte>(), first_mix.as<const std::byte>(), 4 * static_cast<std::size_t>(n) * m);
}

void model_runner::impl::engram(const step_input& in, int layer) {
  const auto& e = weights->layers[layer].engram;
  const int n = in.map.rows, ngram = c().engram_max_ngram_size, heads = c().engram_n_heads,
            columns = (ngram - 1) * heads;
  ops.engram_rows(*work, {in.map, in.key_tokens, in.history, weights->token_map.as<const std::int32_t>(), weights->pad,
                          ngram, heads, e.multipliers.as<const std::int64_t>(), e.primes.as<const std::int64_t>(),
                          e.offsets.as<const std::int64_t>(), ws.engram_index.as<std::int64_t>()});
  ops.gather(*work, {e.table.get(), ws.engram_index.as<const std::int64_t>(), n, columns, ws.engram_e.as<float>()});
  linear(ws.engram_e.as<const float>(), e.wkv, n, ws.engram_kv.as<float>());
  ops.engram_gate(*work, {ws.trunk.as<float>(), ws.engram_kv.as<const float>(), e.qk_weight.get(), n, c().hc_mult,
                          c().hidden_size, c().rms_norm_eps});
}

void model_runner::impl::collapse(int rows, const buffer& mix) {
  ops.hc_collapse(
      *work, {ws.trunk.as<const float>(), mix.as<const float>(), rows, c().hc_mult, c().hidden_size, ws.x.as<float>()});
}

void model_runner::impl::mixes(const hc_site_weights& site, int rows, buffer& pre_out) {
  ops.hc_mixes(*work, {ws.trunk.as<const float>(), site.fn.get(), site.scale.get(), site.base.get(), rows, c().hc_mult,
                       c().hidden_size, c().hc_sinkhorn_iters, c().hc_eps, c().rms_norm_eps, pre_out.as<float>(),
                       ws.post.as<float>(), ws.comb.as<float>()});
}

void model_runner::impl::expand(int rows) {
  ops.hc_expand(*work, {ws.y.as<const float>(), ws.post.as<const float>(), ws.comb.as<const float>(), rows, c().hc_mult,
                        c().hidden_size, ws.trunk.as<float>()});
}

// Compressor and index keys of a KV source: the blocks that this step completes go into the paged caches (model.md
// §5.1).
void model_runner::impl::compress(const step_input& in, int layer) {
  const auto& facts = c().layers[layer];
  const auto& w = weights->layers[layer].attn;
  const auto& part = in.ratio[facts.ratio];
  const int n = in.map.rows, d = c().head_dim;
  linear(ws.normed.as<const float>(), w.compressor.kg, n, ws.kg.as<float>());
  // From here on every rank computes all blocks of a shared step: it is little work, and its caches need them all.
  const auto kg = of_all_rows(in, ws.kg, 4 * std::int64_t{facts.ratio} * d, ws.all_kg).as<const float>();
  dev_ptr<const float> blocks = kg;
  if (facts.ratio == 2) {
    ring_view pending{slot_pool.as<std::byte>() + layout.layers[layer].pending, layout.slot_bytes,
                      layout.pending_entries, 2 * d, kv_format::f32};
    if (part.blocks > 0)
      ops.compress(*work, {in.keys, kg, pending, part.last_row, part.blocks, d, ws.latent.as<float>()});
    ops.ring_commit(*work, {in.keys, kg.as<const std::byte>(), pending});
    blocks = ws.latent.as<const float>();
  }
  if (part.blocks == 0)
    return;
  norm(blocks, w.compressor.norm, part.blocks, d, ws.latent.as<float>());
  work->copy(ws.rotated.as<std::byte>(), ws.latent.as<const std::byte>(),
             4 * static_cast<std::size_t>(part.blocks) * d);
  rope(ws.rotated.as<float>(), part.blocks, 1, d, part.position, true);
  ops.block_store(*work, {ws.rotated.as<const float>(), part.entry, part.blocks, main_blocks(layer)});
  if (facts.owns_index_k) {
    const int di = c().index_head_dim;
    linear(ws.latent.as<const float>(), w.indexer.wk, part.blocks, ws.index_key.as<float>());
    norm(ws.index_key.as<const float>(), w.indexer.k_norm, part.blocks, di, ws.index_key.as<float>());
    rope(ws.index_key.as<float>(), part.blocks, 1, di, part.position, true);
    ops.block_store(*work, {ws.index_key.as<const float>(), part.entry, part.blocks, index_blocks(layer)});
  }
}

// Which compressed keys each row attends to: published in ws.selected for this layer and those that reuse it (§5.2,
// §5.3).
void model_runner::impl::select(const step_input& in, int layer, dev_ptr<const float> qr_input) {
  const auto& facts = c().layers[layer];
  const auto& w = weights->layers[layer].attn.indexer;
  const auto& part = in.ratio[facts.ratio];
  const int n = in.map.rows, heads = c().index_n_heads, dim = c().index_head_dim, topk = c().index_topk;
  const int reach = c().candidate_topk_blocks * c().candidate_block_size; // candidates hold everything up to here
  const bool many = part.max_visible > reach && c().candidate_source_layer_id >= 0;
  select_args choice{0,
                     n,
                     {},
                     0,
                     part.visible,
                     {},
                     c().candidate_block_size,
                     c().candidate_topk_blocks,
                     topk,
                     ws.selected.as<std::int32_t>()};
  if (part.max_visible <= topk) { // nothing to drop, so no score matters
    ops.select(*work, choice);
    return;
  }
  linear(qr_input, w.wq_b, n, ws.index_q.as<float>());
  rope(ws.index_q.as<float>(), n, heads, dim, in.map.position, true);
  if (options.rounding != roundings::off)
    ops.round(*work, {ws.index_q.as<const float>(), n, heads * dim, kv_format::fp4_ue8m0_32, ws.index_q.as<float>()});
  linear(ws.normed.as<const float>(), w.weights_proj, n, ws.index_a.as<float>());

  const std::int64_t stride = (part.max_visible + 15) / 16 * 16;
  const int tile = static_cast<int>(std::clamp<std::int64_t>(ws.scores_floats / stride, 1, n));
  for (int first = 0; first < n; first += tile) {
    const int count = std::min(tile, n - first);
    ops.index_scores(*work,
                     {in.map, first, count, heads, dim, ws.index_q.as<const float>(), ws.index_a.as<const float>(),
                      index_blocks(facts.index_k_source), part.visible, ws.scores.as<float>(), stride});
    if (facts.is_candidate_source && many)
      ops.candidates(*work, {first, count, ws.scores.as<const float>(), stride, part.visible, c().candidate_block_size,
                             c().candidate_topk_blocks, ws.candidates.as<std::int32_t>()});
    choice.first = first;
    choice.count = count;
    choice.scores = ws.scores.as<const float>();
    choice.stride = stride;
    if (facts.uses_candidates && many)
      choice.candidates = ws.candidates.as<const std::int32_t>();
    ops.select(*work, choice);
  }
}

void model_runner::impl::attention_site(const step_input& in, int layer, bool draft) {
  const auto& l = weights->layers[layer];
  const auto& a = l.attn;
  const int n = in.map.rows, h = c().hidden_size, d = c().head_dim, heads = c().num_attention_heads;
  const int ratio = draft ? 0 : c().layers[layer].ratio;
  const bool compressed = ratio > 0;
  collapse(n, ws.pre);
  norm(ws.x.as<const float>(), l.attn_norm, n, h, ws.normed.as<float>());
  mixes(l.hc_attn, n, ws.next_pre);

  if (compressed && c().layers[layer].owns_compressor && !in.kept)
    compress(in, layer);
  auto x = product_input(ws.normed.as<const float>(), n, h, ws.rounded);
  linear(x, a.wkv, n, ws.kv.as<float>());
  linear(x, a.wq_a, n, ws.qa.as<float>());
  norm(ws.qa.as<const float>(), a.q_norm, n, c().q_lora_rank, ws.qr.as<float>());
  auto qr = product_input(ws.qr.as<const float>(), n, c().q_lora_rank, ws.qa);
  linear(qr, a.wq_b, n, ws.q.as<float>());
  rope(ws.q.as<float>(), n, heads, d, in.map.position, compressed);
  norm(ws.kv.as<const float>(), a.kv_norm, n, d, ws.kv.as<float>());
  rope(ws.kv.as<float>(), n, 1, d, in.map.position, compressed);
  ops.encode(*work, {ws.kv.as<const float>(), n, d, layout.window_format, ws.own.as<std::byte>()});
  if (compressed && c().layers[layer].owns_indexer)
    select(in, layer, qr);

  const auto own = of_all_rows(in, ws.own, record_bytes(layout.window_format, d), ws.all_own);
  attention_args args{in.map, heads, d, 1.0f,         ws.q.as<const float>(), own, window_ring(layer),
                      {},     {},    0, a.sink.get(), ws.attended.as<float>()};
  args.scale = attention_scale(d);
  if (compressed) {
    args.blocks = main_blocks(c().layers[layer].kv_source);
    args.selected = ws.selected.as<const std::int32_t>();
    args.topk = c().index_topk;
  }
  ops.attention(*work, args);
  if (!draft)
    ops.ring_commit(*work, {in.keys, own, window_ring(layer)});

  rope(ws.attended.as<float>(), n, heads, d, in.map.position, compressed, true);
  auto o = product_input(ws.attended.as<const float>(), n, heads * d, ws.rounded);
  linear(o, a.wo_a, n, ws.z.as<float>(), c().o_groups);
  auto z = product_input(ws.z.as<const float>(), n, c().o_groups * c().o_lora_rank, ws.rounded);
  linear(z, a.wo_b, n, ws.y.as<float>());
  expand(n);
}

void model_runner::impl::moe_site(const step_input& in, int layer) {
  const auto& l = weights->layers[layer];
  const auto& m = l.moe;
  const int n = in.map.rows, h = c().hidden_size, inner = c().n_shared_experts * c().moe_intermediate_size;
  collapse(n, ws.next_pre);
  norm(ws.x.as<const float>(), l.ffn_norm, n, h, ws.normed.as<float>());
  mixes(l.hc_ffn, n, ws.pre);

  linear(ws.normed.as<const float>(), m.gate, n, ws.gate_logits.as<float>());
  auto expert = ws.route_expert.as<std::int32_t>();
  route_args route{
      ws.gate_logits.as<const float>(), m.bias.get(), n, m.n_experts, m.k, c().routed_scaling_factor, expert,
      ws.route_weight.as<float>(),      in.live,      {}};
  if (layer < c().num_hidden_layers && in.counted)
    route.counts = counts.as<std::uint32_t>() + static_cast<std::int64_t>(layer) * c().n_routed_experts;
  ops.route(*work, route);
  auto x = product_input(ws.normed.as<const float>(), n, h, ws.rounded);
  experts_args routed{m.experts.get(),
                      weights->identity.as<const std::int32_t>(),
                      x,
                      expert,
                      ws.route_weight.as<const float>(),
                      n,
                      m.k,
                      c().swiglu_limit,
                      act(),
                      ws.expert_y.as<float>()};
  if (experts && layer < c().num_hidden_layers)
    experts->run(*work, layer, routed);
  else
    ops.experts(*work, routed);
  linear(x, m.shared_w1, n, ws.shared_gate.as<float>());
  linear(x, m.shared_w3, n, ws.shared_up.as<float>());
  ops.swiglu(*work, {ws.shared_gate.as<const float>(), ws.shared_up.as<const float>(), n, inner, c().swiglu_limit,
                     ws.shared_gate.as<float>()});
  auto s = product_input(ws.shared_gate.as<const float>(), n, inner, ws.shared_up);
  linear(s, m.shared_w2, n, ws.y.as<float>());
  if (experts && layer < c().num_hidden_layers)
    experts->finish(*work);
  ops.combine(*work, {ws.y.as<const float>(), ws.expert_y.as<const float>(), n, m.k, h, act() && options.combine_bf16,
                      ws.y.as<float>()});
  expand(n);
}

} // namespace troupe
