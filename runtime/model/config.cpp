#include "runtime/model/config.hpp"
#include "runtime/model/engram.hpp"
#include "runtime/model/json_section.hpp"
#include "runtime/model/layer_map.hpp"
#include "runtime/model/read_file.hpp"
#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

// Upper bounds far above any model of this architecture. They keep products inside an int64 and lists inside memory.
constexpr std::int64_t max_width = 1 << 16, max_vocab = 1 << 24, max_layers = 256, max_experts = 1 << 13,
                       max_heads = 1024;
constexpr std::int64_t max_total_experts = 1 << 18, max_total_primes = 1 << 15, max_positions = 1 << 28;

void multiple_of(const json_section& s, const std::string& key, int value, int unit, const std::string& why) {
  if (value % unit != 0)
    s.refuse(key, "must be a multiple of " + std::to_string(unit) + " (" + why + ")");
}

// A width that quantisation splits into blocks of 32.
int width(const json_section& s, const std::string& key) {
  const int value = s.integer<int>(key, 32, max_width);
  multiple_of(s, key, value, 32, "one scale covers 32 channels");
  return value;
}

void read_top(const json_section& top, model_config& c) {
  top.require("architectures", nlohmann::json::array({"DeepseekV41ForCausalLM"}),
              "this program serves DeepSeek-V4.1 checkpoints");
  top.require("model_type", "deepseek_v41", "this program serves DeepSeek-V4.1 checkpoints");
  top.require("dtype", "bfloat16");
  const auto q = top.object("quantization_config");
  const std::string remedy = "use the checkpoint in its released layout: FP8 weights and MXFP4 experts";
  q.require("quant_method", "fp8", remedy);
  q.require("activation_scheme", "dynamic", remedy);
  q.require("weight_block_size", nlohmann::json::array({32, 32}), remedy);
  q.require("scale_fmt", "ue8m0", remedy);
  q.require("expert_dtype", "fp4", remedy);
  const int last = c.vocab_size - 1;
  c.bos_token_id = top.integer_or("bos_token_id", 0, 0, last);
  c.eos_token_id = top.integer_or("eos_token_id", 1, 0, last);
  c.pad_token_id = top.integer_or("pad_token_id", 2, 0, last);
  c.image_token_id = top.integer_or("image_token_id", -1, 0, last);
}

void read_rope(const json_section& text, model_config& c) {
  c.max_position_embeddings = text.integer<int>("max_position_embeddings", 1, max_positions);
  c.rope_theta = text.number("rope_theta", 1.5, 1e12);
  c.compress_rope_theta = text.number("compress_rope_theta", 1.5, 1e12);
  if (!text.find("rope_scaling"))
    return;
  const auto yarn = text.object("rope_scaling");
  yarn.require("rope_type", "yarn", "use yarn, or null for plain rotary embedding");
  rope_scaling_config r;
  r.factor = yarn.number("factor", 1, 1e6);
  r.beta_fast = yarn.number("beta_fast", 1e-3, 1e6);
  r.beta_slow = yarn.number("beta_slow", 1e-3, 1e6);
  if (r.beta_fast < r.beta_slow)
    yarn.refuse("beta_fast", "must not be below beta_slow");
  r.original_max_position_embeddings = yarn.integer<int>("original_max_position_embeddings", 1, max_positions);
  c.rope_scaling = r;
}

void read_attention(const json_section& text, model_config& c) {
  text.require("num_key_value_heads", 1);
  text.require("attention_bias", false);
  text.require("attention_dropout", 0);
  c.num_attention_heads = text.integer<int>("num_attention_heads", 1, max_heads);
  c.head_dim = width(text, "head_dim");
  c.qk_rope_head_dim = text.integer<int>("qk_rope_head_dim", 2, c.head_dim);
  multiple_of(text, "qk_rope_head_dim", c.qk_rope_head_dim, 2, "channels rotate in pairs");
  c.q_lora_rank = width(text, "q_lora_rank");
  c.o_groups = text.integer<int>("o_groups", 1, max_heads);
  if (c.num_attention_heads % c.o_groups != 0)
    text.refuse("o_groups", "must divide num_attention_heads = " + std::to_string(c.num_attention_heads));
  c.o_lora_rank = width(text, "o_lora_rank");
  c.sliding_window = text.integer<int>("sliding_window", 1, 1 << 20);
  read_rope(text, c);
}

