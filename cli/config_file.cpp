// The file of --config: table [engine] with engine options under their flag names, underscores for dashes.
#include "cli/engine_settings.hpp"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <toml++/toml.h>

namespace troupe {

namespace {

const char* type_text(engine_option::kind type) {
  switch (type) {
  case engine_option::kind::number:
    return "a whole number";
  case engine_option::kind::wide_number:
    return "a whole number, in quotes if it is above 9223372036854775807";
  case engine_option::kind::toggle:
    return "true or false";
  case engine_option::kind::text:
    return "a text in quotes";
  }
  return "";
}

std::string shown(const toml::node& node) {
  std::ostringstream text;
  node.visit([&text](const auto& n) { text << n; });
  return text.str();
}

// Keys are flag names with underscores: max_num_seqs.
std::string key_of(const engine_option& option) {
  std::string key = option.name;
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string value_text(const std::string& path, const engine_option& option, const toml::node& node) {
  switch (option.type) {
  case engine_option::kind::number:
    if (node.is_integer())
      return std::to_string(node.as_integer()->get());
    break;
  case engine_option::kind::wide_number:
    if (node.is_integer())
      return std::to_string(node.as_integer()->get());
    if (node.is_string()) // what is no number is refused where the flag's text is
      return node.as_string()->get();
    break;
  case engine_option::kind::toggle:
    if (node.is_boolean())
      return node.as_boolean()->get() ? "true" : "false";
    break;
  case engine_option::kind::text:
    if (node.is_string())
      return node.as_string()->get();
    break;
  }
  throw config_error(path, "engine." + key_of(option), shown(node), "the value has the wrong type",
                     std::string("give ") + type_text(option.type));
}

const engine_option* option_of(std::string_view key) {
  for (const engine_option& o : engine_option_table())
    if (key == key_of(o))
      return &o;
  return nullptr;
}

toml::table parsed(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw config_error(path, "", "", "the file cannot be read", "give an existing file to --config");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    throw config_error(path, "line " + std::to_string(e.source().begin.line), "",
                       std::string("this is not TOML: ") + std::string(e.description()),
                       "correct the line; a seed above 9223372036854775807 is written in quotes");
  }
}

} // namespace

std::map<std::string, sourced_value> engine_values_of_file(const std::string& path) {
  std::map<std::string, sourced_value> values;
  for (const auto& [key, node] : parsed(path)) {
    if (key.str() != "engine" || !node.is_table())
      throw config_error(path, std::string(key.str()), shown(node),
                         "the file may hold the table [engine] and nothing else",
                         "move engine options under [engine] and remove this");
    for (const auto& [name, value] : *node.as_table()) {
      const engine_option* option = option_of(name.str());
      if (option == nullptr)
        throw config_error(path, "engine." + std::string(name.str()), shown(value),
                           "there is no engine option of this name",
                           "keys are the engine flags of troupe generate --help with underscores, like max_num_seqs");
      values[option->name] = {path, "engine." + key_of(*option), value_text(path, *option, value)};
    }
  }
  return values;
}

} // namespace troupe
