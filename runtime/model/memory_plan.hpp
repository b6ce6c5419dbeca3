// How much memory a model takes on each device, from its configuration alone.
#pragma once
#include "runtime/model/runner.hpp"
#include <cstdint>
#include <optional>

namespace troupe {

struct model_config;

struct memory_question {
  int ep = 1;           // devices that share the routed experts
  int expert_slots = 0; // routed experts of each layer on a device, copies among them; 0: an equal share
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  int max_model_len = 0;       // 0: the configuration's max_position_embeddings
  bool rejection = false;      // drafts are verified by rejection: their logits are kept
  bool defers_drafter = false; // runner_options::defers_drafter: each state slot keeps features for the drafter's cache
  std::optional<std::int64_t> device_bytes;
};

// Bytes, weights as they are stored in the checkpoint. All of a device except engram_tables, which lie in host memory.
struct memory_plan {
  std::int64_t backbone = 0; // embedding, head, attention, gates, shared experts, Engram projections
  std::int64_t experts = 0;  // this device's share of the routed experts
  std::int64_t experts_per_layer = 0;
  std::int64_t drafter = 0; // with its own experts
  std::int64_t engram_tables = 0;
  std::int64_t rotary_tables = 0;
  std::int64_t step_buffers = 0;
  std::int64_t slot_bytes = 0, state_slots = 0;
  std::int64_t decode_state = 0; // of all slots: newest tokens, drafts and what verifying them takes
  std::int64_t block_bytes = 0;  // 128 tokens
  std::int64_t max_model_len = 0;
  std::int64_t fixed() const { // everything but KV blocks
    return backbone + experts + drafter + rotary_tables + step_buffers + slot_bytes * state_slots + decode_state;
  }
  std::int64_t blocks_of_a_request() const; // of max_model_len tokens
  std::optional<std::int64_t> kv_blocks;    // that fit into device_bytes; negative: bytes that are missing for the rest
};

memory_plan plan_memory(const model_config& config, const memory_question& question);

} // namespace troupe
