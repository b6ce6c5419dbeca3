#include "runtime/model/cache_layout.hpp"
#include <numeric>

namespace troupe {
namespace {

std::int64_t padded(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

} // namespace

cache_layout::cache_layout(const model_config& c, roundings rounding) {
  bool rounded = rounding != roundings::off;
  window_format = rounded ? kv_format::fp8_ue8m0_32 : kv_format::f32;
  main_format = !rounded ? kv_format::f32 : c.use_fp4_sparse_kv ? kv_format::fp4_e4m3_16 : kv_format::fp8_ue8m0_32;
  index_format = rounded ? kv_format::fp4_ue8m0_32 : kv_format::f32;
  window_entries = c.sliding_window + backtracking_tokens(c);
  pending_entries = 2 + backtracking_tokens(c) - 1;
  layers.resize(c.num_hidden_layers + c.num_nextn_predict_layers);

  std::int64_t slot = 0, block = 0;
  for (auto& l : layers) {
    l.window = slot;
    slot += padded(window_entries * record_bytes(window_format, c.head_dim), 32);
  }
  for (int i = 0; i < c.num_hidden_layers; ++i) {
    const auto& facts = c.layers[i];
    if (facts.ratio == 2 && facts.owns_compressor) {
      layers[i].pending = slot;
      slot += padded(pending_entries * record_bytes(kv_format::f32, 2 * c.head_dim), 32);
    }
    if (facts.owns_index_k) {
      layers[i].index = block;
      block += padded(tokens_per_block / facts.ratio * record_bytes(index_format, c.index_head_dim), 32);
    }
    if (facts.owns_compressor) {
      layers[i].main = block;
      block += padded(tokens_per_block / facts.ratio * record_bytes(main_format, c.head_dim), 32);
    }
  }
  // Units of engine.md §10: whole records, so that a block or a slot is a row of every view into it.
  block_bytes = padded(block, std::lcm<std::int64_t>(128, record_bytes(main_format, c.head_dim)));
  slot_bytes = padded(slot, std::lcm<std::int64_t>(32, record_bytes(window_format, c.head_dim)));
}

cache_sizes cache_size(const model_config& config, roundings rounding) {
  cache_layout layout(config, rounding);
  return {layout.block_bytes, layout.slot_bytes};
}

} // namespace troupe
