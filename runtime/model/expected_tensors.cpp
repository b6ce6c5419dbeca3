#include "runtime/model/expected_tensors.hpp"
#include "runtime/model/config.hpp"
#include <algorithm>
#include <utility>

namespace troupe {
namespace {

using shape = std::vector<std::int64_t>;

std::int64_t blocks(std::int64_t n) {
  return (n + 31) / 32;
}

class list_builder {
public:
  explicit list_builder(const model_config& config) : c_(config) {}

  std::vector<expected_tensor> build() {
    add("embed.weight", tensor_type::bf16, {c_.vocab_size, c_.hidden_size});
    add("head.weight", tensor_type::bf16, {c_.vocab_size, c_.hidden_size});
    norm("norm.weight", c_.hidden_size);
    for (int l = 0; l < c_.num_hidden_layers; ++l) {
      prefix_ = "layers." + std::to_string(l) + ".";
      block(c_.n_routed_experts);
      shared(c_.layers[static_cast<std::size_t>(l)]);
    }
    for (int i = 0; i < c_.num_nextn_predict_layers; ++i) {
      prefix_ = "mtp." + std::to_string(i) + ".";
      block(c_.dspark_n_routed_experts);
      drafter(i == 0, i == c_.num_nextn_predict_layers - 1);
    }
    return std::move(list_);
  }

private:
  void add(const std::string& suffix, tensor_type dtype, shape s) {
    list_.push_back({prefix_ + suffix, dtype, std::move(s), false});
  }

  // Tensors whose storage type differs between releases.
  void either(const std::string& suffix, shape s) {
    list_.push_back({prefix_ + suffix, tensor_type::bf16, std::move(s), true});
  }
  void norm(const std::string& suffix, std::int64_t n) { either(suffix, {n}); }

  // E4M3 [rows, columns] with one exponent per 32 x 32 block.
  void fp8(const std::string& module, std::int64_t rows, std::int64_t columns) {
    add(module + ".weight", tensor_type::f8_e4m3, {rows, columns});
    add(module + ".scale", tensor_type::f8_e8m0, {blocks(rows), blocks(columns)});
  }

  // Packed E2M1 [rows, columns / 2] with one exponent per row and 32 columns.
  void mxfp4(const std::string& module, std::int64_t rows, std::int64_t columns) {
    add(module + ".weight", tensor_type::i8, {rows, columns / 2});
    add(module + ".scale", tensor_type::f8_e8m0, {rows, columns / 32});
  }

  // What every layer has, of the backbone or of the drafter.
  void block(int experts) {
    const std::int64_t h = c_.hidden_size, d = c_.head_dim, n_h = c_.num_attention_heads, m = c_.hc_mult,
                       f = c_.moe_intermediate_size;
    norm("attn_norm.weight", h);
    norm("ffn_norm.weight", h);
    for (const std::string site : {"hc_attn_", "hc_ffn_"}) {
      add(site + "fn", tensor_type::f32, {m * (m + 2), m * h});
      add(site + "base", tensor_type::f32, {m * (m + 2)});
      add(site + "scale", tensor_type::f32, {3});
    }
    fp8("attn.wq_a", c_.q_lora_rank, h);
    norm("attn.q_norm.weight", c_.q_lora_rank);
    fp8("attn.wq_b", n_h * d, c_.q_lora_rank);
    fp8("attn.wkv", d, h);
    norm("attn.kv_norm.weight", d);
    add("attn.attn_sink", tensor_type::f32, {n_h});
    const std::int64_t o = std::int64_t{c_.o_groups} * c_.o_lora_rank;
    fp8("attn.wo_a", o, n_h / c_.o_groups * d);
    fp8("attn.wo_b", h, o);

    add("ffn.gate.weight", tensor_type::bf16, {experts, h});
    add("ffn.gate.bias", tensor_type::f32, {experts});
    add("ffn.gate.bias_vl", tensor_type::f32, {experts});
    for (int e = 0; e < experts; ++e) {
      const std::string expert = "ffn.experts." + std::to_string(e);
      mxfp4(expert + ".w1", f, h);
      mxfp4(expert + ".w2", h, f);
      mxfp4(expert + ".w3", f, h);
    }
    const std::int64_t shared_width = c_.n_shared_experts * f;
    fp8("ffn.shared_experts.w1", shared_width, h);
    fp8("ffn.shared_experts.w2", h, shared_width);
    fp8("ffn.shared_experts.w3", shared_width, h);
  }