void read_sharing(const json_section& text, model_config& c) {
  c.compress_ratios = text.integers<int>("compress_ratios", 2 * max_layers, 0, 2);
  if (c.compress_ratios.size() != static_cast<std::size_t>(c.num_hidden_layers + c.num_nextn_predict_layers))
    text.refuse("compress_ratios", "must have num_hidden_layers + num_nextn_predict_layers = " +
                                       std::to_string(c.num_hidden_layers + c.num_nextn_predict_layers) + " entries");
  auto ids = [&](const char* key) { return text.integers<int>(key, max_layers, 0, c.num_hidden_layers - 1); };
  c.kv_source_layer_ids = ids("kv_source_layer_ids");
  c.index_source_layer_ids = ids("index_source_layer_ids");
  c.index_k_source_layer_ids =
      text.find("index_k_source_layer_ids") ? ids("index_k_source_layer_ids") : c.kv_source_layer_ids;
  c.use_fp4_sparse_kv = text.boolean_or("use_fp4_sparse_kv", true);
  if (!c.index_source_layer_ids.empty()) {
    c.index_n_heads = text.integer<int>("index_n_heads", 1, max_heads);
    c.index_head_dim = width(text, "index_head_dim");
    if (c.index_head_dim < c.qk_rope_head_dim)
      text.refuse("index_head_dim",
                  "must hold the qk_rope_head_dim = " + std::to_string(c.qk_rope_head_dim) + " rotated channels");
    c.index_topk = text.integer<int>("index_topk", 1, 1 << 20);
  }
  c.candidate_source_layer_id = text.integer_or("candidate_source_layer_id", -1, -1, c.num_hidden_layers - 1);
  if (c.candidate_source_layer_id >= 0) {
    c.candidate_topk_blocks = text.integer<int>("candidate_topk_blocks", 1, max_positions);
    c.candidate_block_size = text.integer<int>("candidate_block_size", 1, max_positions);
  }
}

void read_experts(const json_section& text, model_config& c) {
  text.require("hidden_act", "silu");
  text.require("scoring_func", "sqrtsoftplus");
  text.require("topk_method", "noaux_tc");
  text.require("norm_topk_prob", true);
  c.n_routed_experts = text.integer<int>("n_routed_experts", 1, max_experts);
  if (std::int64_t{c.n_routed_experts} * c.num_hidden_layers > max_total_experts)
    text.refuse("n_routed_experts",
                "more than " + std::to_string(max_total_experts) + " experts in all layers together");
  c.n_shared_experts = text.integer<int>("n_shared_experts", 1, 64);
  c.num_experts_per_tok = text.integer<int>("num_experts_per_tok", 1, max_experts);
  if (c.num_experts_per_tok > c.n_routed_experts)
    text.refuse("num_experts_per_tok", "must not exceed n_routed_experts = " + std::to_string(c.n_routed_experts));
  c.moe_intermediate_size = width(text, "moe_intermediate_size");
  c.routed_scaling_factor = static_cast<float>(text.number("routed_scaling_factor", 1e-6, 1e6));
  c.swiglu_limit = static_cast<float>(text.number("swiglu_limit", 1e-6, 1e6));
}

void read_engram(const json_section& text, model_config& c) {
  if (text.find("engram_layer_ids"))
    c.engram_layer_ids = text.integers<int>("engram_layer_ids", max_layers, 0, c.num_hidden_layers - 1);
  if (c.engram_layer_ids.empty())
    return;
  c.engram_max_ngram_size = text.integer<int>("engram_max_ngram_size", 2, 16);
  c.engram_n_heads = text.integer<int>("engram_n_heads", 1, max_heads);
  c.engram_head_dim = width(text, "engram_head_dim");
  c.engram_vocab_size = text.integer<int>("engram_vocab_size", 3, 1 << 30);
  c.engram_pad_token_id = text.integer<int>("engram_pad_token_id", 0, c.vocab_size - 1);
  c.engram_compressed_vocab_size = text.integer<int>("engram_compressed_vocab_size", 1, c.vocab_size);
  const auto layers = static_cast<int>(c.engram_layer_ids.size());
  const int orders = c.engram_max_ngram_size - 1;
  if (std::int64_t{orders} * layers * c.engram_n_heads > max_total_primes)
    text.refuse("engram_n_heads", "more than " + std::to_string(max_total_primes) + " tables in all layers together");
  const std::int64_t columns = std::int64_t{orders} * c.engram_n_heads * c.engram_head_dim;
  if (columns > 16 * max_width)
    text.refuse("engram_head_dim",
                "the rows of one position together have more than " + std::to_string(16 * max_width) + " channels");

  c.engram_num_embeddings = text.integers<std::int64_t>("engram_num_embeddings", max_layers, 1, std::int64_t{1} << 40);
  std::vector<std::int64_t> rows;
  for (const auto& primes : engram_primes(c.engram_vocab_size, layers, orders, c.engram_n_heads))
    rows.push_back(std::accumulate(primes.begin(), primes.end(), std::int64_t{0}));
  if (rows != c.engram_num_embeddings)
    text.refuse("engram_num_embeddings",
                "the primes that follow from engram_vocab_size, engram_n_heads and engram_max_ngram_size give " +
                    nlohmann::json(rows).dump().substr(0, 200) + " rows");
}

