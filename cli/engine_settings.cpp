#include "cli/engine_settings.hpp"
#include <array>
#include <filesystem>

namespace troupe {

namespace {

// One process places every expert once.
bool extra_experts_of_one_process(const sourced_value& v) {
  if (v.key != "DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS")
    return false;
  if (number_of(v, 0, 1 << 20) != 0)
    throw config_error(v.source, v.key, v.value, "one process places every expert once, so only 0 is supported",
                       "set it to 0, or unset it; a cluster file has eplb.min_extra");
  return true;
}

} // namespace

engine_options resolve_engine_options(const engine_flags& flags, const environment_map& environment) {
  std::map<std::string, sourced_value> values;
  if (!flags.config_file.empty())
    values = engine_values_of_file(flags.config_file);
  for (auto& [name, value] : engine_values_of(environment, extra_experts_of_one_process))
    values[name] = value;
  for (const auto& [name, text] : flags.given)
    values[name] = {"command line", "--" + name, text};

  engine_options options = engine_options_of(values);
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
