#include "cli/engine_settings.hpp"
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <unistd.h>

namespace troupe {

namespace {

using kind = engine_option::kind;

constexpr std::array table{
    engine_option{"model", kind::text, "DIR", "DEEPINFER_HF_MODEL_DIR", "model folder (default: the embedded model)"},
    engine_option{"device", kind::text, "NAME", nullptr,
                  "cpu (default), reference, or cuda-reference[:i] where a GPU is"},
    engine_option{"threads", kind::number, "N", nullptr, "compute threads (default 0: one for each core)"},
    engine_option{"max-num-seqs", kind::number, "N", nullptr, "running sequences per engine (default 64)"},
    engine_option{"max-num-batched-tokens", kind::number, "N", nullptr, "rows of one step per engine (default 512)"},
    engine_option{"max-model-len", kind::number, "N", nullptr,
                  "tokens of prompt and output (default 0: as the model allows)"},
    engine_option{"chunked-prefill", kind::toggle, "", nullptr,
                  "cut long prompts into the rows of several steps (default on)"},
    engine_option{"async", kind::toggle, "", "DEEPINFER_ZERO_OVERHEAD_SCHEDULING",
                  "plan a step while the one before it runs (default on)"},
    engine_option{"nextn", kind::number, "K", "DEEPINFER_USE_NEXTN_DECODE",
                  "drafted tokens that a step may verify (default: the drafter's block; 0: no speculation)"},
    engine_option{"verify", kind::text, "RULE", nullptr,
                  "how drafts are accepted: coupled (default; changes no token) or rejection"},
    engine_option{"varlen", kind::toggle, "", "DEEPINFER_ENABLE_MTP_VARLEN",
                  "verify as many drafts as pay by their confidence, not all (default on)"},
    engine_option{"spec-curve", kind::text, "FILE", nullptr,
                  "file that keeps the measured times of decode steps (default: measured at every start)"},
    engine_option{"confidence-temperature", kind::text, "T[,T...]", nullptr,
                  "divides the drafter's confidences, by position (default 1)"},
    engine_option{"seed", kind::wide_number, "S", nullptr,
                  "makes the seeds of requests a function of their ids (default: drawn; batch: 0)"},
    engine_option{"yoco", kind::text, "MODE", "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE",
                  "rows of a prompt that its second half of layers computes: off (all), mask, compact or exact "
                  "(default compact; off with --roundings model or off)"},
    engine_option{"yoco-keep", kind::number, "N", "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS",
                  "rows at a prompt's end that mask and compact keep (default 140)"},
    engine_option{"prefix-cache", kind::toggle, "", nullptr,
                  "compute equal prompt starts once and keep them for later requests (default on)"},
    engine_option{"prefix-snapshots", kind::number, "N", nullptr,
                  "states kept for the prefix cache beside those of running sequences (default 0: by memory)"},
    engine_option{"snapshot-interval", kind::number, "N", nullptr,
                  "prompt tokens between kept states, a multiple of 128 (default 4096; 0: at prompts' ends only)"},
    engine_option{"kv-blocks", kind::number, "N", nullptr,
                  "cache blocks of 128 tokens (default 0: enough for --max-num-seqs)"},
    engine_option{"decode-steps-between", kind::number, "N", nullptr,
                  "decode steps between two prefill steps while sequences decode (default 1)"},
    engine_option{"prefill-fill-tokens", kind::number, "N", nullptr,
                  "prompt rows that prefill waits for while sequences decode (default 0)"},
    engine_option{"ttft-bound-steps", kind::number, "N", nullptr,
                  "steps after which prefill waits no longer for them (default 16)"},
    engine_option{"ageing-steps", kind::number, "N", nullptr,
                  "steps of waiting that outweigh one level of a request's priority (default 256)"},
    engine_option{"so-timeout", kind::number, "S", nullptr,
                  "seconds in which the constraint of a request must be compiled (default 20)"},
    engine_option{"so-compilers", kind::number, "N", nullptr, "constraints compiled at once (default 2)"},
    engine_option{"so-mask-threads", kind::number, "N", nullptr,
                  "threads of each engine that make masks beside its scheduler (default 2)"},
    engine_option{"so-cache-mib", kind::number, "N", nullptr,
                  "MiB of compiled constraints kept for later requests (default 2048; 0: none)"},
    engine_option{"engines", kind::number, "N", nullptr, "data-parallel engines in this process (default 1)"},
    engine_option{"ep", kind::number, "N", nullptr, "expert-parallel executors in this process (default 1)"},
    engine_option{"cp", kind::number, "N", nullptr,
                  "context-parallel ranks of each engine, for long prefills (default 1)"},
    engine_option{"group-sync", kind::toggle, "", nullptr,
                  "engines take steps of one kind together, as a group of several hosts must (default off)"},
    engine_option{"roundings", kind::text, "SET", nullptr, "serving (default), model or off: roundings of activations"},
};

template <class T> T number_of(const sourced_value& v, T low, T high) {
  T n{};
  const char* end = v.value.data() + v.value.size();
  const auto [rest, fault] = std::from_chars(v.value.data(), end, n);
  if (fault != std::errc() || rest != end || n < low || n > high)
    throw config_error(v.source, v.key, v.value, "this is not a whole number in the legal range",
                       "give a number from " + std::to_string(low) + " to " + std::to_string(high));
  return n;
}

// Environment variables count as false in four spellings (engine.md §3.2); files and flags give true or false.
bool truth_of(const sourced_value& v) {
  if (v.source == "environment")
    return !(v.value.empty() || v.value == "0" || v.value == "false" || v.value == "False");
  return v.value == "true";
}

[[noreturn]] void refuse(const sourced_value& v, const std::string& why, const std::string& remedy) {
  throw config_error(v.source, v.key, v.value, why, remedy);
}

void set_model(engine_options& o, const sourced_value& v) {
  if (v.value.empty())
    refuse(v, "no folder is named", "name one, or leave the option out for the embedded model");
  o.model = v.value;
}

void set_device(engine_options& o, const sourced_value& v) {
  const bool plug_in =
      v.value == "cuda-reference" || v.value.starts_with("cuda-reference:"); // checked when it is loaded
  if (!plug_in && v.value.starts_with("cuda"))
    refuse(v, "this build has no such device; it has cpu, reference and, on an NVIDIA GPU, cuda-reference",
           "use cpu, or leave the option out");
  if (!plug_in && v.value != "cpu" && v.value != "reference")
    refuse(v, "there is no device of this name", "use cpu, reference or cuda-reference[:index]");
  o.device = v.value;
}

void set_roundings(engine_options& o, const sourced_value& v) {
  if (v.value != "serving" && v.value != "model" && v.value != "off")
    refuse(v, "there is no such set of roundings", "use serving, model or off");
  o.roundings = v.value;
}

void set_yoco(engine_options& o, const sourced_value& v) {
  if (v.value != "off" && v.value != "mask" && v.value != "compact" && v.value != "exact")
    refuse(v, "there is no such mode", "use off, mask, compact or exact");
  o.yoco = v.value;
}

// A number of rows without a mode that takes one would change nothing.
void check_yoco_keep(const engine_options& o, const sourced_value& v) {
  if (o.yoco == "exact")
    refuse(v, "this has no effect with yoco exact, which keeps as many rows as the model needs",
           "leave one of them out");
  if (o.yoco == "off" || (o.yoco.empty() && o.roundings != "serving"))
    refuse(v, "this has no effect while yoco is off", "choose mask or compact, or leave the option out");
}

void set_spec_curve(engine_options& o, const sourced_value& v) {
  if (v.value.empty())
    refuse(v, "no file is named", "name one, or leave the option out");
  o.spec_curve = v.value;
}

void set_snapshot_interval(engine_options& o, const sourced_value& v) {
  o.snapshot_interval = number_of(v, 0, 1 << 24);
  if (o.snapshot_interval % 128 != 0)
    refuse(v, "states are kept where a cache block of 128 tokens ends", "give a multiple of 128");
}

void apply(engine_options& o, const std::string& name, const sourced_value& v) {
  if (name == "model")
    set_model(o, v);
  else if (name == "device")
    set_device(o, v);
  else if (name == "threads")
    o.threads = number_of(v, 0, 1024);
  else if (name == "max-num-seqs")
    o.max_num_seqs = number_of(v, 1, 4096);
  else if (name == "max-num-batched-tokens")
    o.max_num_batched_tokens = number_of(v, 1, 1 << 20);
  else if (name == "max-model-len")
    o.max_model_len = number_of(v, 0, 1 << 24);
  else if (name == "chunked-prefill")
    o.chunked_prefill = truth_of(v);
  else if (name == "seed")
    o.seed = number_of(v, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  else if (name == "kv-blocks")
    o.kv_blocks = number_of(v, 0, 1 << 24);
  else if (name == "async")
    o.async = truth_of(v);
  else if (name == "prefix-cache")
    o.prefix_cache = truth_of(v);
  else if (name == "prefix-snapshots")
    o.prefix_snapshots = number_of(v, 0, 1 << 20);
  else if (name == "snapshot-interval")
    set_snapshot_interval(o, v);
  else if (name == "decode-steps-between")
    o.decode_steps_between = number_of(v, 1, 1 << 20);
  else if (name == "prefill-fill-tokens")
    o.prefill_fill_tokens = number_of(v, 0, 1 << 20);
  else if (name == "ttft-bound-steps")
    o.ttft_bound_steps = number_of(v, 0, 1 << 20);
  else if (name == "ageing-steps")
    o.ageing_steps = number_of(v, 1, 1 << 20);
  else if (name == "so-timeout")
    o.so_timeout = number_of(v, 1, 86400);
  else if (name == "so-compilers")
    o.so_compilers = number_of(v, 1, 64);
  else if (name == "so-mask-threads")
    o.so_mask_threads = number_of(v, 0, 64);
  else if (name == "so-cache-mib")
    o.so_cache_mib = number_of(v, 0, 1 << 24);
  else if (name == "engines")
    o.engines = number_of(v, 1, 64);
  else if (name == "ep")
    o.ep = number_of(v, 1, 64);
  else if (name == "cp")
    o.cp = number_of(v, 1, 64);
  else if (name == "group-sync")
    o.group_sync = truth_of(v);
  else if (name == "roundings")
    set_roundings(o, v);
  else if (name == "yoco")
    set_yoco(o, v);
  else if (name == "yoco-keep")
    o.yoco_keep = number_of(v, 1, 1 << 24);
  else if (name == "nextn")
    o.nextn = number_of(v, 0, 1024);
  else if (name == "varlen")
    o.varlen = truth_of(v);
  else if (name == "verify")
    o.verify = v.value;
  else if (name == "spec-curve")
    set_spec_curve(o, v);
  else if (name == "confidence-temperature")
    o.confidence_temperature = v.value;
}

// Variables of the original engine that set no option but name a behaviour which is fixed here.
bool accepted_without_option(const std::string& name, const std::string& value) {
  const sourced_value v{"environment", name, value};
  if (name == "DEEPINFER_BATCH_INVARIANT") {
    if (value != "1")
      refuse(v, "results never depend on the batch, and there is no switch for it; only 1 is accepted",
             "set it to 1, or unset it");
    return true;
  }
  if (name == "DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS") {
    if (number_of(v, 0, 1 << 20) != 0)
      refuse(v, "this version places every expert once, so only 0 is supported", "set it to 0, or unset it");
    return true;
  }
  return false;
}

} // namespace

std::span<const engine_option> engine_option_table() {
  return table;
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

std::map<std::string, sourced_value> engine_values_of(const environment_map& environment) {
  std::map<std::string, sourced_value> values;
  for (const auto& [name, value] : environment) {
    if (name == "TROUPE_MODEL")
      values.try_emplace("model", sourced_value{"environment", name,
                                                value}); // DEEPINFER_HF_MODEL_DIR is more specific and comes first
    if (!name.starts_with("DEEPINFER_"))
      continue;
    bool known = accepted_without_option(name, value);
    for (const engine_option& o : table)
      if (o.environment != nullptr && name == o.environment) {
        values[o.name] = {"environment", name, value};
        known = true;
      }
    if (!known)
      refuse({"environment", name, value}, "this variable has no effect here", "unset it");
  }
  return values;
}

engine_options resolve_engine_options(const engine_flags& flags, const environment_map& environment) {
  std::map<std::string, sourced_value> values;
  if (!flags.config_file.empty())
    values = engine_values_of_file(flags.config_file);
  for (auto& [name, value] : engine_values_of(environment))
    values[name] = value;
  for (const auto& [name, text] : flags.given)
    values[name] = {"command line", "--" + name, text};

  engine_options options;
  for (const auto& [name, value] : values)
    apply(options, name, value);
  if (const auto keep = values.find("yoco-keep"); keep != values.end())
    check_yoco_keep(options, keep->second);
  if (options.model.empty())
    options.model = default_model_folder();
  return options;
}

namespace {

// models/<name> beside the binary, where it is installed, or in the source tree; where it was looked for if absent.
std::pair<std::string, bool> shipped_folder(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored);
  const std::array<fs::path, 3> places{binary.parent_path() / "models" / name,
                                       binary.parent_path().parent_path() / "share/troupe/models" / name,
                                       fs::path(TROUPE_MODELS_DIR) / name};
  for (const fs::path& place : places)
    if (fs::exists(place / "config.json", ignored))
      return {place.string(), true};
  return {places[0].string() + " or " + places[2].string(), false};
}

} // namespace

std::string default_model_folder() {
  const auto [place, found] = shipped_folder("tiny-v41");
  if (!found)
    throw config_error("", "--model", "", "no model was named and the embedded one is not at " + place,
                       "give --model DIR or set TROUPE_MODEL");
  return place;
}

std::string default_tokenizer_file() {
  const environment_map environment = process_environment();
  for (const char* name : {"DEEPINFER_HF_MODEL_DIR", "TROUPE_MODEL"})
    if (const auto found = environment.find(name); found != environment.end() && !found->second.empty())
      return found->second + "/tokenizer.json";
  return default_model_folder() + "/tokenizer.json";
}

std::string released_config_folder() {
  const auto [place, found] = shipped_folder("v41-flash");
  if (!found)
    throw config_error("command line", "--config", "", "the released configuration is not at " + place,
                       "give the config.json of a checkpoint");
  return place;
}

} // namespace troupe
