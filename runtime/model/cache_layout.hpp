// Where each layer's cached state lies inside a KV block and inside a state slot (engine.md §10), for one rounding
// mode.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/runner.hpp"
#include <cstdint>
#include <vector>

namespace troupe {

constexpr int tokens_per_block = 128;

// Tokens that speculation may take back: two steps in flight of a golden token and a draft block each (exactness.md
// §7).
constexpr int backtracking_tokens(const model_config& c) {
  return 2 * (c.dspark_block_size + 1);
}

struct cache_layout {
  struct layer {
    std::int64_t window = 0;   // offset of the window ring in the state slot
    std::int64_t pending = -1; // offset of the compressor's ring of unfinished tokens, ratio-2 owners only
    std::int64_t main = -1;    // offset of the compressed KV in the block, owners only
    std::int64_t index = -1;   // offset of the index keys in the block, index-K owners only
  };
  kv_format window_format, main_format, index_format;
  int window_entries = 0;    // ring of the window: sliding_window + backtracking
  int pending_entries = 0;   // ring of unfinished tokens
  std::vector<layer> layers; // backbone layers, then drafter layers
  std::int64_t block_bytes = 0, slot_bytes = 0;

  cache_layout(const model_config& config, roundings rounding);
};

} // namespace troupe
