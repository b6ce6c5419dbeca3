// What an engine and its front count. Each struct is a value of one owner, who bumps plain integers; others get copies
// by message. Times are seconds. Names and buckets for Prometheus: metrics_text.hpp.
#pragma once
#include "runtime/kv/kv_cache.hpp"
#include "runtime/metrics/draft_counters.hpp"
#include "runtime/metrics/histogram.hpp"
#include "runtime/metrics/mask_counters.hpp"
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe {

namespace bounds { // those of vLLM where it has the same quantity
inline constexpr std::array first_token{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                        1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
inline constexpr std::array between_tokens{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                           0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
inline constexpr std::array latency{0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
inline constexpr std::array step{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01,
                                 0.02, 0.05, 0.1,  0.2,  0.5,  1.0,  2.0,  5.0,  10.0};
inline constexpr std::array rows{1.0,   8.0,    16.0,   32.0,   64.0,   128.0,  256.0,
                                 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0};
inline constexpr std::array tokens{1.0,     2.0,      5.0,      10.0,     20.0,     50.0,    100.0,
                                   200.0,   500.0,    1000.0,   2000.0,   5000.0,   10000.0, 20000.0,
                                   50000.0, 100000.0, 200000.0, 500000.0, 1000000.0};
inline constexpr std::array branches{1.0, 2.0, 5.0, 10.0, 20.0};
inline constexpr std::array compile{1e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01,
                                    0.02, 0.05, 0.1,  0.2,  0.5,  1.0,  2.0};
} // namespace bounds

// One branch of a request at its end, from the one who watched its tokens arrive.
struct branch_record {
  std::uint32_t rank = 0;    // of the engine that computed it
  std::string finish_reason; // stop | length | abort | error
  std::string cause;         // of an abort: who wanted it; of an error: its code
  std::int64_t prompt_tokens = 0, output_tokens = 0, max_tokens = 0;
  double first_token = 0, last_token = 0, end = 0; // since the request was accepted; the first two only with output
  histogram<bounds::between_tokens> gaps;          // between two arrivals of tokens
};

// The branches of one engine, counted by the gateway when they end; their tokens as they come (token_counters).
struct request_metrics {
  std::uint64_t prompt_tokens = 0, generation_tokens = 0;   // prompts of branches with output
  std::uint64_t stop = 0, length = 0, abort = 0, error = 0; // by finish reason
  std::map<std::string, std::uint64_t> abort_causes, error_codes;
  histogram<bounds::tokens> request_prompt_tokens, request_generation_tokens, params_max_tokens;
  histogram<bounds::branches> params_n; // of whole requests, at the engine of their first branch
  histogram<bounds::first_token> time_to_first_token;
  histogram<bounds::between_tokens> inter_token_latency, time_per_output_token;
  histogram<bounds::latency> end_to_end, decode_time;
  std::uint64_t held_messages = 0; // to the engine, that waited because others were not answered

  void take(const branch_record& r);
  void refuse(const std::string& code, std::int32_t branches); // that were never queued
};

// What a scheduler counts. Counters only grow.
struct engine_metrics {
  std::uint64_t prefill_steps = 0, decode_steps = 0;
  draft_counters speculation;
  mask_counters masks;
  histogram<bounds::rows> iteration_tokens;    // rows of a step
  histogram<bounds::step> plan_time, run_time; // of a step
  histogram<bounds::latency> queue_time,
      prefill_time; // of a branch: up to its first step, from there to its first token

  void take_step(bool prefill, std::int64_t rows, double run_seconds);
};

// What the verifier of an engine knows (spec_report).
struct verifier_snapshot {
  double tokens_per_step = 1;
  std::uint64_t decisions = 0, late = 0;
  std::vector<double> calibration_error, suggested_temperature; // [longest block]
  double slope_ms = 0, sampler_ms = 0, kv_token_ms = 0;         // of the step cost
  std::int64_t total_rows = 0;                                  // last budget
  bool useless = false;                                         // none of the newest drafts was right
};

// What compiles the constraints of a process.
struct grammar_report {
  std::uint64_t waiting = 0, queued = 0, running = 0; // requests; constraints
  std::uint64_t compiled = 0, refused = 0, hits = 0;  // so far
  std::uint64_t given_up = 0, lost = 0;               // compilations without an answer; compilers that ended
  std::uint64_t kept = 0, kept_bytes = 0;             // in the cache
  histogram<bounds::compile> compile_time;            // of one constraint, processor time; refusals too
};

// Everything about one engine. Pools without their dummies.
struct engine_snapshot {
  request_metrics requests;
  engine_metrics steps;
  kv_statistics kv;
  verifier_snapshot verifier;
  std::uint64_t running = 0, waiting = 0, preemptions = 0; // sequences now, and times that one lost its cache
  std::string waits_for;                                   // what the waiting ones lack: as in scheduler_report
  std::int32_t kv_blocks = 0, state_slots = 0;
};

} // namespace troupe
