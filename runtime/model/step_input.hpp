// The index arrays of one step: made on the host from step_rows, sent to the device in one copy.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/runner.hpp"
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Compressed blocks of one ratio that a step completes, and what each row computed here sees of that ratio.
struct compressed_rows {
  int blocks = 0;                           // completed in this step
  int max_visible = 0;                      // over the rows computed here
  dev_ptr<const std::int32_t> visible;      // [map.rows] floor((position + 1) / ratio)
  dev_ptr<const std::int32_t> last_row;     // [blocks] key row of the block's last token
  dev_ptr<const std::int32_t> position;     // [blocks] position of the block's first token
  dev_ptr<const std::int64_t> entry;        // [blocks] KV block * (128 / ratio) + index inside
};

struct step_input {
  row_map map;                         // the rows computed here
  row_map keys;                        // all rows of the step; `map` unless `shared`
  bool shared = false;                 // the rows computed here are a rank's share of the step
  dev_ptr<const std::int32_t> tokens;  // [map.rows]
  dev_ptr<const std::int32_t> key_tokens; // [keys.rows]
  dev_ptr<const std::int32_t> history; // [sequences, ngram - 1]
  std::array<compressed_rows, 3> ratio; // index = ratio; 0 is unused
};

class step_input_builder {
public:
  step_input_builder(const model_config& config, device& dev, int max_rows, int max_sequences, int max_model_len);

  // Window bounds of a backbone step: every row sees its own position and sliding_window - 1 before it. share: the rows
  // of the step that are computed here; empty = all.
  step_input backbone(stream& s, const step_rows& rows, std::span<const std::int32_t> share = {});
  // A draft step: per sequence one block of `block` rows at positions start..start+block-1; each row sees the
  // sliding_window positions before the block and the whole block.
  step_input draft(stream& s, const step_rows& rows, int block);

private:
  step_input send(stream& s, const step_rows& rows, int draft_block, std::span<const std::int32_t> share);
  template <class T> std::size_t append(const std::vector<T>& values);

  const model_config& config_;
  // Kept between steps so that a step allocates nothing once the vectors have grown.
  std::vector<std::int32_t> position_, sequence_, lo_, hi_, first_row_, table_, visible_, last_row_, block_position_, taken_;
  std::vector<std::int64_t> entry_;
  std::vector<std::byte> host_;
  buffer device_;
  int max_blocks_; // longest block table
};

} // namespace troupe
