#include "runtime/base/result.hpp"
#include "runtime/model/config.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

using nlohmann::json;
using troupe::config_error;
using troupe::model_config;

namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

const std::string tiny_folder = TROUPE_SOURCE_DIR "/models/tiny-v41";
json tiny() {
  return json::parse(slurp(tiny_folder + "/config.json"));
}

model_config load(const json& j) {
  return troupe::parse_config(j.dump(), "config.json");
}

// The key that the refusal of `j` names, or "accepted".
std::string refused_key(const json& j) {
  try {
    load(j);
  } catch (const config_error& e) {
    BOOST_TEST(e.file == "config.json");
    BOOST_TEST(std::string(e.what()).find(e.key) != std::string::npos);
    return e.key;
  }
  return "accepted";
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_config_reader)

BOOST_AUTO_TEST_CASE(the_embedded_model) {
  const model_config c = troupe::load_config(tiny_folder);
  BOOST_TEST(c.vocab_size == 8192);
  BOOST_TEST(c.hidden_size == 384);
  BOOST_TEST(c.num_hidden_layers == 8);
  BOOST_TEST(c.rope_theta == 10000.0);
  BOOST_TEST(c.compress_rope_theta == 160000.0);
  BOOST_REQUIRE(c.rope_scaling.has_value());
  BOOST_TEST(c.rope_scaling->factor == 4.0);
  BOOST_TEST(c.rope_scaling->original_max_position_embeddings == 4096);
  BOOST_TEST(c.rms_norm_eps == 1e-20f);
  BOOST_TEST(c.hc_eps == 1e-6f);
  BOOST_TEST(c.routed_scaling_factor == 1.5f);
  BOOST_TEST(c.engram_num_embeddings == (std::vector<std::int64_t>{24064, 24336}));
  BOOST_TEST(c.dspark_noise_token_id == 8190);
  BOOST_TEST(c.image_token_id == -1);

  BOOST_TEST(c.n_prefill_layer == 4);
  BOOST_REQUIRE(c.layers.size() == 8u);
  std::vector<int> ratio, kv, index_k, index, engram, feature;
  for (const auto& l : c.layers) {
    ratio.push_back(l.ratio), kv.push_back(l.kv_source), index_k.push_back(l.index_k_source),
        index.push_back(l.index_source);
    engram.push_back(l.engram_index), feature.push_back(l.draft_feature);
    BOOST_TEST(l.is_engram == (l.engram_index >= 0));
  }
  BOOST_TEST(ratio == (std::vector<int>{0, 2, 2, 2, 1, 1, 1, 1}));
  BOOST_TEST(kv == (std::vector<int>{-1, 1, 1, 3, 4, 4, 4, 4}));
  BOOST_TEST(index_k == kv);
  BOOST_TEST(index == (std::vector<int>{-1, 1, 1, 3, 4, 4, 6, 6}));
  BOOST_TEST(engram == (std::vector<int>{-1, 0, -1, 1, -1, -1, -1, -1}));
  BOOST_TEST(feature == (std::vector<int>{-1, -1, -1, -1, -1, 0, 1, 2}));
  for (int l = 0; l < 8; ++l) {
    const auto& x = c.layers[static_cast<std::size_t>(l)];
    BOOST_TEST(x.owns_compressor == (l == 1 || l == 3 || l == 4));
    BOOST_TEST(x.owns_index_k == (l == 1 || l == 3 || l == 4));
    BOOST_TEST(x.owns_indexer == (l == 1 || l == 3 || l == 4 || l == 6));
    BOOST_TEST(x.is_candidate_source == (l == 4));
    BOOST_TEST(x.uses_candidates == (l == 6));
    BOOST_TEST(x.is_consumer == (l >= 4));
  }
}

