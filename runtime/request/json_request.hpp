// One request line (cli.md, "Request line") to values. Beside the keys named there a line may hold "priority" (an
// integer of 32 bits, lower is served first, default 0), "deadline_steps" (a positive integer of 32 bits: steps of its
// engine after which each of its branches ends with the error "deadline"), "cache_salt" (a string) and
// "chunk_checkpoints" (see chunk_checkpoints.hpp). All four reach time, never a token.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/request/sampling_params.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct chat_message {
  std::string role; // system | user | assistant
  std::string content;
  bool operator==(const chat_message&) const = default;
};

// Exactly one of prompt, prompt_ids and messages is set.
struct json_request {
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int32_t>> prompt_ids;
  std::optional<std::vector<chat_message>> messages;
  sampling_params params;
  std::vector<std::int32_t> rows;              // positions whose logits are wanted, in the line's order
  std::int32_t priority = 0;                   // lower is served first
  std::int32_t deadline_steps = 0;             // 0 = none
  std::string cache_salt;                      // requests share cached prompt starts only with those of an equal salt
  std::vector<std::int32_t> chunk_checkpoints; // prompt positions that others are likely to share; ascending
};

struct parsed_line {
  std::optional<std::string> id; // absent: the line has no usable one, answer with its number
  result<json_request> request;  // code invalid_json, invalid_request, invalid_params or unsupported
};

// line: without its line end; number: counted from 1, the id of a line that gives none. The error names the key, its
// value or type, and what is legal. Ranges are checked; token ids against the vocabulary only if vocab_size > 0.
parsed_line parse_request_line(std::string_view line, std::int64_t number, std::int32_t vocab_size = 0);

// The params object alone; text: JSON.
result<sampling_params> parse_sampling_params(std::string_view text, std::int32_t vocab_size = 0);

} // namespace troupe
