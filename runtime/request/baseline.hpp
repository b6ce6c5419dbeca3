// Exact perplexity baselines (determinism_yoco.md §B8): log-probabilities of given tokens, kept bit by bit, one JSON
// line for each sample. What cannot reach a bit (batch, chunk, threads, engines ...) does not stand in the file: every
// run under the same fingerprint writes the same bytes.
//
//   {"id", "mode": "prefill|decode", "n_prompt", "n_target", "tokens_sha256", "nll_f64", "lp_sha256", "lp_f32",
//    "fingerprint": {"checkpoint", "numerics", "roundings", "yoco", "yoco_keep"}}
#pragma once
#include "runtime/base/result.hpp"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// How the log-probabilities were made. prefill: those of the prompt; its first token has none, so n_target is
// n_prompt - 1. decode: n_target forced tokens behind the prompt, through decode steps.
enum class baseline_mode : std::uint8_t { prefill, decode };

std::string_view name_of(baseline_mode mode);
std::optional<baseline_mode> baseline_mode_of(std::string_view name);

// All that may change a log-probability except the tokens (exactness.md §9).
struct baseline_fingerprint {
  std::string checkpoint;     // digest of the model's files
  std::string numerics;       // numerics id
  std::string roundings;      // serving | model | off
  std::string yoco;           // off | mask | compact | exact; prefill always runs with off
  std::int32_t yoco_keep = 0; // rows kept; 0 with off
  bool operator==(const baseline_fingerprint&) const = default;
};

// "numerics cpu-1 -> cpu-2, roundings serving -> off"; empty if they are equal.
std::string difference(const baseline_fingerprint& stored, const baseline_fingerprint& found);

struct baseline_sample {
  std::string id;
  baseline_mode mode = baseline_mode::prefill;
  std::int32_t n_prompt = 0, n_target = 0;
  std::string tokens_sha256;   // of all tokens, prompt first, as little-endian 32-bit integers
  double nll = 0;              // nats: sum of the negated log-probabilities in binary64, in order of position
  std::string lp_sha256;       // of the little-endian binary32 array
  std::vector<float> logprobs; // [n_target]
  baseline_fingerprint fingerprint;
  bool operator==(const baseline_sample&) const = default;
};

// With the digests and the sum filled in. tokens: prompt and targets.
baseline_sample make_baseline_sample(std::string id, baseline_mode mode, std::int32_t n_prompt,
                                     std::span<const std::int32_t> tokens, std::vector<float> logprobs,
                                     baseline_fingerprint fingerprint);

// One line without its line end, and back. Reading refuses ("invalid_baseline") what is no such line: unknown, missing
// or repeated keys, wrong types, lengths that contradict each other; the error names the key. Whether digests and sum
// fit the numbers is not asked here, so that a damaged line can still be compared.
std::string baseline_line(const baseline_sample& sample);
result<baseline_sample> parse_baseline_line(std::string_view line);

struct baseline_report {
  std::vector<std::string> failures; // one line for each sample that is not as stored
  std::string summary;               // one line
};

// Compares a run with a stored baseline. Both are sorted by id, ids distinct. A sample under an equal fingerprint has
// to have equal bits; one under another fingerprint may differ by 1e-3 nats a token, and all of those together by 1e-4.
baseline_report compare_baselines(std::span<const baseline_sample> stored, std::span<const baseline_sample> found);

} // namespace troupe