BOOST_AUTO_TEST_CASE(the_released_model) {
  const model_config c = troupe::parse_config(slurp(TROUPE_SOURCE_DIR "/models/v41-flash/config.json"), "config.json");
  BOOST_TEST(c.bos_token_id == 0);
  BOOST_TEST(c.eos_token_id == 1);
  BOOST_TEST(c.pad_token_id == 2);
  BOOST_TEST(c.n_prefill_layer == 20);
  BOOST_TEST(c.use_fp4_sparse_kv);
  BOOST_TEST(c.index_k_source_layer_ids == (std::vector<int>{2, 8, 14, 20}));
  // The table of layer kinds in model.md §1.
  for (int l = 0; l < 40; ++l) {
    const auto& x = c.layers[static_cast<std::size_t>(l)];
    const int kv = l < 2 ? -1 : l < 8 ? 2 : l < 14 ? 8 : l < 20 ? 14 : 20;
    const int index = l < 20 ? kv : l - l % 4;
    BOOST_TEST(x.kv_source == kv);
    BOOST_TEST(x.index_k_source == kv);
    BOOST_TEST(x.index_source == index);
    BOOST_TEST(x.is_candidate_source == (l == 20));
    BOOST_TEST(x.uses_candidates == (l > 20 && l % 4 == 0));
    BOOST_TEST(x.is_engram == (l == 1 || l == 14));
    BOOST_TEST(x.draft_feature == (l >= 37 ? l - 37 : -1));
  }
}

BOOST_AUTO_TEST_CASE(optional_keys_have_their_documented_meaning) {
  json j = tiny();
  json& t = j["text_config"];
  for (const char* key : {"use_fp4_sparse_kv", "rope_scaling", "candidate_source_layer_id"})
    t.erase(key);
  t["candidate_topk_blocks"] = nullptr;
  j.erase("bos_token_id");
  j["vision_config"] = {{"model_type", 7}};
  j["some_new_key"] = 1;
  t["initializer_range"] = 0.02;
  model_config c = load(j);
  BOOST_TEST(c.use_fp4_sparse_kv);
  BOOST_TEST(!c.rope_scaling.has_value());
  BOOST_TEST(c.candidate_source_layer_id == -1);
  BOOST_TEST(!c.layers[6].uses_candidates);
  BOOST_TEST(c.bos_token_id == 0);

  j = tiny();
  j["text_config"]["candidate_source_layer_id"] = -1;
  j["text_config"]["rope_scaling"] = nullptr;
  j["text_config"]["hc_shifted"] = true;
  j["text_config"]["dspark_target_attn_input"] = true;
  j["text_config"]["use_fp4_sparse_kv"] = false;
  j["text_config"]["index_k_source_layer_ids"] = {1, 3, 4, 6};
  j["image_token_id"] = 8000;
  c = load(j);
  BOOST_TEST(c.candidate_source_layer_id == -1);
  BOOST_TEST(!c.use_fp4_sparse_kv);
  BOOST_TEST(c.layers[7].index_k_source == 6);
  BOOST_TEST(c.layers[6].owns_index_k);
  BOOST_TEST(!c.layers[6].owns_compressor);
  BOOST_TEST(c.image_token_id == 8000);

  j = tiny(); // no drafter
  j["text_config"]["num_nextn_predict_layers"] = 0;
  j["text_config"]["compress_ratios"] = {0, 2, 2, 2, 1, 1, 1, 1};
  for (const char* key : {"dspark_block_size", "dspark_noise_token_id", "dspark_target_layer_ids", "dspark_markov_rank",
                          "dspark_n_routed_experts", "dspark_num_experts_per_tok"})
    j["text_config"].erase(key);
  BOOST_TEST(load(j).dspark_target_layer_ids.empty());
}

