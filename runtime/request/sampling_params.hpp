// What a request asks of sampling: the params of a request line (cli.md), meanings by exactness.md §4-6. Real numbers
// are binary32 here: whoever reads a parameter rounds it once, at intake.
#pragma once
#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

enum class logprobs_source : std::uint8_t {
  raw,      // softmax of the model's own logits
  processed // the distribution that the token was drawn from
};

// Structured output as a request states it (structured_output.md §2.1, and §6.7 for what goes beyond it).
struct structured_output_args {
  std::string schema_type{};                     // json | regex | ebnf
  std::string schema{};                          // its text
  std::vector<std::int32_t> trigger_token_ids{}; // free output up to these ids in a row; empty: none is free
  std::optional<std::int32_t> bound_token_id{};  // ends free output: the rest of the trigger is forced
  bool strict = true, any_whitespace = true;     // json
  std::int32_t max_whitespace = 64;              // json: characters of each run
  std::optional<std::int32_t> indent{};          // json: in place of any_whitespace
  bool any_order = false, infer_type = true;     // json
  bool lenient = false; // json: keywords that cannot be honoured have no effect, with a warning in the result
  bool dot_excludes_newline = false; // regex
  bool operator==(const structured_output_args&) const = default;
};

struct sampling_params {
  float temperature = 1;        // >= 0; below 1e-5: argmax
  float top_p = 1;              // (0, 1]
  std::int32_t top_k = -1;      // -1 = all, else >= 1
  float min_p = 0;              // [0, 1]
  std::int32_t max_tokens = 16; // >= 1
  std::int32_t min_tokens = 0;  // EOS and stop ids are masked, stop strings ignored, while fewer are out
  bool ignore_eos = false;      // EOS neither ends the output nor is masked
  std::vector<std::string> stop{};
  std::vector<std::int32_t> stop_token_ids{};
  std::int32_t n = 1;            // branches
  bool logprobs = true;          // one number per output token
  std::int32_t top_logprobs = 0; // pairs per output token
  bool prompt_logprobs = false;
  logprobs_source logprobs_mode = logprobs_source::raw;
  std::optional<std::uint64_t> seq_seed{}; // absent: resolved at admission (exactness.md §6)
  std::optional<structured_output_args> so_args{};
  std::vector<std::int32_t> golden_token_ids{}; // output token k is golden_token_ids[k] while the list lasts
  std::vector<std::pair<std::int32_t, float>> logit_bias{}; // added to the logits, ids distinct

  bool operator==(const sampling_params&) const = default;
};

inline constexpr double greedy_below = 1e-5; // binary32 temperatures below this binary64 number mean argmax
inline constexpr std::int32_t max_branches = 128;
inline constexpr std::int32_t max_top_logprobs = 1000;

// Range checks; the error names key, value and legal range and has the code "invalid_params", within so_args
// "so_invalid_args". What a constraint says is not looked at. vocab_size > 0 also checks token ids.
status check_sampling_params(const sampling_params& p, std::int32_t vocab_size = 0);

} // namespace troupe
