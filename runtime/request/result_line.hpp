// The end of one branch and its JSON line (cli.md, "Result line").
#pragma once
#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

// The only part of a result that may differ between two runs of the same request.
struct generation_usage {
  std::int64_t steps = 0, drafted = 0, accepted = 0, attempts = 1, preemptions = 0;
  double ttft_ms = 0, total_ms = 0;
};

// One branch's result.
struct generation_result {
  std::string id;
  int index = 0; // branch
  std::string text;
  std::vector<std::int32_t> token_ids;
  std::string finish_reason; // stop | length | abort | error
  std::string stop_text;     // the stop string that matched
  std::optional<std::int32_t> stop_id;
  int prompt_tokens = 0, cached_tokens = 0;
  std::vector<float> logprobs;
  std::vector<std::vector<std::pair<std::int32_t, float>>> top_logprobs;
  std::vector<float> prompt_logprobs;
  std::vector<float> logits; // rows of logit_rows, each vocab_size long; not part of the line
  std::uint64_t seq_seed = 0;
  std::optional<error> failure; // set when finish_reason is error
  // What of the constraint has no effect, where the request said lenient. In the line only if there is something.
  std::vector<std::string> warnings{};
  generation_usage usage;
};

// One line without its line end. Numbers are the shortest text that reads back to the same binary32; bytes that are not
// UTF-8 become U+FFFD; a number that JSON cannot hold becomes null.
std::string result_line(const generation_result& r);

// The answer to input line `line` (counted from 1) that has no usable id.
std::string result_line_without_id(std::int64_t line, const error& failure);

// Text as a JSON string with its quotes.
std::string json_quoted(std::string_view text);

} // namespace troupe
