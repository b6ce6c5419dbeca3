// Engine options from their three sources: a flag wins over the environment, the environment over the file of --config.
#pragma once
#include "cli/options.hpp"
#include "runtime/base/engine_options.hpp"
#include <map>
#include <string>

namespace troupe {

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
