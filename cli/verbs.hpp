// The verbs: each runs one command to its end and returns the exit code of cli.md. They throw config_error for what the
// user has to correct before anything can run.
#pragma once
#include "cli/options.hpp"

namespace troupe {

inline constexpr int exit_ok = 0, exit_request_failed = 1, exit_usage = 2, exit_interrupted = 130;
inline constexpr int exit_degraded = 1, exit_time_out = 3, exit_partial = 4, exit_no_leader = 5, exit_refused = 6,
                     exit_leftovers = 8, exit_internal = 70;
inline constexpr int exit_passing = 75; // of a cluster's process that may start the next time
inline constexpr std::int32_t default_generate_tokens = 256, default_chat_tokens = 1024;

int run_generate(const generate_options& options);
int run_chat(const chat_options& options);
int run_batch(const batch_options& options);
int run_score(const score_options& options);
int run_baseline(const baseline_options& options);
int run_tokenize(const tokenize_options& options);
int run_grammar_check(const grammar_check_options& options);
int run_bench(const bench_options& options);
int run_coordinator(const cluster_process_options& options);
int run_node(const cluster_process_options& options);
int run_worker(const cluster_process_options& options);
int run_gateway(const cluster_process_options& options);
int run_remote(const remote_options& options);
int run_keygen(const keygen_options& options);
int run_launch(const launch_options& options);
int run_stop(const stop_options& options);
int run_status(const status_options& options);
int run_migrate(const migrate_options& options);
int run_logs(const logs_options& options);
int run_make_model(const make_model_options& options);
int run_check_model(const check_model_options& options);
int run_check(const check_options& options);

std::string bench_names(); // "decode, prefill, ..."

} // namespace troupe
