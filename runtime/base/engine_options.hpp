// The options of an engine, and the one table that describes each of them for flags, TOML, environment and help, so
// that a value is checked in one place whatever it came from.
#pragma once
#include "runtime/base/result.hpp"
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace troupe {

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
  int lookahead_tokens = 0;           // least rows of a prompt's chunk
  std::optional<int> nextn;           // drafts of one round, 0 = no speculation; absent: the drafter's whole block
  std::optional<bool> varlen;         // verification lengths by confidence; absent: yes
  std::string verify = "coupled";     // coupled | rejection: how drafts are accepted
  std::string spec_curve;             // file of the step-cost curve, for an hour; empty: measured at every start
  std::string confidence_temperature; // of the drafter's confidences: one, or nextn separated by commas; empty: 1
  std::string roundings = "serving";  // serving | model | off
  // Rows of a prompt that the consumer layers compute: off (all) | mask | compact | exact. Empty = compact with serving
  // roundings, off with others.
  std::string yoco;
  int so_timeout = 20;               // seconds from a request's arrival to its compiled constraint
  int so_compilers = 4;              // constraints compiled at once, each by a thread of its own
  int so_mask_threads = 2;           // of each engine, beside its scheduler's: make masks; started when one is needed
  int so_cache_mib = 2048;           // MiB of compiled constraints kept for later requests; 0 = none
  bool so_block_added_tokens = true; // all added tokens are no text under a constraint, not the special ones alone
  // What one constraint may use; see compile_limits. Times in ms of processor time.
  int so_text_kib = 4096, so_compile_ms = 2000, so_compile_mib = 256;
  int so_schema_nesting = 256, so_group_nesting = 1000, so_regex_nesting = 256;
  int so_rule_states = 20'000, so_states = 500'000, so_pairs = 200'000, so_frontier_items = 5000;
  int yoco_keep = 0;                 // rows at a prompt's end that mask and compact keep; 0 = the fewest, 140 for V4.1
  std::optional<std::uint64_t> seed; // exactness.md §6
  std::function<void(double)>
      on_load_progress{}; // hears values in (0, 1] while the weights are loaded, on the same thread
};

// A value with its place of origin, for messages: "command line" and "--ep", "environment" and "DEEPINFER_...", a
// file's path with the line and "engine.ep".
struct sourced_value {
  std::string source, key, value;
};

struct engine_option {
  enum class kind : std::uint8_t { text, number, wide_number, toggle }; // wide: up to 2^64 - 1, more than TOML has
  using field = std::variant<std::string engine_options::*, int engine_options::*, std::optional<int> engine_options::*,
                             std::optional<std::uint64_t> engine_options::*, bool engine_options::*,
                             std::optional<bool> engine_options::*>;
  const char* name; // flag without dashes
  field member;
  const char* value_name;  // in help
  const char* environment; // name of the environment variable; null if there is none
  const char* help;
  int low = 0, high = 0;                         // of an int
  void (*check)(const sourced_value&) = nullptr; // throws config_error for a text or number that is not legal
  kind type() const;
  std::string key() const; // of [engine]: the name with underscores
};

std::span<const engine_option> engine_option_table();
const engine_option* engine_option_of_key(std::string_view key);   // "max_num_seqs"; null if there is none
const engine_option* engine_option_of_name(std::string_view name); // "max-num-seqs"

// Checks the value and stores it. Throws config_error with the value's origin.
void set_engine_option(engine_options& options, const engine_option& option, const sourced_value& value);
// The value as text that set_engine_option takes; absent where what it stands for depends on the model or the machine.
std::optional<std::string> engine_option_text(const engine_options& options, const engine_option& option);

// Values by option name; those of `given` were set by somebody. Throws config_error for a value that has no effect
// beside the others.
engine_options engine_options_of(const std::map<std::string, sourced_value>& given);

// All variables of the process.
using environment_map = std::map<std::string, std::string>;
environment_map process_environment();

// Values of the environment by option name. `other` hears of each DEEPINFER_ variable that is no engine option and says
// whether it has an effect; throws config_error for one that has none.
std::map<std::string, sourced_value> engine_values_of(const environment_map& environment,
                                                      const std::function<bool(const sourced_value&)>& other);

// A whole number of the range, or config_error with the value's origin.
template <class T> T number_of(const sourced_value& value, T low, T high);
extern template int number_of(const sourced_value&, int, int);
extern template std::int64_t number_of(const sourced_value&, std::int64_t, std::int64_t);
extern template std::uint64_t number_of(const sourced_value&, std::uint64_t, std::uint64_t);

} // namespace troupe
