#include "runtime/model/weights.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/rope.hpp"
#include "runtime/model/engram.hpp"
#include <algorithm>
#include <cstring>
#include <optional>

namespace troupe {
namespace {

buffer upload(device& dev, stream& s, const void* data, std::size_t bytes, const std::string& what) {
  buffer b = dev.allocate(std::max<std::size_t>(bytes, 64), what);
  s.to_device(b.as<std::byte>(), data, bytes);
  return b;
}

class loader {
public:
  loader(const checkpoint_ptr& from, device& dev, model_weights& out)
      : from_(from), dev_(dev), out_(out), stream_(dev.make_stream()) {}

  void layer(int index, const std::string& prefix, bool body, bool with_experts);
  void globals(const std::vector<std::int32_t>& token_map, int max_positions);
  void drafter();
  void finish() { stream_->synchronise(); }

private:
  weight_ptr pack(const std::string& name) { return dev_.pack(source_of(from_, name)); }
  norm_weights vector(const std::string& name) {
    auto values = read_f32(from_->get(name));
    return {upload(dev_, *stream_, values.data(), values.size() * sizeof(float), name)};
  }
  template <class T> buffer integers(const std::vector<T>& values, const std::string& what) {
    return upload(dev_, *stream_, values.data(), values.size() * sizeof(T), what);
  }
  hc_site_weights site(const std::string& prefix) {
    return {pack(prefix + "fn"), vector(prefix + "scale"), vector(prefix + "base")};
  }
  void compressor(attention_weights& a, const std::string& prefix, int ratio);
  void engram(engram_weights& e, const std::string& prefix, const engram_table& table);
  buffer rope_table(bool compressed, int positions);