// Every key that must be there is named when it is missing, null or of a wrong kind.
BOOST_AUTO_TEST_CASE(missing_and_mistyped_keys_are_named) {
  const std::vector<std::string> defaulted{"bos_token_id", "eos_token_id", "pad_token_id"};
  const std::vector<std::string> optional{"rope_scaling", "candidate_source_layer_id", "use_fp4_sparse_kv",
                                          "engram_layer_ids"};
  const json whole = tiny();
  auto check = [&](const std::string& section, const std::string& key, bool required) {
    const std::string path = section.empty() ? key : section + "." + key;
    auto object = [&](json& j) -> json& { return section.empty() ? j : j[json::json_pointer("/" + section)]; };
    json j = whole;
    for (const json& bad : {json("nonsense"), json::object({{"a", 1}}), json::array({"x"}), json(-7.5), json(1e300)}) {
      j = whole;
      object(j)[key] = bad;
      const std::string named = refused_key(j);
      BOOST_TEST((named == path || named.rfind(path + ".", 0) == 0), path << " = " << bad.dump() << " gave " << named);
    }
    if (!required)
      return;
    j = whole;
    object(j).erase(key);
    BOOST_TEST(refused_key(j) == path);
    j = whole;
    object(j)[key] = nullptr;
    BOOST_TEST(refused_key(j) == path);
  };
  auto in = [](const std::vector<std::string>& list, const std::string& key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  int keys = 0;
  for (const auto& [key, value] : whole.items())
    check("", key, !in(defaulted, key)), ++keys;
  for (const auto& [key, value] : whole["text_config"].items())
    if (key != "num_nextn_predict_layers") // without it the length of compress_ratios is wrong first
      check("text_config", key, !in(optional, key)), ++keys;
  for (const auto& [key, value] : whole["quantization_config"].items())
    check("quantization_config", key, true), ++keys;
  BOOST_TEST(keys == 70);
  json j = whole;
  j["text_config"]["num_nextn_predict_layers"] = -1;
  BOOST_TEST(refused_key(j) == "text_config.num_nextn_predict_layers");
}

BOOST_AUTO_TEST_CASE(values_that_this_runtime_does_not_compute_are_refused) {
  struct mutation {
    const char *pointer, *value, *named; // named: the key in the refusal; null: the pointer's own
  };
  const mutation table[] = {
      {"/architectures", R"([])", nullptr},
      {"/architectures", R"(["DeepseekV41ForCausalLM","DeepseekV41ForCausalLM"])", nullptr},
      {"/architectures", R"(["DeepseekV4ForCausalLM"])", nullptr},
      {"/model_type", R"("deepseek_v4")", nullptr},
      {"/dtype", R"("float16")", nullptr},
      {"/bos_token_id", "8192", nullptr},
      {"/eos_token_id", "-1", nullptr},
      {"/image_token_id", "129264", nullptr},
      {"/quantization_config/quant_method", R"("int8")", nullptr},
      {"/quantization_config/activation_scheme", R"("static")", nullptr},
      {"/quantization_config/weight_block_size", "[128,128]", nullptr},
      {"/quantization_config/scale_fmt", R"("float")", nullptr},
      {"/quantization_config/expert_dtype", R"("fp8")", nullptr},
      {"/text_config/model_type", R"("deepseek_v4_text")", nullptr},
      {"/text_config/vocab_size", "0", nullptr},
      {"/text_config/vocab_size", "18446744073709551615", nullptr},
      {"/text_config/hidden_size", "400", nullptr},
      {"/text_config/hidden_size", "4294967296", nullptr},
      {"/text_config/num_hidden_layers", "1000000000", nullptr},
      {"/text_config/num_hidden_layers", "9", "text_config.compress_ratios"},
      {"/text_config/num_attention_heads", "0", nullptr},
      {"/text_config/num_key_value_heads", "8", nullptr},
      {"/text_config/head_dim", "120", nullptr},
      {"/text_config/head_dim", "32", "text_config.qk_rope_head_dim"},
      {"/text_config/qk_rope_head_dim", "63", nullptr},
      {"/text_config/qk_rope_head_dim", "130", nullptr},
      {"/text_config/q_lora_rank", "200", nullptr},
      {"/text_config/o_groups", "3", nullptr},
      {"/text_config/o_lora_rank", "48", nullptr},
      {"/text_config/hidden_act", R"("gelu")", nullptr},
      {"/text_config/attention_bias", "true", nullptr},
      {"/text_config/attention_dropout", "0.1", nullptr},
      {"/text_config/swiglu_limit", "0", nullptr},
      {"/text_config/rms_norm_eps", "0", nullptr},
      {"/text_config/tie_word_embeddings", "true", nullptr},
      {"/text_config/max_position_embeddings", "0", nullptr},
      {"/text_config/max_position_embeddings", "4000000000", nullptr},
      {"/text_config/rope_theta", "0", nullptr},
      {"/text_config/compress_rope_theta", "1", nullptr},
      {"/text_config/rope_scaling/rope_type", R"("linear")", nullptr},
      {"/text_config/rope_scaling/factor", "0", nullptr},
      {"/text_config/rope_scaling/beta_fast", "0.5", nullptr},
      {"/text_config/rope_scaling/beta_slow", "0", nullptr},
      {"/text_config/rope_scaling/original_max_position_embeddings", "0", nullptr},
      {"/text_config/sliding_window", "0", nullptr},
      {"/text_config/compress_ratios", "[0,2,2,2,1,1,1,1,0]", nullptr},
      {"/text_config/compress_ratios", "[0,4,4,4,1,1,1,1,0,0]", nullptr},
      {"/text_config/compress_ratios", "[0,2,2,2,1,1,1,1,0,1]", nullptr},
      // Layer 2 without compression splits the segment 1-2; layer 3 still starts its own.
      {"/text_config/compress_ratios", "[0,2,0,2,1,1,1,1,0,0]", "accepted"},
      {"/text_config/compress_ratios", "[0,0,2,2,1,1,1,1,0,0]",
       "text_config.kv_source_layer_ids"}, // source without compression
      {"/text_config/compress_ratios", "[2,2,2,2,1,1,1,1,0,0]",
       "text_config.kv_source_layer_ids"}, // layer 0 has no source
      {"/text_config/compress_ratios", "[0,2,1,2,1,1,1,1,0,0]",
       "text_config.kv_source_layer_ids"}, // two ratios in a segment
      {"/text_config/compress_ratios", "[0,2,2,2,1,0,1,1,0,0]",
       "text_config.kv_source_layer_ids"},                        // segment with a gap
      {"/text_config/kv_source_layer_ids", "[1,3]", nullptr},     // sharing across the first ratio-1 layer
      {"/text_config/kv_source_layer_ids", "[1,4,3]", nullptr},   // order
      {"/text_config/kv_source_layer_ids", "[1,3,3,4]", nullptr}, // repeat
      {"/text_config/kv_source_layer_ids", "[1,3,4,8]", nullptr}, // no such layer
      {"/text_config/kv_source_layer_ids", "[0,1,3,4]", nullptr}, // layer without compression
      {"/text_config/kv_source_layer_ids", "[1,3,4,6]", nullptr}, // a second source among the consumers
      {"/text_config/kv_source_layer_ids", "[3,4]", nullptr},     // layers 1, 2 without a source
      {"/text_config/kv_source_layer_ids", "[1,2,3,4]",
       "text_config.index_source_layer_ids"}, // a selection across a KV border
      {"/text_config/index_source_layer_ids", "[1,3,6]", nullptr},
      {"/text_config/index_source_layer_ids", "[1,4,6]", nullptr},
      {"/text_config/index_k_source_layer_ids", "[1,4]", nullptr},
      {"/text_config/index_k_source_layer_ids", "[1,2,3,4]", "text_config.index_source_layer_ids"},
      {"/text_config/index_n_heads", "0", nullptr},
      {"/text_config/index_head_dim", "100", nullptr},
      {"/text_config/index_head_dim", "32", nullptr}, // less than the rotated channels
      {"/text_config/index_topk", "0", nullptr},
      {"/text_config/index_topk", "512", "text_config.candidate_topk_blocks"},
      {"/text_config/candidate_source_layer_id", "5", nullptr},
      {"/text_config/candidate_source_layer_id", "3", nullptr}, // its users would have another ratio
      {"/text_config/candidate_source_layer_id", "-2", nullptr},
      {"/text_config/candidate_topk_blocks", "36", nullptr},
      {"/text_config/candidate_topk_blocks", "4104", nullptr},
      {"/text_config/candidate_block_size", "4", nullptr},
      {"/text_config/hc_mult", "0", nullptr},
      {"/text_config/hc_sinkhorn_iters", "0", nullptr},
      {"/text_config/hc_eps", "-1", nullptr},
      {"/text_config/hc_shifted", "false", nullptr},
      {"/text_config/n_routed_experts", "3", "text_config.num_experts_per_tok"},
      {"/text_config/n_routed_experts", "2147483647", nullptr},
      {"/text_config/n_shared_experts", "0", nullptr},
      {"/text_config/num_experts_per_tok", "25", nullptr},
      {"/text_config/moe_intermediate_size", "144", nullptr},
      {"/text_config/routed_scaling_factor", "0", nullptr},
      {"/text_config/scoring_func", R"("sigmoid")", nullptr},
      {"/text_config/topk_method", R"("greedy")", nullptr},
      {"/text_config/norm_topk_prob", "false", nullptr},
      {"/text_config/engram_layer_ids", "[1,4]", nullptr}, // among the consumers
      {"/text_config/engram_layer_ids", "[3,1]", nullptr},
      {"/text_config/engram_layer_ids", "[1]", "text_config.engram_num_embeddings"},
      {"/text_config/engram_num_embeddings", "[24064,24337]", nullptr},
      {"/text_config/engram_num_embeddings", "[24336,24064]", nullptr},
      {"/text_config/engram_max_ngram_size", "1", nullptr},
      {"/text_config/engram_max_ngram_size", "3", "text_config.engram_num_embeddings"},
      {"/text_config/engram_vocab_size", "4002", "text_config.engram_num_embeddings"},
      {"/text_config/engram_vocab_size", "2", nullptr},
      {"/text_config/engram_n_heads", "3", "text_config.engram_num_embeddings"},
      {"/text_config/engram_head_dim", "48", nullptr},
      {"/text_config/engram_pad_token_id", "8192", nullptr},
      {"/text_config/engram_compressed_vocab_size", "0", nullptr},
      {"/text_config/engram_compressed_vocab_size", "8193", nullptr},
      {"/text_config/dspark_block_size", "0", nullptr},
      {"/text_config/dspark_noise_token_id", "8192", nullptr},
      {"/text_config/dspark_target_layer_ids", "[]", nullptr},
      {"/text_config/dspark_target_layer_ids", "[5,5,6]", nullptr},
      {"/text_config/dspark_target_layer_ids", "[3,6,7]", nullptr}, // both sides of the boundary
      {"/text_config/dspark_target_attn_input", "false", nullptr},
      {"/text_config/dspark_markov_rank", "0", nullptr},
      {"/text_config/dspark_n_routed_experts", "1", "text_config.dspark_num_experts_per_tok"},
      {"/text_config/dspark_num_experts_per_tok", "17", nullptr},
      {"/text_config/use_fp4_sparse_kv", "1", nullptr},
  };
  for (const mutation& m : table) {
    json j = tiny();
    j[json::json_pointer(m.pointer)] = json::parse(m.value);
    std::string own = std::string(m.pointer).substr(1);
    std::replace(own.begin(), own.end(), '/', '.');
    BOOST_TEST(refused_key(j) == (m.named ? m.named : own),
               m.pointer << " = " << m.value << " gave " << refused_key(j));
  }
}

BOOST_AUTO_TEST_CASE(text_that_is_no_configuration_is_refused) {
  for (const std::string text : {"", "[]", "7", "{", "{\"architectures\": \"\xff\"}", "\xef\xbb\xbf{}", "{}"})
    BOOST_CHECK_THROW(troupe::parse_config(text, "config.json"), config_error);
  BOOST_CHECK_THROW(troupe::parse_config(std::string(100000, '['), "config.json"), config_error);
  const std::string whole = slurp(tiny_folder + "/config.json");
  for (std::size_t n = 0; n < whole.size(); n += 7)
    BOOST_CHECK_THROW(troupe::parse_config(whole.substr(0, n), "config.json"), config_error);
  BOOST_CHECK_EXCEPTION(troupe::load_config("/nonexistent"), config_error,
                        [](const config_error& e) { return e.file == "/nonexistent/config.json"; });
}

BOOST_AUTO_TEST_CASE(damaged_text_is_refused_or_gives_a_consistent_model) {
  const std::string whole = tiny().dump();
  std::mt19937 random(11);
  const std::string digits = "0123456789-.e,[]{}\"n";
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits)
      damaged[random() % damaged.size()] = digits[random() % digits.size()];
    try {
      const model_config c = troupe::parse_config(damaged, "config.json");
      BOOST_TEST(c.layers.size() == static_cast<std::size_t>(c.num_hidden_layers));
      for (const auto& l : c.layers)
        BOOST_TEST((l.ratio == 0 ? l.kv_source < 0 : c.layers[static_cast<std::size_t>(l.kv_source)].owns_compressor));
    } catch (const config_error&) {
      ++refused;
    }
  }
  BOOST_TEST(refused > 1000);
  BOOST_TEST(refused < 3000);
}

BOOST_AUTO_TEST_SUITE_END()
