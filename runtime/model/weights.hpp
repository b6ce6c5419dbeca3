// A checkpoint's weights in one device's layout. Read-only after loading; runners on the same device share them.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/runner.hpp"
#include <memory>
#include <vector>

namespace troupe {

using weight_ptr = std::shared_ptr<const weight>;

struct norm_weights { // effective weights, fp32 on the device
  buffer data;
  dev_ptr<const float> get() const { return data.as<const float>(); }
};

struct hc_site_weights {
  weight_ptr fn;      // [M*(M+2), M*H]
  norm_weights scale; // [3]
  norm_weights base;  // [M*(M+2)]
};

struct compressor_weights {
  weight_ptr kg; // ratio 1: [D, H]; ratio 2: k rows, then g rows [2D, H]
  norm_weights norm;
};

struct indexer_weights {
  weight_ptr wq_b;         // [heads*dim, q_lora]
  weight_ptr weights_proj; // [heads, H]
  weight_ptr wk;           // [dim, D], index-K owners only
  norm_weights k_norm;
};

struct attention_weights {
  weight_ptr wq_a, wq_b, wkv, wo_a, wo_b;
  norm_weights q_norm, kv_norm, sink;
  compressor_weights compressor;
  indexer_weights indexer;
};

struct moe_weights {
  weight_ptr gate, shared_w1, shared_w3, shared_w2;
  norm_weights bias;
  std::shared_ptr<const expert_set> experts; // null: expert executors hold them
  int n_experts = 0, k = 0;
};

struct engram_weights {
  std::shared_ptr<const row_table> table;
  weight_ptr wkv;
  norm_weights qk_weight;
  buffer multipliers, primes, offsets; // int64
};

struct layer_weights {
  norm_weights attn_norm, ffn_norm;
  hc_site_weights hc_attn, hc_ffn;
  attention_weights attn;
  moe_weights moe;
  engram_weights engram;
};

struct drafter_weights {
  weight_ptr main_proj;
  norm_weights main_norm, norm;
  std::shared_ptr<const row_table> markov_embed;
  weight_ptr markov_head, confidence; // confidence: [1, H + rank]
};

class model_weights {
public:
  model_config config;
  std::vector<layer_weights> layers; // backbone layers, then drafter layers
  std::shared_ptr<const row_table> embed;
  weight_ptr head;
  norm_weights norm;
  drafter_weights drafter;
  buffer token_map;                   // int32 [V]: raw id -> compressed id
  int pad = 0;                        // compressed id of the Engram pad token
  buffer identity;                    // int32 [max experts]: slot of expert e when all experts are here
  buffer rope_plain, rope_compressed; // [positions, rope_dim]
};

using checkpoint_ptr = std::shared_ptr<const checkpoint>;

// One tensor of the checkpoint as a source for device::pack; `name` without "model.".
weight_source source_of(const checkpoint_ptr& from, const std::string& name);
std::vector<expert_source> expert_sources(const checkpoint_ptr& from, const std::string& layer_prefix, int first,
                                          int count);

} // namespace troupe
