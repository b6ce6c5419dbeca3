// The index arrays of one step: made on the host from step_rows, sent to the device in one copy.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/packed_arrays.hpp"
#include "runtime/model/runner.hpp"
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Compressed blocks of one ratio that a step completes, and what each row computed here sees of that ratio. A step that
// is filled or moves lists one block per row, those that are not completed with last_row and entry -1.
struct compressed_rows {
  int blocks = 0;                       // listed
  int max_visible = 0;                  // over the rows computed here; of a filled step what its table can hold
  dev_ptr<const std::int32_t> visible;  // [map.rows] floor((position + 1) / ratio)
  dev_ptr<const std::int32_t> last_row; // [blocks] key row of the block's last token
  dev_ptr<const std::int32_t> position; // [blocks] position of the block's first token
  dev_ptr<const std::int64_t> entry;    // [blocks] KV block * (128 / ratio) + index inside
};

struct step_input {
  row_map map;                          // the rows computed here
  row_map keys;                         // all rows of the step; `map` unless `shared`
  bool shared = false;                  // the rows computed here are a rank's share of the step
  bool kept = false;                    // they are what consumer layers keep of a step whose compressed KV is stored
  bool counted = true;                  // their routes count in the expert counts
  dev_ptr<const std::int32_t> tokens;   // [map.rows]
  dev_ptr<std::int32_t> key_tokens;     // [keys.rows]; `tokens` unless `shared`
  bool unresolved = false;              // `layout` completes them and the maps
  bool decides_drafts = false;          // before that `sharing` decides which rows belong to which sequence
  dev_ptr<const std::int32_t> live;     // [1] rows that are not placeholders; null: there are none
  dev_ptr<const std::int32_t> history;  // [sequences, ngram - 1]
  std::array<compressed_rows, 3> ratio; // index = ratio; 0 is unused
  lay_out_rows_args layout;             // without the state
  share_drafts_args sharing;            // likewise, and without working memory
  dev_ptr<const std::int32_t> draws;    // [sequences]
};

// Sizes that decode steps are filled up to: 1, 2, 4, then multiples of 8, then `most`. The smallest one of at least
// `rows`; rows <= most.
int filled_size(int rows, int most);

class step_input_builder {
public:
  step_input_builder(const model_config& config, device& dev, int max_rows, int max_sequences, int max_model_len);

  // Window bounds of a backbone step: every row sees its own position and sliding_window - 1 before it. share: the rows
  // of the step that are computed here; empty = all.
  step_input backbone(stream& s, const step_rows& rows, std::span<const std::int32_t> share = {});
  // The same for consumer layers, whose windows begin at replay_from.
  step_input consumers(stream& s, const step_rows& rows, std::span<const std::int32_t> share = {});
  // A decode step as a graph wants it: a sequence of placeholders (state slot 0, KV block 0) fills it up to `size`
  // rows, sequences without rows up to a power of two, the block tables are as wide as the next power of two, and every
  // array lies where it lies in all steps of these sizes.
  step_input filled(stream& s, const step_rows& rows, int size);

private:
  struct form {
    std::span<const std::int32_t> share = {}; // rows computed here, empty = all
    int live = -1;                            // rows before the placeholders; -1 = there are none
    bool filled = false;
    bool replayed = false; // windows begin at replay_from
  };
  const step_rows& with_placeholders(const step_rows& rows, int size, int sequences);
  step_input send(stream& s, const step_rows& rows, const form& f);

  const model_config& config_;
  // Kept between steps so that a step allocates nothing once the vectors have grown.
  std::vector<std::int32_t> position_, sequence_, lo_, hi_, first_row_, table_, visible_, last_row_, block_position_,
      taken_, of_sequence_;
  std::vector<std::int64_t> entry_;
  step_rows filled_;
  packed_arrays arrays_;
  int max_sequences_, max_blocks_, max_positions_; // of a step, of a block table, of the model
};

} // namespace troupe
