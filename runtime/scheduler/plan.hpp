// What one step computes, and what came out of it, as plain values. The scheduler makes plans, the executor runs them;
// a plan is complete in itself (block tables, history and sampling rules travel in it), so that any executor of the
// same numerics id gives the same result, here or on another host, first time or replayed.
#pragma once
#include "runtime/base/ids.hpp"
#include "runtime/request/sampling_params.hpp"
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

// What never changes during the life of a sequence (one branch of one request).
struct sequence_spec {
  sequence_id id;
  std::string request_id; // for messages to people
  sampling_params params;
  std::uint64_t seq_seed = 0; // of this branch (exactness.md §6)
  std::int32_t prompt_tokens = 0;
  std::vector<std::int32_t> eos_ids;    // end the sequence unless params.ignore_eos
  std::vector<std::int32_t> logit_rows; // positions whose fp32 logits go into the result (score --logits), ascending
};

enum class step_kind : std::uint8_t { prefill, decode };

// Whole state slots and KV blocks that a step copies on the device.
struct slot_copy {
  slot_id from, to;
};
struct block_copy {
  block_id from, to;
};

// Bytes of a sequence's cached state as it travels between two engines: its KV blocks in order, then its state slot.
using image_bytes = std::vector<std::uint8_t>;

// Blocks of a sequence's table that leave for another engine's cache, and its state slot behind them.
struct image_part {
  std::int32_t first_block = 0, blocks = 0; // range of step_plan::image_blocks
  slot_id state;                            // 0 = not now
};
// A whole image that another engine has made: all blocks, then the state slot.
struct image_arrival {
  std::int32_t first_block = 0, blocks = 0; // range of step_plan::image_blocks
  slot_id state;
  std::shared_ptr<const image_bytes> bytes;
};

// One sequence's rows in a step: positions [start, start + rows). In a decode step the last `drafts` of them verify
// drafts of the sequence's newest block, the row before them holds its newest token.
//
// With slack > 0 the host does not know yet how many drafts the step before accepts: the first row is the sequence's
// newest token, at a position in [start, start + slack] that the device knows. Its tokens are token_in_flight, then
// draft_in_flight; its history is the device's; blocks cover [0, min(start + slack + rows, limit)).
struct planned_sequence {
  std::shared_ptr<const sequence_spec> spec;
  slot_id slot;           // state slot
  std::int32_t start = 0; // position of its first row, the lowest possible
  std::int32_t slack = 0;
  std::int32_t rows = 0;
  std::int32_t drafts = 0;      // < rows; 0 in prefill steps
  std::int32_t limit = 0;       // drafts at positions from here on are not verified; 0 = no limit
  std::int32_t first_token = 0; // index of its first row's token in step_plan::tokens; rows tokens follow
  std::int32_t first_block = 0; // index of its block table in step_plan::blocks
  std::int32_t blocks = 0;      // length of that table
  std::int32_t history = 0;     // index in step_plan::history: ngram-1 ids before start, nearest last, -1 = none
  bool sample = false;          // draw the token behind the last row (last prompt chunk, or decode)
  bool propose = false;         // then draft a block behind it, for the next step to verify; only with sample
  // Token at position start + rows: of the prompt (prompt_logprobs needs it) or, with sample, the one that its last row
  // has drawn before and gives again. -1 = neither.
  std::int32_t next = -1;
  // Index in step_plan::mask_rows of drafts + 1 rows of masks, for its last rows; -1: everything may be drawn behind
  // them. Only with sample and without slack.
  std::int32_t first_mask = -1;
};

struct step_plan {
  std::uint64_t number = 0;
  step_kind kind = step_kind::decode;
  // The drafts of this step are shared out again by the device among the sequences that have slack, by the confidences
  // of their newest blocks (speculation.md §6.2): their rows here are a guess of the right sum, and their blocks cover
  // a whole draft block.
  bool share_drafts = false;
  std::vector<planned_sequence> sequences;
  std::vector<std::int32_t> tokens;       // input ids of all rows, or token_in_flight, or draft_in_flight
  std::vector<std::int32_t> blocks;       // block tables, one after the other
  std::vector<std::int32_t> history;      // (ngram-1) per sequence; always known to the host
  std::vector<slot_copy> restores;        // before the rows are computed: snapshots and forks into new sequences' slots
  std::vector<block_copy> block_copies;   // likewise: partly filled blocks of forked sequences
  std::vector<slot_copy> snapshots;       // after the rows: slots as this step leaves them
  std::vector<image_arrival> arrivals;    // before the rows: caches that other engines have filled
  std::vector<image_part> departures;     // after the rows: into step_result::departed
  std::vector<std::int32_t> image_blocks; // of arrivals and departures
  // Which ids may be drawn behind rows under a constraint: bit i % 32 of word i / 32 of a mask allows id i.
  std::int32_t mask_words = 0;         // of a mask: the vocabulary's ids / 32, rounded up
  std::vector<std::uint32_t> masks;    // [any, mask_words]
  std::vector<std::int32_t> mask_rows; // masks, or -1 = everything
};

using token_logprob = std::pair<std::int32_t, float>; // id, log-probability

struct drawn_token {
  std::int32_t id = -1;
  float logprob = 0;              // by params.logprobs_mode
  std::vector<token_logprob> top; // params.top_logprobs entries
};

struct sequence_result {
  sequence_id id;
  std::int32_t start = 0;             // position of its first row
  std::int32_t drafts = 0;            // that were verified
  std::vector<drawn_token> tokens;    // accepted drafts, then one more; empty where the plan does not sample
  std::vector<std::int32_t> block;    // the new draft block, if the plan asks for one: its tokens [block size]
  std::vector<float> confidence;      // [block size] that each is accepted if those before it are
  std::vector<float> prompt_logprobs; // of the prompt tokens at positions start+1 .. start+rows inside the prompt
  std::vector<float> logits;          // rows of spec.logit_rows inside this step, each V long
  std::string failure;                // not empty: the row was unusable (NaN, +inf, all -inf); the sequence ends
  bool nothing_left = false;          // why: no id was left that may be drawn
};

struct step_result {
  std::uint64_t number = 0;
  std::vector<sequence_result> sequences;                   // in the plan's order
  std::vector<std::uint32_t> expert_counts;                 // [layers, routed experts]: rows routed in this step
  std::vector<std::shared_ptr<const image_bytes>> departed; // one for each of the plan's departures
  double ms = 0;       // from its launch, or the end of the step before if that was later, to its end
  double draft_ms = 0; // of that: its draft round; 0 where there was none or the engine cannot tell
  std::string failure; // not empty: the device failed, nothing of the step counts
};

} // namespace troupe
