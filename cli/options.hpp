// The command line as plain values: one struct for each verb. Only options.cpp knows the parser behind it.
#pragma once
#include "runtime/request/sampling_params.hpp"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

// Engine options as they stand on the command line: text by option name (engine_settings.hpp), not yet checked.
struct engine_flags {
  std::map<std::string, std::string> given;
  std::string config_file;  // --config; empty if absent
  std::string metrics_file; // --metrics; empty if absent
  std::string cluster;      // --cluster: the engines of a running cluster instead; empty if absent
  std::string gateway;      // --gateway: which of the cluster's takes the requests, or "none"; empty: any
};

struct log_settings {
  int verbosity = 0; // -1 quiet, 0 normal, 1 verbose
  bool json = false;
  bool timed = false; // text lines begin with the time, as in the logs of a cluster's processes
};

struct generate_options {
  engine_flags engine;
  std::vector<std::string> prompts, prompt_files, id_lists;
  bool raw = false, json = false;
  bool temperature_given = false; // the demonstration prompt is answered at temperature 0 unless one is given
  sampling_params params;
};

struct chat_options {
  engine_flags engine;
  std::string system;
  bool think = false;
  sampling_params params;
};

struct batch_options {
  engine_flags engine;
  std::string input, output;
};

struct score_options {
  engine_flags engine;
  std::string input, output, logits_file;
  bool yoco_check = false;
};

struct baseline_options {
  engine_flags engine;
  std::string action, input, baseline; // action: make | check
  std::string mode;                    // empty, prefill or decode
};

struct tokenize_options {
  std::string tokenizer_file, input = "-", output = "-";
  bool decode = false;
};

struct grammar_check_options {
  std::string tokenizer_file, input = "-", output = "-";
  bool strict = false;
};

struct bench_options {
  engine_flags engine;
  std::string name, json_file;
  bool smoke = false;
  double seconds = 0;
};

// A cluster's configuration, with values from the command line over those of the file.
struct cluster_file {
  std::string file;
  std::vector<std::string> set; // "table.key=value"
};

struct cluster_process_options {
  cluster_file file;
  std::string name;              // of a node
  int index = 0;                 // of a coordinator or gateway; the rank of a worker
  std::uint64_t incarnation = 0; // 0: made here
};
struct coordinator_options : cluster_process_options {};
struct node_options : cluster_process_options {};
struct worker_options : cluster_process_options {};
struct gateway_options : cluster_process_options {};

struct remote_options {
  cluster_file file;
  std::string process; // coordinator.0, node.n0
};

struct keygen_options {
  std::string folder;
  std::vector<std::string> nodes;
};

struct launch_options {
  cluster_file file;
  int wait_ms = 300000; // until all workers must be active
};

struct stop_options {
  cluster_file file;
  bool now = false;
};

struct status_options {
  cluster_file file;
  bool json = false, watch = false;
};

// A copy of an expert to another rank of its group.
struct migrate_options {
  cluster_file file;
  int layer = -1, expert = -1;
  std::string to; // "RANK" or "RANK:SLOT"
};

struct logs_options {
  cluster_file file;
  std::string process;
};

struct make_model_options {
  std::string folder, config_file, tokenizer_file; // empty files: those that come with the program
  bool full = false, index_only = false;
  int layers = 0, experts = 0, drafter_layers = -1, drafter_experts = 0, vocab = 0, engram_vocab = 0; // 0, -1: default
  std::string keep_layers;
  std::vector<std::string> set;
  std::uint64_t seed = 0;
  int shard_mebibytes = 4096;
};

struct check_model_options {
  std::string folder;
  bool index_only = false, json = false;
  int ep = 1, max_num_seqs = 64, max_num_batched_tokens = 512, max_model_len = 0, max_names = 8;
  std::string verify = "coupled";
  double device_gibibytes = 0; // 0: not asked for
};

struct check_options {
  std::string file;
  std::vector<std::string> set;
  bool json = false;
};

struct command_line {
  std::optional<int> exit_code; // set: help, version or a usage error has been printed, nothing is left to do
  log_settings log;
  std::variant<std::monostate, generate_options, chat_options, batch_options, score_options, baseline_options,
               tokenize_options, grammar_check_options, bench_options, make_model_options, check_model_options,
               launch_options, status_options, stop_options, migrate_options, logs_options, coordinator_options,
               node_options, worker_options, gateway_options, remote_options, keygen_options, check_options>
      verb;
};

// Prints help and usage errors itself.
command_line parse_command_line(int argc, char** argv);

// One number, "id=value" pairs or "0,17,4" lists; throw config_error naming `key` and the text.
std::vector<std::int32_t> parse_id_list(const std::string& key, const std::string& text);
std::pair<std::int32_t, float> parse_logit_bias(const std::string& text);

} // namespace troupe
