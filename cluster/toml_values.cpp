#include "cluster/toml_values.hpp"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

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

bool is_of_type(const toml::node& node, engine_option::kind type) {
  switch (type) {
  case engine_option::kind::number:
    return node.is_integer();
  case engine_option::kind::wide_number:
    return node.is_integer() || node.is_string(); // what is no number is refused where the flag's text is
  case engine_option::kind::toggle:
    return node.is_boolean();
  case engine_option::kind::text:
    return node.is_string();
  }
  return false;
}

// Levenshtein's distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

} // namespace

toml::table parse_toml_file(const std::string& path, const std::string& where) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw config_error(path, "", "", "the file cannot be read", "give an existing file to " + where);
  return parse_toml_text({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}, path);
}

toml::table parse_toml_text(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& e) {
    throw config_error(name + ":" + std::to_string(e.source().begin.line), "", "",
                       std::string("this is not TOML: ") + std::string(e.description()),
                       "correct the line; a seed above 9223372036854775807 is written in quotes");
  }
}

std::string shown(const toml::node& node) {
  constexpr auto flags = toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings &
                         ~toml::format_flags::allow_multi_line_strings;
  std::ostringstream text;
  text << toml::toml_formatter(node, flags);
  return text.str();
}

std::string place_of(const std::string& file, const toml::node& node) {
  const auto line = node.source().begin.line;
  return line == 0 ? file : file + ":" + std::to_string(line);
}

given_value value_of_node(const std::string& file, const std::string& key, const toml::node& node) {
  given_value v;
  v.holder.push_back(node);
  v.origin = {place_of(file, node), key, node.is_string() ? node.as_string()->get() : shown(node)};
  return v;
}

given_value value_of_text(const std::string& source, const std::string& key, const std::string& text) {
  given_value v;
  v.plain = true;
  v.origin = {source, key, text};
  try {
    const toml::table one = toml::parse("v = " + text);
    if (one.size() == 1)
      v.holder.push_back(*one.get("v"));
  } catch (const toml::parse_error&) { // a text without quotes
  }
  if (v.holder.empty())
    v.holder.push_back(text);
  else if (v.holder[0].is_string())
    v.origin.value = v.holder[0].as_string()->get();
  return v;
}

sourced_value engine_text(const engine_option& option, const given_value& given) {
  if (!given.plain && !is_of_type(given.node(), option.type()))
    refuse_type(given, type_text(option.type()));
  return given.origin;
}

void refuse_type(const given_value& given, const std::string& wanted) {
  throw config_error(given.origin.source, given.origin.key, given.plain ? given.origin.value : shown(given.node()),
                     "the value has the wrong type", "give " + wanted);
}

void refuse_value(const given_value& given, const std::string& why, const std::string& remedy) {
  throw config_error(given.origin.source, given.origin.key, given.origin.value, why, remedy);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const auto nearest = std::ranges::min_element(known, {}, [name](const std::string& k) { return distance(name, k); });
  if (nearest != known.end() && distance(name, *nearest) <= std::max<std::size_t>(2, name.size() / 3))
    return "did you mean " + *nearest + "?";
  return known.empty() ? "leave it out" : "there are " + listed(known);
}

} // namespace troupe
