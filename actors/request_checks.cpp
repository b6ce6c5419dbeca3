#include "actors/request_checks.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/request/chunk_checkpoints.hpp"
#include <algorithm>
#include <string>

namespace troupe {

status check_request(const checked_request& r, const sampling_params& p, const scheduler_limits& l,
                     std::int32_t vocab) {
  const std::span<const std::int32_t> prompt = r.prompt;
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (auto s = check_sampling_params(p, vocab); !s)
    return s;
  if (prompt.empty())
    return error{"empty_prompt", "the prompt has no tokens; give at least one"};
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= vocab)
      return error{"invalid_prompt", "prompt_ids[" + std::to_string(i) + "] = " + std::to_string(prompt[i]) +
                                         ": not a token id; legal are 0 to " + std::to_string(vocab - 1)};
  if (length > l.max_model_len)
    return error{"prompt_too_long", "the prompt has " + std::to_string(length) + " tokens, max_model_len is " +
                                        std::to_string(l.max_model_len) +
                                        "; shorten the prompt or raise max_model_len"};
  if (!l.chunked_prefill && length > l.max_num_batched_tokens)
    return error{"prompt_too_long", "the prompt has " + std::to_string(length) +
                                        " tokens, without chunked prefill a step takes max_num_batched_tokens = " +
                                        std::to_string(l.max_num_batched_tokens) +
                                        "; allow chunked prefill or raise it"};
  if (r.deadline_steps < 0)
    return error{"invalid_params", "deadline_steps = " + std::to_string(r.deadline_steps) +
                                       " is out of range: at least 1, or 0 for none"};
  for (const std::int32_t row : r.logit_rows)
    if (row < 0 || row >= length)
      return error{"invalid_params", "rows: " + std::to_string(row) + " is not a prompt position; legal are 0 to " +
                                         std::to_string(length - 1)};
  if (const status good = check_chunk_checkpoints(r.chunk_checkpoints); !good)
    return good;
  // The last token of an output has no row.
  const std::int32_t blocks =
      blocks_for(std::max(length, std::min<std::int64_t>(length + p.max_tokens, l.max_model_len) - 1));
  if (blocks > l.kv_blocks - 1)
    return error{"no_space", "prompt and max_tokens need " + std::to_string(blocks) + " KV blocks, an engine has " +
                                 std::to_string(l.kv_blocks - 1) + "; lower max_tokens or raise kv_blocks"};
  return nothing{};
}

} // namespace troupe
