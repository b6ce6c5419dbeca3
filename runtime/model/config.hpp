// The model description in a checkpoint's config.json (model.md §1): every key of text_config that changes the
// computation, checked once at start-up, and the facts about each layer that follow from the layer maps.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// YaRN settings of the layers with compression; absent means plain rotary embedding with compress_rope_theta (§4).
struct rope_scaling_config {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int original_max_position_embeddings = 0;
};

// What one backbone layer owns and where it reads what it does not own. Sources are layer numbers, -1 where there is
// none.
struct layer_config {
  int ratio = 0;                    // tokens per compressed block: 0 (window only), 1 or 2
  int kv_source = -1;               // layer whose compressed KV is attended to
  int index_k_source = -1;          // layer whose index keys belong to this segment
  int index_source = -1;            // layer whose selection of blocks is used
  bool owns_compressor = false;     // kv_source is this layer
  bool owns_index_k = false;        // index_k_source is this layer
  bool owns_indexer = false;        // index_source is this layer
  bool is_candidate_source = false; // publishes candidate blocks
  bool uses_candidates = false;     // owns an indexer that scores candidate blocks only
  bool is_consumer = false;         // at or behind n_prefill_layer
  bool is_engram = false;           // starts with an Engram lookup
  int engram_index = -1;            // place in engram_layer_ids
  int draft_feature = -1;           // place in dspark_target_layer_ids
};

// Names as in config.json. Sizes are bounded (config.cpp), so that products of two of them fit in an int64 by far.
struct model_config {
  int bos_token_id = 0, eos_token_id = 1, pad_token_id = 2;
  int image_token_id = -1; // -1: the checkpoint names none

  int vocab_size = 0, hidden_size = 0, num_hidden_layers = 0;
  int num_attention_heads = 0, num_key_value_heads = 1, head_dim = 0, qk_rope_head_dim = 0;
  int q_lora_rank = 0, o_groups = 0, o_lora_rank = 0;
  float swiglu_limit = 0, rms_norm_eps = 0;
  int max_position_embeddings = 0, sliding_window = 0;
  double rope_theta = 0, compress_rope_theta = 0;
  std::optional<rope_scaling_config> rope_scaling;

  std::vector<int> compress_ratios; // num_hidden_layers + num_nextn_predict_layers
  std::vector<int> kv_source_layer_ids, index_source_layer_ids, index_k_source_layer_ids;
  int index_n_heads = 0, index_head_dim = 0, index_topk = 0;
  int candidate_source_layer_id = -1; // -1: no candidate blocks
  int candidate_topk_blocks = 0, candidate_block_size = 0;
  bool use_fp4_sparse_kv = true;

  int hc_mult = 0, hc_sinkhorn_iters = 0;
  float hc_eps = 0;

  int n_routed_experts = 0, n_shared_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
  float routed_scaling_factor = 0;

  std::vector<int> engram_layer_ids;
  std::vector<std::int64_t> engram_num_embeddings; // rows of the table of each Engram layer
  int engram_max_ngram_size = 0, engram_n_heads = 0, engram_head_dim = 0, engram_vocab_size = 0;
  int engram_pad_token_id = 0, engram_compressed_vocab_size = 0;

  int num_nextn_predict_layers = 0; // drafter layers; 0: no drafter
  int dspark_block_size = 5, dspark_noise_token_id = 0, dspark_markov_rank = 0;
  int dspark_n_routed_experts = 0, dspark_num_experts_per_tok = 0;
  std::vector<int> dspark_target_layer_ids;

  // Derived.
  int n_prefill_layer = 0;          // first layer with ratio 1; num_hidden_layers if there is none
  std::vector<layer_config> layers; // backbone layers only; drafter layers have ratio 0 and own nothing
};

// Reads <folder>/config.json. Throws config_error naming file, key and value for everything that this runtime does not
// compute.
model_config load_config(const std::string& folder);

// The same from a text; `file` only names it in errors.
model_config parse_config(std::string_view text, const std::string& file);

// The same model without its drafter: what its configuration would be if the release had none.
model_config without_drafter(model_config config);

} // namespace troupe
