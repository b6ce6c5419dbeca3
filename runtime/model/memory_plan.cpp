#include "runtime/model/memory_plan.hpp"
#include "runtime/model/cache_layout.hpp"
#include "runtime/model/expected_tensors.hpp"
#include <algorithm>

namespace troupe {
namespace {

std::int64_t bytes_of(const expected_tensor& t) {
  auto bytes = static_cast<std::int64_t>(size_of(t.dtype));
  for (const std::int64_t d : t.shape)
    bytes *= d;
  return bytes;
}

void add_weights(memory_plan& plan, const model_config& config) {
  for (const expected_tensor& t : expected_tensors(config)) {
    const bool drafter = t.name.starts_with("mtp."), expert = t.name.find(".ffn.experts.") != std::string::npos,
               table = t.name.find(".engram.embed.") != std::string::npos;
    std::int64_t& part = drafter ? plan.drafter : expert ? plan.experts : table ? plan.engram_tables : plan.backbone;
    part += bytes_of(t);
  }
}

} // namespace

std::int64_t memory_plan::blocks_of_a_request() const {
  return (max_model_len + tokens_per_block - 1) / tokens_per_block;
}

memory_plan plan_memory(const model_config& config, const memory_question& question) {
  memory_plan plan;
  plan.max_model_len = question.max_model_len > 0 ? question.max_model_len : config.max_position_embeddings;
  add_weights(plan, config);
  plan.experts_per_layer =
      question.expert_slots > 0 ? question.expert_slots : (config.n_routed_experts + question.ep - 1) / question.ep;
  plan.experts = plan.experts / config.n_routed_experts * plan.experts_per_layer;

  runner_options options;
  options.max_rows = question.max_num_batched_tokens;
  options.max_sequences = std::min(question.max_num_seqs, question.max_num_batched_tokens);
  options.max_model_len = static_cast<int>(plan.max_model_len);
  options.nextn = config.num_nextn_predict_layers > 0 ? config.dspark_block_size : 0;
  options.rejection = question.rejection && options.nextn > 0;
  options.defers_drafter = question.defers_drafter && options.nextn > 0;
  options.max_logit_rows = std::clamp(options.max_sequences * (1 + options.nextn), 1, 64);
  plan.step_buffers = step_buffer_bytes(config, options);
  // Two tables, a draft block beyond the last position.
  plan.rotary_tables = 2 * (plan.max_model_len + config.dspark_block_size + 1) * config.qk_rope_head_dim *
                       static_cast<std::int64_t>(sizeof(float));
  const cache_sizes sizes = cache_size(config, options.rounding);
  plan.slot_bytes = sizes.slot_bytes;
  plan.state_slots = question.max_num_seqs + 1; // slot 0 is the dummy
  options.state_slots = static_cast<int>(plan.state_slots);
  plan.decode_state = decode_state_bytes(config, options);
  plan.block_bytes = sizes.block_bytes;
  if (question.device_bytes) {
    const std::int64_t left = *question.device_bytes - plan.fixed();
    plan.kv_blocks = left < 0 ? left : plan.block_bytes > 0 ? left / plan.block_bytes : 0;
  }
  return plan;
}

} // namespace troupe
