// Values of TOML files, of --set and of the environment before it is known what they are for; the only place, with
// configuration_reader.cpp, that sees toml++.
#pragma once
#include "runtime/base/engine_options.hpp"
#include <map>
#include <string>
#include <string_view>
#include <toml++/toml.h>
#include <vector>

namespace troupe {

// The file's table. Throws config_error if it cannot be read or is not TOML; `where` says which option names the file.
toml::table parse_toml_file(const std::string& path, const std::string& where);
// Likewise of a text; `name` is what messages call it.
toml::table parse_toml_text(const std::string& text, const std::string& name);

struct given_value {
  toml::array holder;   // of this one value: a node has no copy of its own
  sourced_value origin; // value: a text without its quotes, all else as TOML writes it
  bool plain = false;   // from --set or the environment, where quotes are left out
  const toml::node& node() const { return holder[0]; }
};
using given_table = std::map<std::string, given_value>;

given_value value_of_node(const std::string& file, const std::string& key, const toml::node& node);
given_value value_of_text(const std::string& source, const std::string& key, const std::string& text);

// "FILE:LINE", or the file alone for what has no place in it.
std::string place_of(const std::string& file, const toml::node& node);
std::string shown(const toml::node& node); // as TOML writes it, texts in double quotes

// The value of an engine option as text for set_engine_option. Throws config_error for a wrong type.
sourced_value engine_text(const engine_option& option, const given_value& given);

[[noreturn]] void refuse_type(const given_value& given, const std::string& wanted);
[[noreturn]] void refuse_value(const given_value& given, const std::string& why, const std::string& remedy);

// What a person may have meant by an unknown name: "did you mean \"count\"?", or all that there are.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);
std::string listed(const std::vector<std::string>& names); // "a, b and c"

} // namespace troupe
