// Engine options from their three sources: a flag wins over the environment, the environment over the file of --config.
// One table serves flags, environment and file, so that a value is checked in one place whatever it came from.
#pragma once
#include "actors/llm.hpp"
#include "cli/options.hpp"
#include <functional>
#include <map>
#include <span>
#include <string>

namespace troupe {

struct engine_option {
  enum class kind : std::uint8_t { text, number, wide_number, toggle }; // wide: up to 2^64 - 1, more than TOML has
  const char* name;                                                     // flag without dashes, key of [engine]
  kind type;
  const char* value_name;  // in help
  const char* environment; // name of the environment variable; null if there is none
  const char* help;
};

std::span<const engine_option> engine_option_table();

// A value with its place of origin, for messages: "command line" and "--ep", "environment" and "DEEPINFER_...", a
// file's path and "engine.ep".
struct sourced_value {
  std::string source, key, value;
};

// Options by name. The environment is all variables of the process.
using environment_map = std::map<std::string, std::string>;
environment_map process_environment();

// Values of the environment by option name. Throws config_error for a DEEPINFER_ variable that has no effect here.
std::map<std::string, sourced_value> engine_values_of(const environment_map& environment);

// Values of [engine] in a TOML file by option name (config_file.cpp). Throws config_error for anything unknown.
std::map<std::string, sourced_value> engine_values_of_file(const std::string& path);

// Everything together, checked. Throws config_error.
engine_options resolve_engine_options(const engine_flags& flags, const environment_map& environment);

// Folder of the model that is used when nothing names one, and of the released configuration of V4.1-Flash: beside the
// binary or in the source tree.
std::string default_model_folder();
// tokenizer.json of the model that the environment names, or of the embedded one.
std::string default_tokenizer_file();
std::string released_config_folder();

} // namespace troupe
