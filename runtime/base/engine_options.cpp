#include "runtime/base/engine_options.hpp"
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <unistd.h>

namespace troupe {

namespace {

template <class T> std::optional<T> whole_number(const std::string& text) {
  T n{};
  const char* end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, n);
  return fault == std::errc() && rest == end ? std::optional<T>(n) : std::nullopt;
}

} // namespace

template <class T> T number_of(const sourced_value& v, T low, T high) {
  const auto n = whole_number<T>(v.value);
  if (!n || *n < low || *n > high)
    throw config_error(v.source, v.key, v.value, "this is not a whole number in the legal range",
                       "give a number from " + std::to_string(low) + " to " + std::to_string(high));
  return *n;
}
template int number_of(const sourced_value&, int, int);
template std::int64_t number_of(const sourced_value&, std::int64_t, std::int64_t);
template std::uint64_t number_of(const sourced_value&, std::uint64_t, std::uint64_t);

namespace {

[[noreturn]] void refuse(const sourced_value& v, const std::string& why, const std::string& remedy) {
  throw config_error(v.source, v.key, v.value, why, remedy);
}

void check_model(const sourced_value& v) {
  if (v.value.empty())
    refuse(v, "no folder is named", "name one, or leave the option out for the embedded model");
}

void check_device(const sourced_value& v) {
  const bool plug_in =
      v.value == "cuda-reference" || v.value.starts_with("cuda-reference:"); // checked when it is loaded
  if (!plug_in && v.value.starts_with("cuda"))
    refuse(v, "this build has no such device; it has cpu, reference and, on an NVIDIA GPU, cuda-reference",
           "use cpu, or leave the option out");
  if (!plug_in && v.value != "cpu" && v.value != "reference")
    refuse(v, "there is no device of this name", "use cpu, reference or cuda-reference[:index]");
}

void check_roundings(const sourced_value& v) {
  if (v.value != "serving" && v.value != "model" && v.value != "off")
    refuse(v, "there is no such set of roundings", "use serving, model or off");
}

void check_yoco(const sourced_value& v) {
  if (v.value != "off" && v.value != "mask" && v.value != "compact" && v.value != "exact")
    refuse(v, "there is no such mode", "use off, mask, compact or exact");
}

void check_verify(const sourced_value& v) {
  if (v.value != "coupled" && v.value != "rejection")
    refuse(v, "there is no such rule", "use coupled or rejection");
}

void check_spec_curve(const sourced_value& v) {
  if (v.value.empty())
    refuse(v, "no file is named", "name one, or leave the option out");
}

void check_snapshot_interval(const sourced_value& v) {
  if (number_of(v, 0, 1 << 24) % 128 != 0)
    refuse(v, "states are kept where a cache block of 128 tokens ends", "give a multiple of 128");
}

// A number below `least` is refused with its own reason. What is no number, or too large, is refused where it is
// stored.
void refuse_below(const sourced_value& v, int least, const std::string& why, const std::string& remedy) {
  if (const auto n = whole_number<int>(v.value); n && *n < least)
    refuse(v, why, remedy);
}

void check_max_num_batched_tokens(const sourced_value& v) {
  refuse_below(v, 128, "the rows of a step do not fill one cache block, which has 128", "give 128 or more");
}

void check_ttft_bound_steps(const sourced_value& v) {
  refuse_below(v, 1,
               "prompts that wait for no step wait for no prefill_fill_tokens either: the two contradict each other",
               "give 1 or more; for prompts that do not wait leave both out");
}

constexpr std::array table{
    engine_option{"model", &engine_options::model, "DIR", "DEEPINFER_HF_MODEL_DIR",
                  "model folder (default: the embedded model)", 0, 0, check_model},
    engine_option{"device", &engine_options::device, "NAME", nullptr,
                  "cpu (default), reference, or cuda-reference[:i] where a GPU is", 0, 0, check_device},
    engine_option{"threads", &engine_options::threads, "N", nullptr, "compute threads (default 0: one for each core)",
                  0, 1024},
    engine_option{"max-num-seqs", &engine_options::max_num_seqs, "N", nullptr,
                  "running sequences per engine (default 64)", 1, 4096},
    engine_option{"max-num-batched-tokens", &engine_options::max_num_batched_tokens, "N", nullptr,
                  "rows of one step per engine, at least the 128 of a cache block (default 512)", 128, 1 << 20,
                  check_max_num_batched_tokens},
    engine_option{"max-model-len", &engine_options::max_model_len, "N", nullptr,
                  "tokens of prompt and output (default 0: as the model allows)", 0, 1 << 24},
    engine_option{"chunked-prefill", &engine_options::chunked_prefill, "", nullptr,
                  "cut long prompts into the rows of several steps (default on; off: only where a state is kept)"},
    engine_option{"async", &engine_options::async, "", "DEEPINFER_ZERO_OVERHEAD_SCHEDULING",
                  "plan a step while the one before it runs (default on)"},
    engine_option{"nextn", &engine_options::nextn, "K", "DEEPINFER_USE_NEXTN_DECODE",
                  "drafted tokens that a step may verify (default: the drafter's block; 0: no speculation)", 0, 1024},
    engine_option{"verify", &engine_options::verify, "RULE", nullptr,
                  "how drafts are accepted: coupled (default; changes no token) or rejection", 0, 0, check_verify},
    engine_option{"varlen", &engine_options::varlen, "", "DEEPINFER_ENABLE_MTP_VARLEN",
                  "verify as many drafts as pay by their confidence, not all (default on)"},
    engine_option{"spec-curve", &engine_options::spec_curve, "FILE", nullptr,
                  "file that keeps the measured times of decode steps for an hour (default: measured at every start)",
                  0, 0, check_spec_curve},
    engine_option{"confidence-temperature", &engine_options::confidence_temperature, "T[,T...]", nullptr,
                  "divides the drafter's confidences, by position (default 1)"},
    engine_option{"seed", &engine_options::seed, "S", nullptr,
                  "makes the seeds of requests a function of their ids (default: drawn; batch: 0)"},
    engine_option{"yoco", &engine_options::yoco, "MODE", "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE",
                  "rows of a prompt that its second half of layers computes: off (all), mask, compact or exact "
                  "(default compact; off with --roundings model or off)",
                  0, 0, check_yoco},
    engine_option{"yoco-keep", &engine_options::yoco_keep, "N", "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS",
                  "rows at a prompt's end that mask and compact keep (default 140)", 1, 1 << 24},
    engine_option{"prefix-cache", &engine_options::prefix_cache, "", nullptr,
                  "compute equal prompt starts once and keep them for later requests (default on)"},
    engine_option{"prefix-snapshots", &engine_options::prefix_snapshots, "N", nullptr,
                  "states kept for the prefix cache beside those of running sequences (default 0: by memory)", 0,
                  1 << 20},
    engine_option{"snapshot-interval", &engine_options::snapshot_interval, "N", nullptr,
                  "prompt tokens between kept states, a multiple of 128 (default 4096; 0: only at prompts' ends and "
                  "where they part)",
                  0, 1 << 24, check_snapshot_interval},
    engine_option{"kv-blocks", &engine_options::kv_blocks, "N", nullptr,
                  "cache blocks of 128 tokens (default 0: enough for --max-num-seqs)", 0, 1 << 24},
    engine_option{"decode-steps-between", &engine_options::decode_steps_between, "N", nullptr,
                  "decode steps between two prefill steps while sequences decode (default 1)", 1, 1 << 20},
    engine_option{"prefill-fill-tokens", &engine_options::prefill_fill_tokens, "N", nullptr,
                  "prompt rows that prefill waits for while sequences decode (default 0)", 0, 1 << 20},
    engine_option{"ttft-bound-steps", &engine_options::ttft_bound_steps, "N", nullptr,
                  "steps after which prefill waits no longer for --prefill-fill-tokens (default 16)", 1, 1 << 20,
                  check_ttft_bound_steps},
    engine_option{"lookahead-tokens", &engine_options::lookahead_tokens, "N", nullptr,
                  "fewest rows of a prompt's chunk, unless the prompt or a kept state ends it (default 0)", 0, 1 << 20},
    engine_option{"ageing-steps", &engine_options::ageing_steps, "N", nullptr,
                  "steps of waiting that outweigh one level of a request's priority (default 256)", 1, 1 << 20},
    engine_option{"so-timeout", &engine_options::so_timeout, "S", "DEEPINFER_XGRAMMAR_TIMEOUT",
                  "seconds in which the constraint of a request must be compiled (default 20)", 1, 86400},
    engine_option{"so-compilers", &engine_options::so_compilers, "N", "DEEPINFER_SO_BUILDER_CPUS",
                  "constraints compiled at once (default 4)", 1, 64},
    engine_option{"so-cache-mib", &engine_options::so_cache_mib, "N", nullptr,
                  "MiB of compiled constraints kept for later requests (default 2048; 0: none)", 0, 1 << 24},
    engine_option{"so-mask-threads", &engine_options::so_mask_threads, "N", nullptr,
                  "threads of each engine that make masks beside its scheduler (default 2)", 0, 64},
    engine_option{"so-block-added-tokens", &engine_options::so_block_added_tokens, "", nullptr,
                  "under a constraint no added token is text, as special ones never are (default on)"},
    engine_option{"so-text-kib", &engine_options::so_text_kib, "N", nullptr,
                  "KiB of a constraint's text (default 4096)", 1, 1 << 20},
    engine_option{"so-schema-nesting", &engine_options::so_schema_nesting, "N", nullptr,
                  "values in each other in the text of a JSON schema (default 256)", 1, 256},
    engine_option{"so-group-nesting", &engine_options::so_group_nesting, "N", nullptr,
                  "groups in each other in an EBNF grammar (default 1000)", 1, 1000},
    engine_option{"so-regex-nesting", &engine_options::so_regex_nesting, "N", nullptr,
                  "groups in each other in a regular expression (default 256)", 1, 256},
    engine_option{"so-rule-states", &engine_options::so_rule_states, "N", nullptr,
                  "automaton states of one rule, text, number or object of a constraint (default 20000)", 1, 1 << 24},
    engine_option{"so-states", &engine_options::so_states, "N", nullptr,
                  "automaton states that a compilation may make (default 500000)", 1, 1 << 30},
    engine_option{"so-pairs", &engine_options::so_pairs, "N", nullptr,
                  "pairs of states that a compilation may look at (default 200000)", 1, 1 << 30},
    engine_option{"so-compile-ms", &engine_options::so_compile_ms, "N", nullptr,
                  "ms of processor time of one compilation (default 2000)", 1, 86'400'000},
    engine_option{"so-compile-mib", &engine_options::so_compile_mib, "N", nullptr,
                  "MiB of memory of one compilation (default 256)", 1, 1 << 20},
    engine_option{"so-frontier-items", &engine_options::so_frontier_items, "N", nullptr,
                  "ways to read an output that are followed at once (default 5000)", 1, 1 << 20},
    engine_option{"engines", &engine_options::engines, "N", nullptr,
                  "data-parallel engines in this process (default 1)", 1, 64},
    engine_option{"ep", &engine_options::ep, "N", nullptr, "expert-parallel executors in this process (default 1)", 1,
                  64},
    engine_option{"cp", &engine_options::cp, "N", nullptr,
                  "context-parallel ranks of each engine, for long prefills (default 1)", 1, 64},
    engine_option{"group-sync", &engine_options::group_sync, "", nullptr,
                  "engines take steps of one kind together, as a group of several hosts must (default off)"},
    engine_option{"roundings", &engine_options::roundings, "SET", nullptr,
                  "serving (default), model or off: roundings of activations", 0, 0, check_roundings},
};

// Variables of the original engine count as false in four spellings (engine.md §3.2); all else is true or false.
bool truth_of(const sourced_value& v) {
  if (v.key.starts_with("DEEPINFER_"))
    return !(v.value.empty() || v.value == "0" || v.value == "false" || v.value == "False");
  if (v.value != "true" && v.value != "false")
    refuse(v, "this is neither true nor false", "give one of them");
  return v.value == "true";
}

struct stored_value {
  engine_options& options;
  const engine_option& option;
  const sourced_value& given;