void read_drafter(const json_section& text, model_config& c) {
  c.dspark_block_size = text.integer_or("dspark_block_size", 5, 1, 64);
  if (c.num_nextn_predict_layers == 0)
    return;
  text.need("dspark_block_size");
  text.require_or_absent("dspark_target_attn_input", true);
  c.dspark_noise_token_id = text.integer<int>("dspark_noise_token_id", 0, c.vocab_size - 1);
  c.dspark_target_layer_ids = text.integers<int>("dspark_target_layer_ids", 64, 0, c.num_hidden_layers - 1);
  c.dspark_markov_rank = text.integer<int>("dspark_markov_rank", 1, max_width);
  c.dspark_n_routed_experts = text.integer<int>("dspark_n_routed_experts", 1, max_experts);
  if (std::int64_t{c.dspark_n_routed_experts} * c.num_nextn_predict_layers > max_total_experts)
    text.refuse("dspark_n_routed_experts",
                "more than " + std::to_string(max_total_experts) + " experts in the drafter");
  c.dspark_num_experts_per_tok = text.integer<int>("dspark_num_experts_per_tok", 1, max_experts);
  if (c.dspark_num_experts_per_tok > c.dspark_n_routed_experts)
    text.refuse("dspark_num_experts_per_tok",
                "must not exceed dspark_n_routed_experts = " + std::to_string(c.dspark_n_routed_experts));
}

model_config read_text_config(const json_section& text) {
  model_config c;
  text.require("model_type", "deepseek_v41_text");
  text.require("tie_word_embeddings", false);
  c.vocab_size = text.integer<int>("vocab_size", 1, max_vocab);
  c.hidden_size = width(text, "hidden_size");
  c.num_hidden_layers = text.integer<int>("num_hidden_layers", 1, max_layers);
  c.num_nextn_predict_layers = text.integer_or("num_nextn_predict_layers", 0, 0, 64);
  c.rms_norm_eps = static_cast<float>(text.number("rms_norm_eps", 1e-37, 1));
  text.require_or_absent("hc_shifted", true);
  c.hc_mult = text.integer<int>("hc_mult", 1, 16);
  c.hc_sinkhorn_iters = text.integer<int>("hc_sinkhorn_iters", 1, 1000);
  c.hc_eps = static_cast<float>(text.number("hc_eps", 1e-37, 1));
  read_attention(text, c);
  read_sharing(text, c);
  read_experts(text, c);
  read_engram(text, c);
  read_drafter(text, c);
  return c;
}

} // namespace

model_config parse_config(std::string_view text, const std::string& file) {
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw config_error(file, "", "", std::string("not valid JSON: ") + e.what(),
                       "take config.json from the checkpoint's release");
  }
  if (!root.is_object())
    throw config_error(file, "", "", "must hold one JSON object", "take config.json from the checkpoint's release");
  const json_section top(root, file, "");
  // A foreign model is named as such before its text_config is looked at.
  top.require("architectures", nlohmann::json::array({"DeepseekV41ForCausalLM"}),
              "this program serves DeepSeek-V4.1 checkpoints");
  model_config c = read_text_config(top.object("text_config"));
  read_top(top, c);
  derive_layers(c, file);
  return c;
}

model_config without_drafter(model_config c) {
  const model_config none;
  c.num_nextn_predict_layers = none.num_nextn_predict_layers;
  c.compress_ratios.resize(static_cast<std::size_t>(c.num_hidden_layers));
  c.dspark_noise_token_id = none.dspark_noise_token_id;
  c.dspark_markov_rank = none.dspark_markov_rank;
  c.dspark_n_routed_experts = none.dspark_n_routed_experts;
  c.dspark_num_experts_per_tok = none.dspark_num_experts_per_tok;
  c.dspark_target_layer_ids.clear();
  for (layer_config& l : c.layers)
    l.draft_feature = layer_config{}.draft_feature;
  return c;
}

model_config load_config(const std::string& folder) {
  const std::string file = folder + "/config.json";
  return parse_config(read_text_file(file, 16 << 20, "give the folder of a DeepSeek-V4.1 checkpoint"), file);
}

} // namespace troupe
