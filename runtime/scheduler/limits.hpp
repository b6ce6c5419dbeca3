// What bounds a scheduler's decisions. Times are counted in steps.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/scheduler/prefix_rules.hpp"
#include <cstddef>
#include <cstdint>
#include <limits>

namespace troupe {

struct scheduler_limits {
  std::int32_t max_num_seqs = 64;            // sequences that hold KV
  std::int32_t max_num_batched_tokens = 512; // rows of a step
  bool chunked_prefill = true;               // false: a prompt is cut for snapshots only, and must fit the row budget
  std::int32_t max_model_len = 4096;         // prompt + output
  std::int32_t kv_blocks = 64;               // of the pool, with its dummy block 0
  std::int32_t history = 3;                  // ids before a sequence's first row that travel in a plan
  std::int32_t nextn = 0;                    // drafts that a decode step may verify for each sequence; 0 = none
  bool varlen = true;                        // as many of them as pay by confidence and step time; false: always all
  bool rejection = false;                    // drafts are verified by rejection: tokens depend on how many are
  std::int32_t backtracking = 12;            // positions that window rings keep beyond the window
  std::int32_t decode_steps_between = 1;     // decode steps between two prefill steps while sequences decode (D3)

  // Work on masks in one step (mask_work.hpp), some 10 ms of a thread. A sequence whose masks are more is left out
  // until they are made beside the steps.
  std::size_t mask_work = 2'000'000;

  // Output tokens of a sequence that its reader may not have acknowledged yet. The next step of a sequence that could
  // draw more waits for the reader, and nobody else's does.
  std::int32_t unacked_tokens = std::numeric_limits<std::int32_t>::max();

  double kv_watermark = 1; // use of the pool above which no room is given to images

  bool async = true; // two steps may be out, one running and one queued; false: one
  // While sequences decode, prompts wait until so many of their rows are there, or one has waited ttft_bound_steps.
  std::int32_t prefill_fill_tokens = 0;
  std::int32_t ttft_bound_steps = 16;
  // A step of waiting is worth 1/ageing_steps of a priority level; a request that does not fit is passed by later ones
  // for so long (D11, C16).
  std::int32_t ageing_steps = 256;
  std::int32_t lookahead_tokens = 0; // least rows of a chunk that does not end a prompt or lie before a snapshot

  bool prefix_cache = true;
  bool cache_output_blocks = true; // false: the device's prefill and decode rows differ in bits (exactness.md §8)
  std::int32_t snapshot_interval =
      0; // positions between snapshots inside a prompt, multiple of 128; 0 = at its end and where it parts from others
  yoco_mode yoco = yoco_mode::off;
  std::int32_t yoco_keep = 140; // rows that the mode keeps of a prompt; of exact too
};

// Limits that no scheduler can work under: the error says which one, and what to set instead.
status check(const scheduler_limits& limits);

} // namespace troupe