  // What a backbone layer owns for itself and the layers that share with it.
  void shared(const layer_config& layer) {
    const std::int64_t h = c_.hidden_size, d = c_.head_dim;
    if (layer.owns_compressor) {
      add("attn.compressor.wkv.weight", tensor_type::bf16, {d, h});
      if (layer.ratio == 2)
        add("attn.compressor.wgate.weight", tensor_type::bf16, {d, h});
      norm("attn.compressor.norm.weight", d);
    }
    if (layer.owns_indexer) {
      fp8("attn.indexer.wq_b", std::int64_t{c_.index_n_heads} * c_.index_head_dim, c_.q_lora_rank);
      add("attn.indexer.weights_proj.weight", tensor_type::bf16, {c_.index_n_heads, h});
    }
    if (layer.owns_index_k) {
      add("attn.indexer.wk.weight", tensor_type::bf16, {c_.index_head_dim, d});
      norm("attn.indexer.k_norm.weight", c_.index_head_dim);
    }
    if (layer.is_engram) {
      const std::int64_t rows = c_.engram_num_embeddings[static_cast<std::size_t>(layer.engram_index)],
                         width = c_.engram_head_dim;
      add("engram.embed.weight", tensor_type::f8_e4m3, {rows, width});
      add("engram.embed.scale", tensor_type::f8_e8m0, {rows, width / 32});
      fp8("engram.wkv", (c_.hc_mult + 1) * h, (c_.engram_max_ngram_size - 1) * std::int64_t{c_.engram_n_heads} * width);
      either("engram.q_weight", {c_.hc_mult, h});
      either("engram.k_weight", {c_.hc_mult, h});
    }
  }

  void drafter(bool first, bool last) {
    const std::int64_t h = c_.hidden_size, rank = c_.dspark_markov_rank;
    if (first) {
      fp8("main_proj", h, h * static_cast<std::int64_t>(c_.dspark_target_layer_ids.size()));
      norm("main_norm.weight", h);
    }
    if (last) {
      norm("norm.weight", h);
      add("markov_head.embed.weight", tensor_type::bf16, {c_.vocab_size, rank});
      add("markov_head.head.weight", tensor_type::bf16, {c_.vocab_size, rank});
      either("confidence_head.proj.weight", {1, h + rank});
    }
  }

  const model_config& c_;
  std::string prefix_;
  std::vector<expected_tensor> list_;
};

} // namespace

std::vector<expected_tensor> expected_tensors(const model_config& config) {
  return list_builder(config).build();
}

bool is_ignored_tensor(std::string_view name, const model_config& config) {
  for (std::string_view prefix : {"vision.", "aligner.", "image_"})
    if (name.substr(0, prefix.size()) == prefix)
      return true;
  for (int i = 0; i < config.num_nextn_predict_layers; ++i)
    for (const char* tied : {".embed.weight", ".head.weight"})
      if (name == "mtp." + std::to_string(i) + tied)
        return true;
  return false;
}

void leave_out_absent_drafter(model_config& c, const tensor_table& present) {
  constexpr std::string_view drafter = "mtp.";
  const auto first = present.lower_bound(drafter);
  if (first != present.end() && first->first.starts_with(drafter))
    return;
  c = without_drafter(std::move(c));
}

tensor_faults find_tensor_faults(const std::vector<expected_tensor>& expected, const model_config& config,
                                 const tensor_table& present) {
  tensor_faults faults;
  std::vector<std::string_view> known;
  for (const expected_tensor& want : expected) {
    known.push_back(want.name);
    const auto it = present.find(want.name);
    if (it == present.end()) {
      faults.missing.push_back(want.name);
      continue;
    }
    const host_tensor* have = it->second;
    const bool same_type = !have || have->dtype == want.dtype || (want.also_f32 && have->dtype == tensor_type::f32);
    if (have && (!same_type || have->shape != want.shape))
      faults.wrong.push_back(want.name + " (" + describe(*have) + " instead of " +
                             describe({"", want.dtype, want.shape, {}}) + (want.also_f32 ? " or F32)" : ")"));
  }
  std::sort(known.begin(), known.end());
  for (const auto& [name, tensor] : present)
    if (!std::binary_search(known.begin(), known.end(), std::string_view(name)) && !is_ignored_tensor(name, config))
      faults.unknown.push_back(name);
  return faults;
}

std::string name_list(const char* what, const std::vector<std::string>& names, std::size_t max_names) {
  if (names.empty())
    return "";
  std::string s = std::to_string(names.size()) + (names.size() == 1 ? " tensor " : " tensors ") + what + ": ";
  for (std::size_t i = 0; i < names.size() && i < max_names; ++i)
    s += (i ? ", " : "") + names[i];
  if (names.size() > max_names)
    s += " and " + std::to_string(names.size() - max_names) + " more";
  return s;
}

std::string compare_tensors(const model_config& config, const tensor_table& present, std::size_t max_names) {
  const tensor_faults faults = find_tensor_faults(expected_tensors(config), config, present);
  std::string text;
  for (const std::string& part :
       {name_list("missing", faults.missing, max_names), name_list("of wrong type or shape", faults.wrong, max_names),
        name_list("not part of this model", faults.unknown, max_names)})
    if (!part.empty())
      text += (text.empty() ? "" : "; ") + part;
  return text;
}

} // namespace troupe