  void operator()(std::string engine_options::*f) const { options.*f = given.value; }
  void operator()(int engine_options::*f) const { options.*f = number_of(given, option.low, option.high); }
  void operator()(std::optional<int> engine_options::*f) const {
    options.*f = number_of(given, option.low, option.high);
  }
  void operator()(std::optional<std::uint64_t> engine_options::*f) const {
    options.*f = number_of(given, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  }
  void operator()(bool engine_options::*f) const { options.*f = truth_of(given); }
  void operator()(std::optional<bool> engine_options::*f) const { options.*f = truth_of(given); }
};

struct text_of_value {
  const engine_options& options;
  const engine_option& option;
  using text = std::optional<std::string>;

  static std::string truth(bool b) { return b ? "true" : "false"; }
  text operator()(std::string engine_options::*f) const { return (options.*f).empty() ? text() : text(options.*f); }
  text operator()(int engine_options::*f) const {
    return options.*f < option.low ? text() : text(std::to_string(options.*f));
  }
  text operator()(bool engine_options::*f) const { return truth(options.*f); }
  text operator()(std::optional<bool> engine_options::*f) const {
    return options.*f ? text(truth(*(options.*f))) : text();
  }
  template <class T> text operator()(std::optional<T> engine_options::*f) const {
    return options.*f ? text(std::to_string(*(options.*f))) : text();
  }
};

// A number of rows without a mode that takes one would change nothing.
void check_yoco_keep(const engine_options& o, const sourced_value& v) {
  if (o.yoco == "exact")
    refuse(v, "this has no effect with yoco exact, which keeps as many rows as the model needs",
           "leave one of them out");
  if (o.yoco == "off" || (o.yoco.empty() && o.roundings != "serving"))
    refuse(v, "this has no effect while yoco is off", "choose mask or compact, or leave the option out");
}

// A variable of the original engine that sets no option but names a behaviour which is fixed here.
bool names_what_is_fixed(const sourced_value& v) {
  if (v.key != "DEEPINFER_BATCH_INVARIANT")
    return false;
  if (v.value != "1")
    refuse(v, "results never depend on the batch, and there is no switch for it; only 1 is accepted",
           "set it to 1, or unset it");
  return true;
}

} // namespace

engine_option::kind engine_option::type() const {
  struct {
    kind operator()(std::string engine_options::*) const { return kind::text; }
    kind operator()(int engine_options::*) const { return kind::number; }
    kind operator()(std::optional<int> engine_options::*) const { return kind::number; }
    kind operator()(std::optional<std::uint64_t> engine_options::*) const { return kind::wide_number; }
    kind operator()(bool engine_options::*) const { return kind::toggle; }
    kind operator()(std::optional<bool> engine_options::*) const { return kind::toggle; }
  } of;
  return std::visit(of, member);
}

std::string engine_option::key() const {
  std::string key = name;
  std::ranges::replace(key, '-', '_');
  return key;
}

std::span<const engine_option> engine_option_table() {
  return table;
}

const engine_option* engine_option_of_key(std::string_view key) {
  for (const engine_option& o : table)
    if (key == o.key())
      return &o;
  return nullptr;
}

const engine_option* engine_option_of_name(std::string_view name) {
  for (const engine_option& o : table)
    if (name == o.name)
      return &o;
  return nullptr;
}

void set_engine_option(engine_options& options, const engine_option& option, const sourced_value& value) {
  if (option.check != nullptr)
    option.check(value);
  std::visit(stored_value{options, option, value}, option.member);
}

std::optional<std::string> engine_option_text(const engine_options& options, const engine_option& option) {
  return std::visit(text_of_value{options, option}, option.member);
}

engine_options engine_options_of(const std::map<std::string, sourced_value>& given) {
  engine_options options;
  for (const engine_option& o : table)
    if (const auto value = given.find(o.name); value != given.end())
      set_engine_option(options, o, value->second);
  if (const auto keep = given.find("yoco-keep"); keep != given.end())
    check_yoco_keep(options, keep->second);
  return options;
}

environment_map process_environment() {
  environment_map all;
  for (char** p = environ; *p != nullptr; ++p) {
    const std::string entry = *p;
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos)
      all.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return all;
}

std::map<std::string, sourced_value> engine_values_of(const environment_map& environment,
                                                      const std::function<bool(const sourced_value&)>& other) {
  std::map<std::string, sourced_value> values;
  for (const auto& [name, value] : environment) {
    const sourced_value v{"environment", name, value};
    if (name == "TROUPE_MODEL")
      values.try_emplace("model", v); // DEEPINFER_HF_MODEL_DIR is more specific and comes first
    if (!name.starts_with("DEEPINFER_"))
      continue;
    const auto option = std::ranges::find_if(
        table, [&](const engine_option& o) { return o.environment != nullptr && name == o.environment; });
    if (option != table.end())
      values[option->name] = v;
    else if (!names_what_is_fixed(v) && !other(v))
      refuse(v, "this variable has no effect here", "unset it");
  }
  return values;
}

} // namespace troupe
