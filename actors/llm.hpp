// The public C++ API: an engine in this process. Everything the command line does goes through it.
//
//   troupe::engine_options options;           // the flags of cli.md under their names
//   options.model = "models/tiny-v41";
//   troupe::LLM llm(options);                 // throws config_error or device_error
//   auto results = llm.generate({{.prompt = "def main():"}}, {.temperature = 0, .max_tokens = 32});
//
// Thread-safe: any thread may submit; events of one request come in order, on an engine thread.
#pragma once
#include "runtime/base/engine_options.hpp"
#include "runtime/base/result.hpp"
#include "runtime/request/result_line.hpp"
#include "runtime/request/sampling_params.hpp"
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class tokenizer;
struct model_config;

struct cluster_access; // actors/cluster_access.hpp

// What `yoco` and `yoco_keep` stand for with the other options and a model: the mode and the rows that it keeps, 0 with
// off. Throws config_error for what the model cannot do.
std::pair<std::string, int> resolved_yoco(const engine_options& options, const model_config& config);

// A request. Exactly one of prompt and prompt_ids is set. Plain text gets BOS in front; raw text is used as given
// (control tokens by their spelling).
struct generation_request {
  std::string id; // unique among the live requests; empty = a number is given
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int32_t>> prompt_ids;
  bool raw = false;
  std::vector<std::int32_t> logit_rows; // prompt positions whose fp32 logits are wanted, in any order
  bool seed_from_id = false;            // batch and baseline: derive seq_seed from (seed, id) when params give none
  std::int32_t priority = 0;            // lower is served first; never reaches a token
  std::int32_t deadline_steps = 0; // a branch that lives for more steps of its engine ends with "deadline"; 0 = none
  std::string cache_salt{};        // prompt starts are shared only between requests of an equal salt
  // Ascending prompt positions that other prompts are likely to share, 32 at most: the prefix cache keeps the state at
  // the last whole block of 128 tokens before each, and a chunk of the prompt ends there.
  std::vector<std::int32_t> chunk_checkpoints{};
};

// Text that became visible, or the end of a branch (exactly one per branch).
struct generation_event {
  std::string id;
  int index = 0;
  std::string text;                        // new text; empty on the last event if all text was out
  std::optional<generation_result> result; // the branch's end
};

class LLM {
public:
  explicit LLM(const engine_options& options);
  // The engines of a cluster: they may come, go and be lost while requests run; a request that loses its engine goes on
  // with another, and its bytes stay the same.
  explicit LLM(const cluster_access& cluster);
  ~LLM(); // stops the engine; live requests end with abort
  LLM(const LLM&) = delete;
  LLM& operator=(const LLM&) = delete;

  // Checks, tokenizes and queues a request; an error means that nothing was queued. Codes: invalid_params,
  // so_invalid_args, invalid_prompt, empty_prompt, prompt_too_long, no_space, duplicate_id, engine_lost. on_event is
  // called until the last branch has ended; it must return quickly and must not call back into the LLM except submit
  // and abort.
  result<std::string> submit(const generation_request& request, const sampling_params& params,
                             std::function<void(const generation_event&)> on_event); // the request's id
  // Ends a live request with finish_reason abort; false if there is none of that id.
  bool abort(const std::string& id);

  // Runs requests to their ends, results in the order (request, branch). A refused request gives one result with an
  // error.
  std::vector<generation_result> generate(const std::vector<generation_request>& requests,
                                          const sampling_params& params);
  std::vector<generation_result> generate(const std::vector<generation_request>& requests,
                                          const std::vector<sampling_params>& params);

  // The token ids that the request's prompt stands for; errors as of submit.
  result<std::vector<std::int32_t>> prompt_ids(const generation_request& request) const;

  // Counters, gauges and histograms of all engines in Prometheus' text format (runtime/metrics/metrics_text.hpp); what
  // an engine does not answer within seconds is 0. A request counts from the moment on which its last event came.
  std::string metrics() const;

  // What live requests wait for while no engine that could compute them is there, for people; empty: one is. It is told
  // at once or within seconds, on any thread; not if the LLM ends before.
  void ask_what_is_awaited(std::function<void(const std::string&)> told) const;

  const tokenizer& vocabulary() const;
  const model_config& config() const;
  const std::string& numerics_id() const;
  std::string description() const; // device, numerics id, engines, cache sizes: one line for people

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace troupe
