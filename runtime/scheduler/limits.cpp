#include "runtime/scheduler/limits.hpp"
#include "runtime/kv/block_pool.hpp"
#include <string>

namespace troupe {

namespace {

error bad(const char* key, std::int64_t value, const std::string& why) {
  return {"invalid_limits", std::string(key) + " = " + std::to_string(value) + ": " + why};
}

} // namespace

status check(const scheduler_limits& l) {
  if (l.max_num_seqs < 1)
    return bad("max_num_seqs", l.max_num_seqs, "at least one sequence must be able to run; use 1 or more");
  if (l.max_model_len < 1)
    return bad("max_model_len", l.max_model_len, "a sequence needs at least one position; use 1 or more");
  if (l.max_num_batched_tokens < 1)
    return bad("max_num_batched_tokens", l.max_num_batched_tokens, "a step needs at least one row; use 1 or more");
  if (l.kv_blocks < 2)
    return bad("kv_blocks", l.kv_blocks, "no request can ever run; use 2 or more (block 0 is not given out)");
  if (l.nextn < 0 || 2 * (l.nextn + 1) > l.backtracking)
    return bad("nextn", l.nextn,
               "two steps may be out, and the window rings keep " + std::to_string(l.backtracking) +
                   " positions for what they take back; use 0.." + std::to_string(l.backtracking / 2 - 1));
  if (l.unacked_tokens <= l.nextn)
    return bad("unacked_tokens", l.unacked_tokens,
               "no step could ever be taken: one draws up to nextn + 1 tokens; use " + std::to_string(l.nextn + 1) +
                   " or more");
  if (!(l.kv_watermark > 0 && l.kv_watermark <= 1))
    return error{"invalid_limits", "kv_watermark = " + std::to_string(l.kv_watermark) + ": use a share, up to 1"};
  if (l.decode_steps_between < 1)
    return bad("decode_steps_between", l.decode_steps_between, "prefill would starve decoding; use 1 or more");
  if (l.ageing_steps < 1)
    return bad("ageing_steps", l.ageing_steps, "use 1 or more");
  if (l.prefill_fill_tokens < 0 || l.prefill_fill_tokens > l.max_num_batched_tokens)
    return bad("prefill_fill_tokens", l.prefill_fill_tokens,
               "must lie in 0..max_num_batched_tokens = " + std::to_string(l.max_num_batched_tokens));
  if (l.ttft_bound_steps < 0)
    return bad("ttft_bound_steps", l.ttft_bound_steps, "use 0 or more");
  if (l.prefill_fill_tokens > 0 && l.ttft_bound_steps == 0)
    return bad("ttft_bound_steps", 0,
               "prompts that wait for no step wait for no rows either, but prefill_fill_tokens = " +
                   std::to_string(l.prefill_fill_tokens) + "; use 1 or more, or prefill_fill_tokens = 0");
  if (l.lookahead_tokens < 0 || l.lookahead_tokens > l.max_num_batched_tokens)
    return bad("lookahead_tokens", l.lookahead_tokens,
               "must lie in 0..max_num_batched_tokens = " + std::to_string(l.max_num_batched_tokens));
  if (l.snapshot_interval < 0 || l.snapshot_interval % tokens_per_kv_block != 0)
    return bad("snapshot_interval", l.snapshot_interval,
               "snapshots lie at block boundaries; use 0 or a multiple of " + std::to_string(tokens_per_kv_block));
  if (l.yoco != yoco_mode::off && l.yoco_keep < 1)
    return bad("yoco_keep", l.yoco_keep,
               "the row that the first token is drawn from is always computed; use 1 or more");
  return nothing{};
}

} // namespace troupe