  const checkpoint_ptr& from_;
  device& dev_;
  model_weights& out_;
  std::unique_ptr<stream> stream_;
};

void loader::compressor(attention_weights& a, const std::string& prefix, int ratio) {
  auto k = source_of(from_, prefix + "wkv.weight");
  if (ratio == 1) {
    a.compressor.kg = dev_.pack(k);
  } else { // one product for both: rows of wkv, then rows of wgate
    auto g = source_of(from_, prefix + "wgate.weight");
    TROUPE_CHECK(k.format == g.format && k.scale.empty() && g.scale.empty(), "compressor weights of two formats");
    auto both = std::make_shared<std::vector<std::byte>>(k.data.begin(), k.data.end());
    both->insert(both->end(), g.data.begin(), g.data.end());
    a.compressor.kg = dev_.pack({k.format, k.rows + g.rows, k.cols, *both, {}, both});
  }
  a.compressor.norm = vector(prefix + "norm.weight");
}

void loader::engram(engram_weights& e, const std::string& prefix, const engram_table& table) {
  auto rows = source_of(from_, prefix + "embed.weight");
  e.table = dev_.pack_table(rows);
  e.wkv = pack(prefix + "wkv.weight");
  auto q = read_f32(from_->get(prefix + "q_weight")), k = read_f32(from_->get(prefix + "k_weight"));
  for (std::size_t i = 0; i < q.size(); ++i)
    q[i] *= k[i];
  e.qk_weight = {upload(dev_, *stream_, q.data(), q.size() * sizeof(float), prefix + "q_weight")};
  e.multipliers = integers(table.multipliers, prefix + "multipliers");
  e.primes = integers(table.primes, prefix + "primes");
  e.offsets = integers(table.offsets, prefix + "offsets");
}

void loader::layer(int index, const std::string& prefix, bool body, bool with_experts) {
  const auto& c = out_.config;
  auto& l = out_.layers[index];
  l.attn_norm = vector(prefix + "attn_norm.weight");
  l.ffn_norm = vector(prefix + "ffn_norm.weight");
  l.hc_attn = site(prefix + "hc_attn_");
  l.hc_ffn = site(prefix + "hc_ffn_");

  auto attn = prefix + "attn.";
  auto& a = l.attn;
  a.wq_a = pack(attn + "wq_a.weight");
  a.wq_b = pack(attn + "wq_b.weight");
  a.wkv = pack(attn + "wkv.weight");
  a.wo_a = pack(attn + "wo_a.weight");
  a.wo_b = pack(attn + "wo_b.weight");
  a.q_norm = vector(attn + "q_norm.weight");
  a.kv_norm = vector(attn + "kv_norm.weight");
  a.sink = vector(attn + "attn_sink");
  if (body) {
    const auto& facts = c.layers[index];
    if (facts.owns_compressor)
      compressor(a, attn + "compressor.", facts.ratio);
    if (facts.owns_indexer) {
      a.indexer.wq_b = pack(attn + "indexer.wq_b.weight");
      a.indexer.weights_proj = pack(attn + "indexer.weights_proj.weight");
    }
    if (facts.owns_index_k) {
      a.indexer.wk = pack(attn + "indexer.wk.weight");
      a.indexer.k_norm = vector(attn + "indexer.k_norm.weight");
    }
  }

  auto ffn = prefix + "ffn.";
  auto& m = l.moe;
  m.n_experts = body ? c.n_routed_experts : c.dspark_n_routed_experts;
  m.k = body ? c.num_experts_per_tok : c.dspark_num_experts_per_tok;
  m.gate = pack(ffn + "gate.weight");
  m.bias = vector(ffn + "gate.bias");
  m.shared_w1 = pack(ffn + "shared_experts.w1.weight");
  m.shared_w3 = pack(ffn + "shared_experts.w3.weight");
  m.shared_w2 = pack(ffn + "shared_experts.w2.weight");
  if (with_experts)
    m.experts = dev_.pack_experts(expert_sources(from_, prefix, 0, m.n_experts));
}

buffer loader::rope_table(bool compressed, int positions) {
  const auto& c = out_.config;
  std::optional<yarn_params> yarn;
  if (compressed && c.rope_scaling)
    yarn = yarn_params{c.rope_scaling->factor, c.rope_scaling->beta_fast, c.rope_scaling->beta_slow,
                       static_cast<double>(c.rope_scaling->original_max_position_embeddings)};
  auto freqs = rope_frequencies(c.qk_rope_head_dim, compressed ? c.compress_rope_theta : c.rope_theta, yarn);
  std::size_t half = freqs.size();
  std::vector<float> table(static_cast<std::size_t>(positions) * 2 * half);
  for (int p = 0; p < positions; ++p)
    for (std::size_t i = 0; i < half; ++i)
      rope_cos_sin(rope_angle(p, freqs[i]), table[p * 2 * half + i], table[p * 2 * half + half + i]);
  return upload(dev_, *stream_, table.data(), table.size() * sizeof(float), "rotary table");
}

void loader::globals(const std::vector<std::int32_t>& token_map, int max_positions) {
  const auto& c = out_.config;
  out_.embed = dev_.pack_table(source_of(from_, "embed.weight"));
  out_.head = pack("head.weight");
  out_.norm = vector("norm.weight");
  out_.rope_plain = rope_table(false, max_positions);
  out_.rope_compressed = rope_table(true, max_positions);
  std::vector<std::int32_t> identity(std::max(c.n_routed_experts, c.dspark_n_routed_experts));
  for (std::size_t i = 0; i < identity.size(); ++i)
    identity[i] = static_cast<std::int32_t>(i);
  out_.identity = integers(identity, "expert slots");
  if (c.engram_layer_ids.empty())
    return;
  // Rows of the embedding past the tokenizer's vocabulary are never hashed; they count as the pad.
  out_.pad = token_map.at(c.engram_pad_token_id);
  std::vector<std::int32_t> full(c.vocab_size, out_.pad);
  std::copy_n(token_map.begin(), std::min<std::size_t>(token_map.size(), full.size()), full.begin());
  for (auto& id : full)
    id = id < 0 ? out_.pad : id;
  out_.token_map = integers(full, "compressed vocabulary");
  for (const auto& table : engram_tables(c))
    engram(out_.layers[table.layer].engram, "layers." + std::to_string(table.layer) + ".engram.", table);
}

void loader::drafter() {
  const auto& c = out_.config;
  if (c.num_nextn_predict_layers == 0)
    return;
  auto last = "mtp." + std::to_string(c.num_nextn_predict_layers - 1) + ".";
  auto& d = out_.drafter;
  d.main_proj = pack("mtp.0.main_proj.weight");
  d.main_norm = vector("mtp.0.main_norm.weight");
  d.norm = vector(last + "norm.weight");
  d.markov_embed = dev_.pack_table(source_of(from_, last + "markov_head.embed.weight"));
  d.markov_head = pack(last + "markov_head.head.weight");
  d.confidence = pack(last + "confidence_head.proj.weight");
}

} // namespace

weight_source source_of(const checkpoint_ptr& from, const std::string& name) {
  const auto& t = from->get(name);
  weight_source s;
  s.rows = t.shape.size() == 2 ? t.shape[0] : 1;
  s.cols = t.shape.back();
  s.data = t.bytes;
  s.owner = from;
  switch (t.dtype) {
  case tensor_type::f32:
    s.format = weight_format::f32;
    break;
  case tensor_type::bf16:
    s.format = weight_format::bf16;
    break;
  case tensor_type::f8_e4m3:
  case tensor_type::i8: {
    const auto& scale = from->get(name.substr(0, name.size() - std::strlen("weight")) + "scale");
    s.scale = scale.bytes;
    if (t.dtype == tensor_type::i8) {
      s.format = weight_format::mxfp4;
      s.cols *= 2;
    } else {
      s.format = scale.shape[0] == s.rows && s.rows > 1 ? weight_format::fp8_row : weight_format::fp8_block;
    }
    break;
  }
  default:
    TROUPE_CHECK(false, "a tensor type that the checkpoint's checks let through");
  }
  return s;
}

std::vector<expert_source> expert_sources(const checkpoint_ptr& from, const std::string& layer_prefix, int first,
                                          int count) {
  std::vector<expert_source> out;
  for (int e = first; e < first + count; ++e) {
    auto p = layer_prefix + "ffn.experts." + std::to_string(e) + ".";
    out.push_back(
        {source_of(from, p + "w1.weight"), source_of(from, p + "w3.weight"), source_of(from, p + "w2.weight")});
  }
  return out;
}

std::shared_ptr<const model_weights> load_weights(const checkpoint_ptr& source, device& dev,
                                                  const weight_options& options,
                                                  const std::vector<std::int32_t>& token_map,
                                                  const std::function<void(double)>& progress) {
  auto out = std::make_shared<model_weights>();
  out->config = source->config();
  const auto& c = out->config;
  int total = c.num_hidden_layers + c.num_nextn_predict_layers;
  out->layers.resize(total);
  loader load(source, dev, *out);
  for (int l = 0; l < total; ++l) {
    bool body = l < c.num_hidden_layers;
    auto prefix = body ? "layers." + std::to_string(l) + "." : "mtp." + std::to_string(l - c.num_hidden_layers) + ".";
    load.layer(l, prefix, body, !body || options.experts);
    if (progress)
      progress((l + 1.0) / (total + 1));
  }
  load.globals(token_map, options.max_positions);
  load.drafter();
  load.finish();
  if (progress)
    progress(1);
  return out;
}

} // namespace troupe
