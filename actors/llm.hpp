// The public C++ API: an engine in this process. Everything the command line does goes through it.
//
//   troupe::engine_options options;           // the flags of cli.md under their names
//   options.model = "models/tiny-v41";
//   troupe::LLM llm(options);                 // throws config_error or device_error
//   auto results = llm.generate({{.prompt = "def main():"}}, {.temperature = 0, .max_tokens = 32});
//
// Thread-safe: any thread may submit; events of one request come in order, on an engine thread.
#pragma once
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

struct engine_options {
  std::string model;                // folder of the released layout
  std::string device = "cpu";       // cpu, reference, cuda-reference[:i]
  int threads = 0;                  // 0 = one per available core; shared by all engines of the process
  int engines = 1;                  // data-parallel engines
  int ep = 1;                       // expert-parallel executors; 1 = every engine computes its experts itself
  int cp = 1;                       // context-parallel ranks of each engine, for long prefills
  bool group_sync = false;          // engines take steps of one kind together, as a group of several hosts must
  int max_num_seqs = 64;            // running sequences per engine
  int max_num_batched_tokens = 512; // rows of one step per engine
  bool chunked_prefill = true;
  int max_model_len = 0;        // 0 = the checkpoint's max_position_embeddings
  bool async = true;            // plan a step while the one before it runs
  int kv_blocks = 0;            // 0 = enough for max_num_seqs sequences within the memory budget
  bool prefix_cache = true;     // requests share what equal prompt starts leave in the cache
  int prefix_snapshots = 0;     // state slots beyond max_num_seqs that keep states for the cache; 0 = by memory
  int snapshot_interval = 4096; // prompt tokens between kept states, a multiple of 128; 0 = only at prompts' ends
  // Which step comes next, in steps and prompt rows; see scheduler_limits.
  int decode_steps_between = 1, prefill_fill_tokens = 0, ttft_bound_steps = 16, ageing_steps = 256;
  std::optional<int> nextn;           // drafts of one round, 0 = no speculation; absent: the drafter's whole block
  std::optional<bool> varlen;         // verification lengths by confidence; absent: yes
  std::string verify = "coupled";     // coupled | rejection: how drafts are accepted
  std::string spec_curve;             // file of the step-cost curve; empty: measured at every start
  std::string confidence_temperature; // of the drafter's confidences: one, or nextn separated by commas; empty: 1
  std::string roundings = "serving";  // serving | model | off
  // Rows of a prompt that the consumer layers compute: off (all) | mask | compact | exact. Empty = compact with serving
  // roundings, off with others.
  std::string yoco;
  int so_timeout = 20;               // seconds from a request's arrival to its compiled constraint
  int so_compilers = 2;              // constraints compiled at once, each by a thread of its own
  int so_mask_threads = 2;           // of each engine, beside its scheduler's: make masks; started when one is needed
  int so_cache_mib = 2048;           // MiB of compiled constraints kept for later requests; 0 = none
  int yoco_keep = 0;                 // rows at a prompt's end that mask and compact keep; 0 = the fewest, 140 for V4.1
  std::optional<std::uint64_t> seed; // exactness.md §6
  std::function<void(double)>
      on_load_progress{}; // hears values in (0, 1] while the weights are loaded, on the same thread
};

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

  const tokenizer& vocabulary() const;
  const model_config& config() const;
  const std::string& numerics_id() const;
  std::string description() const; // device, numerics id, engines, cache sizes: one line for people

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace troupe
