// The resolved configuration as TOML, and its hash.
#include "cluster/configuration_keys.hpp"
#include "cluster/toml_values.hpp"
#include "runtime/base/sha256.hpp"
#include <array>
#include <charconv>
#include <limits>

namespace troupe {

namespace {

std::string quoted(const std::string& text) {
  return shown(toml::value<std::string>(text));
}

std::string value_text(const configuration_key&, bool v) {
  return v ? "true" : "false";
}
template <std::signed_integral T> std::string value_text(const configuration_key&, T v) {
  return std::to_string(v);
}
std::string value_text(const configuration_key&, std::uint64_t v) {
  return v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ? quoted(std::to_string(v))
                                                                                  : std::to_string(v);
}
std::string value_text(const configuration_key&, double v) { // the shortest text that is read as the same number
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), v).ptr;
  std::string text(digits.data(), end);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}
std::string value_text(const configuration_key&, const std::string& v) {
  return quoted(v);
}
template <class E>
requires std::is_enum_v<E> std::string value_text(const configuration_key&, E v) {
  return quoted(std::string(text_of(v)));
}
std::string value_text(const configuration_key& k, const limit_of_time& v) {
  const bool each = std::string_view(k.name) == "fsync" && v.ms == 0;
  return quoted(each ? "each" : v.ms ? std::to_string(*v.ms) + "ms" : "none");
}
std::string value_text(const configuration_key&, const std::vector<std::string>& v) {
  std::string text = "[";
  for (const std::string& name : v)
    text += (text.size() > 1 ? ", " : "") + quoted(name);
  return text + "]";
}

struct writer {
  bool with_paths;
  std::string text{};

  template <class T> void operator()(const configuration_key& k, const T& field) {
    if (k.holds != configuration_key::content::path || with_paths)
      text += std::string(k.name) + " = " + value_text(k, field) + "\n";
  }
  void operator()(const configuration_key& k, const std::optional<std::uint64_t>& field) {
    if (field)
      (*this)(k, *field);
  }
  void options(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
      const engine_option& o = *engine_option_of_name(name);
      const bool path = name == "spec-curve";
      if (path && !with_paths)
        continue;
      const bool number = o.type() == engine_option::kind::number || o.type() == engine_option::kind::toggle;
      text += o.key() + " = " + (number ? value : quoted(value)) + "\n";
    }
  }
};

std::string written(const cluster_configuration& c, bool with_paths) {
  writer w{with_paths};
  const auto section = [&w](const char* name, const auto& s) {
    w.text += (w.text.empty() ? "[" : "\n[") + std::string(name) + "]\n";
    visit_keys(s, w);
  };
  visit_sections(c, section);
  w.text += "\n[engine]\n";
  w.options(c.engine);
  for (const node_section& n : c.node) {
    w.text += "\n[[node]]\n";
    visit_keys(n, w);
  }
  for (const worker_group_section& g : c.worker_group) {
    w.text += "\n[[worker_group]]\n";
    visit_keys(g, w);
    w.options(g.options);
  }
  return w.text;
}

} // namespace

std::string to_toml(const cluster_configuration& configuration) {
  return written(configuration, true);
}

std::string configuration_hash(const cluster_configuration& configuration) {
  return to_hex(sha256_of(written(configuration, false)));
}

} // namespace troupe
