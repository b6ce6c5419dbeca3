// From the sources of a cluster's configuration to its typed value: built-in, file, --set, environment, in this order.
#include "cluster/configuration_checks.hpp"
#include "cluster/configuration_keys.hpp"
#include "cluster/layout.hpp"
#include "cluster/name_pattern.hpp"
#include "cluster/toml_values.hpp"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <set>

namespace troupe {

namespace {

constexpr const char* engine_table = "engine";

// All that the sources say, by table.
struct given_configuration {
  std::map<std::string, given_table> sections; // with "engine"
  std::vector<given_table> nodes, groups;      // patterns of nodes written out
  std::vector<std::string> node_places, group_places;
};

std::string name_in(const given_table& table) {
  const auto name = table.find("name");
  return name == table.end() ? std::string() : name->second.origin.value;
}

// "worker_group.decode", or "worker_group[1]" for a table that has no name.
std::string table_key(const std::string& list, const given_table& table, std::size_t index) {
  const std::string name = name_in(table);
  return list + (name.empty() ? fmt::format("[{}]", index) : "." + name);
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  cluster_configuration any;
  visit_sections(any, [&names](const char* name, const auto&) { names.emplace_back(name); });
  names.insert(names.end(), {engine_table, "node", "worker_group"});
  std::ranges::sort(names);
  return names;
}

// ---- values -------------------------------------------------------------------------------------------------------

std::string number_text(double n) {
  return std::abs(n) < 1e15 && n == std::floor(n) ? std::to_string(static_cast<std::int64_t>(n)) : fmt::format("{}", n);
}

void check_range(const configuration_key& k, const given_value& given, double n) {
  if (!(n >= k.low && n <= k.high))
    refuse_value(given, "the value is outside of the legal range",
                 "give a number from " + number_text(k.low) + " to " + number_text(k.high));
}

void read_value(const configuration_key&, const given_value& given, bool& field) {
  if (!given.node().is_boolean())
    refuse_type(given, "true or false");
  field = given.node().as_boolean()->get();
}

template <std::signed_integral T> void read_value(const configuration_key& k, const given_value& given, T& field) {
  if (!given.node().is_integer())
    refuse_type(given, "a whole number");
  const std::int64_t n = given.node().as_integer()->get();
  check_range(k, given, static_cast<double>(n));
  field = static_cast<T>(n);
}

void read_value(const configuration_key&, const given_value& given, std::uint64_t& field) {
  if (!given.node().is_integer() && !given.node().is_string())
    refuse_type(given, "a whole number, in quotes if it is above 9223372036854775807");
  field = number_of(given.origin, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
}

void read_value(const configuration_key& k, const given_value& given, std::optional<std::uint64_t>& field) {
  read_value(k, given, field.emplace());
}

void read_value(const configuration_key& k, const given_value& given, double& field) {
  if (!given.node().is_number())
    refuse_type(given, "a number");
  const double n = given.node().is_integer() ? static_cast<double>(given.node().as_integer()->get())
                                             : given.node().as_floating_point()->get();
  check_range(k, given, n);
  field = n;
}

void read_value(const configuration_key& k, const given_value& given, std::string& field) {
  if (!given.plain && !given.node().is_string())
    refuse_type(given, "a text in quotes");
  const std::vector<std::string> allowed(k.allowed.begin(), k.allowed.end());
  if (!allowed.empty() && std::ranges::find(allowed, given.origin.value) == allowed.end())
    refuse_value(given, "there is no such value", suggestion(given.origin.value, allowed));
  field = given.origin.value;
}

template <class E>
requires std::is_enum_v<E>
void read_value(const configuration_key& k, const given_value& given, E& field) {
  std::string text;
  configuration_key choice = k;
  choice.allowed = choice_texts<E>::of;
  read_value(choice, given, text);
  field = static_cast<E>(std::ranges::find(choice_texts<E>::of, text) - choice_texts<E>::of.begin());
}

void read_value(const configuration_key& k, const given_value& given, limit_of_time& field) {
  if (!given.plain && !given.node().is_string())
    refuse_type(given, "a text in quotes, like \"10ms\"");
  const std::string& text = given.origin.value;
  const bool ledger = std::string_view(k.name) == "fsync";
  field.ms.reset();
  if (text == "none")
    return;
  std::int64_t n = 0;
  const auto [unit, fault] = std::from_chars(text.data(), text.data() + text.size(), n);
  const std::string_view rest(unit, static_cast<std::size_t>(text.data() + text.size() - unit));
  const std::int64_t factor = rest == "ms" ? 1 : rest == "s" ? 1000 : rest == "min" ? 60000 : rest == "h" ? 3600000 : 0;
  if (ledger && text == "each")
    field.ms = 0;
  else if (fault != std::errc() || factor == 0 || n < 0 || n > 1000000)
    refuse_value(given, "this is no span of time",
                 std::string("give none") + (ledger ? ", each" : "") + " or a number with ms, s, min or h, like 10ms");
  else
    field.ms = n * factor;
}

// The texts of an array, or of "a,b" on the command line and in the environment.
std::vector<std::string> texts_of(const given_value& given) {
  std::vector<std::string> texts;
  if (const toml::array* array = given.node().as_array()) {
    for (const toml::node& n : *array)
      if (const auto* text = n.as_string())
        texts.push_back(text->get());
      else
        refuse_type(given, "a list of texts, like [\"n0\"]");
    return texts;
  }
  if (!given.plain)
    refuse_type(given, "a list of texts, like [\"n0\"]");
  std::size_t depth = 0;
  for (std::size_t at = 0, begin = 0; at <= given.origin.value.size(); ++at) {
    const char c = at < given.origin.value.size() ? given.origin.value[at] : ',';
    depth += c == '[' ? 1 : 0;
    depth -= c == ']' && depth > 0 ? 1 : 0;
    if (c == ',' && (depth == 0 || at == given.origin.value.size())) {
      texts.push_back(given.origin.value.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  return texts;
}

void read_value(const configuration_key& k, const given_value& given, std::vector<std::string>& field) {
  std::vector<std::string> names;
  for (const std::string& text : texts_of(given)) {
    if (k.holds != configuration_key::content::node_names) {
      names.push_back(text);
      continue;
    }
    const auto expanded = expand_names(text);
    if (!expanded)
      throw config_error(given.origin.source, given.origin.key, "", expanded.failure().message, "");
    names.insert(names.end(), expanded->begin(), expanded->end());
  }
  field = std::move(names);
}

// ---- tables -------------------------------------------------------------------------------------------------------

class configuration_reader {
public:
  explicit configuration_reader(const configuration_sources& sources) : sources_(sources) { out_.file = sources.file; }

  configuration_reading read() {
    if (!guarded([this] { read_file(); }))
      return std::move(out_);
    for (const std::string& text : sources_.set)
      guarded([&] { read_setting(text); });
    guarded([this] { read_engine_variables(); });
    for (const auto& [name, value] : sources_.environment)
      guarded([&, name = name, value = value] { read_variable(name, value); });
    fill();
    return std::move(out_);
  }

private:
  // False after a fault, which is kept.
  template <class F> bool guarded(F&& f) {
    try {
      f();
      return true;
    } catch (const config_error& e) {
      out_.faults.push_back(e);
      return false;
    }
  }

  void read_file() {
    const toml::table file =
        sources_.text ? parse_toml_text(*sources_.text, sources_.file) : parse_toml_file(sources_.file, "this command");
    const std::vector<std::string> known = section_names();
    for (const auto& [name, node] : file) {
      const std::string section(name.str());
      guarded([&, &node = node] {
        if (std::ranges::find(known, section) == known.end())
          throw config_error(place_of(sources_.file, node), section, node.is_table() ? "" : shown(node),
                             "there is no table of this name", suggestion(section, known));
        if (section == "node" || section == "worker_group")
          read_list(section, node);
        else
          read_table(section, node);
      });
    }
  }

  void read_table(const std::string& section, const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr)
      throw config_error(place_of(sources_.file, node), section, "", "this is not one table",
                         "write [" + section + "]");
    for (const auto& [key, value] : *table)
      given_.sections[section][std::string(key.str())] =
          value_of_node(sources_.file, section + "." + std::string(key.str()), value);
  }

  void read_list(const std::string& list, const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr || !array->is_array_of_tables())
      throw config_error(place_of(sources_.file, node), list, "", "this is not a list of tables",
                         "write [[" + list + "]]");
    for (const toml::node& entry : *array) {
      given_table table;
      std::size_t index = list == "node" ? given_.nodes.size() : given_.groups.size();
      const auto name = entry.as_table()->get_as<std::string>("name");
      const std::string prefix = list + (name == nullptr ? fmt::format("[{}]", index) : "." + name->get());
      for (const auto& [key, value] : *entry.as_table())
        table[std::string(key.str())] = value_of_node(sources_.file, prefix + "." + std::string(key.str()), value);
      const std::string place = place_of(sources_.file, entry);
      if (list == "node")
        guarded([&] { add_nodes(table, place); });
      else {
        given_.groups.push_back(std::move(table));
        given_.group_places.push_back(place);
      }
    }
  }

  // One table of the file may stand for many nodes.
  void add_nodes(const given_table& table, const std::string& place) {
    const auto expanded = [&](const char* key) {
      const auto found = table.find(key);
      if (found == table.end() || !found->second.node().is_string())
        return std::vector<std::string>{""};
      auto names = expand_names(found->second.origin.value);
      if (!names)
        throw config_error(found->second.origin.source, found->second.origin.key, "", names.failure().message, "");
      return std::move(*names);
    };
    const std::vector<std::string> names = expanded("name"), hosts = expanded("host");
    if (hosts.size() != 1 && hosts.size() != names.size())
      refuse_value(table.at("host"), fmt::format("{} hosts stand beside {} nodes", hosts.size(), names.size()),
                   "give a pattern for as many hosts as there are names");
    for (std::size_t i = 0; i < names.size(); ++i) {
      given_table one = table;
      const std::string prefix = names[i].empty() ? fmt::format("node[{}]", given_.nodes.size()) : "node." + names[i];
      for (auto& [key, value] : one) {
        value.origin.key = prefix + "." + key;
        const std::string* text = key == "name"   ? &names[i]
                                  : key == "host" ? &hosts[hosts.size() == 1 ? 0 : i]
                                                  : nullptr;
        if (text != nullptr && value.node().is_string()) {
          value.holder = toml::array{*text};
          value.origin.value = *text;
        }
      }
      given_.nodes.push_back(std::move(one));
      given_.node_places.push_back(place);
    }
  }

  // ---- above the file

  // --set cluster.name=x, worker_group.decode.count=4, node.0.gpus=2
  void read_setting(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string path = text.substr(0, equals);
    const std::size_t first = path.find('.'), last = path.rfind('.');
    if (equals == text.npos || first == path.npos || first == 0 || last + 1 == path.size())
      throw config_error("command line", "--set", text, "this is not a key with its value",
                         "write --set cluster.name=loop3 or --set worker_group.decode.count=4");
    const std::string entry = first == last ? std::string() : path.substr(first + 1, last - first - 1);
    store("command line", path, path.substr(0, first), entry, path.substr(last + 1), text.substr(equals + 1));
  }

  // TROUPE_CLUSTER__NAME, TROUPE_WORKER_GROUP__DECODE__COUNT
  void read_variable(const std::string& name, const std::string& value) {
    constexpr std::string_view head = "TROUPE_";
    if (!name.starts_with(head) || name.find("__") == name.npos)
      return;
    std::string path;
    for (const char c : std::string_view(name).substr(head.size()))
      path += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::size_t first = path.find("__"), last = path.rfind("__");
    const std::string entry = first == last ? std::string() : path.substr(first + 2, last - first - 2);
    store("environment", name, path.substr(0, first), entry, path.substr(last + 2), value);
  }

  void read_engine_variables() {
    const auto extra = [this](const sourced_value& v) {
      if (v.key != "DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS")
        return false;
      given_.sections["eplb"]["min_extra"] = value_of_text(v.source, v.key, v.value);
      return true;
    };
    for (const auto& [name, v] : engine_values_of(sources_.environment, extra)) {
      given_value given = value_of_text(v.source, v.key, v.value);
      given.origin = v;
      if (name == "model")
        given_.sections["model"]["path"] = std::move(given);
      else
        given_.sections[engine_table][engine_option_of_name(name)->key()] = std::move(given);
    }
  }

  void store(const std::string& source, const std::string& named, const std::string& section, const std::string& entry,
             const std::string& key, const std::string& text) {
    const given_value value = value_of_text(source, named, text);
    const std::vector<std::string> known = section_names();
    if (std::ranges::find(known, section) == known.end())
      refuse_value(value, "there is no table " + section, suggestion(section, known));
    const bool list = section == "node" || section == "worker_group";
    if (list == entry.empty())
      refuse_value(value, list ? "a list has several tables" : "this table has no tables of its own",
                   list ? "write " + section + ".NAME." + key : "write " + section + "." + key);
    if (list)
      entry_of(section, entry, value)[key] = value;
    else
      given_.sections[section][key] = value;
  }

  given_table& entry_of(const std::string& list, const std::string& entry, const given_value& value) {
    std::vector<given_table>& tables = list == "node" ? given_.nodes : given_.groups;
    const auto plain = [](std::string name) { // as it can stand in a variable
      for (char& c : name)
        c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? static_cast<char>(std::tolower(c)) : '_';
      return name;
    };
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tables.size(); ++i) {
      names.push_back(name_in(tables[i]));
      if (entry == names.back() || entry == std::to_string(i) ||
          (value.origin.source == "environment" && entry == plain(names.back())))
        return tables[i];
    }
    refuse_value(value, "there is no " + list + " of this name", suggestion(entry, names));
  }

  // ---- into the typed value

  template <class S> void fill_section(S& section, const given_table& given, const std::string& prefix) {
    std::vector<std::string> known;
    visit_keys(section, [&](const configuration_key& k, auto& field) {
      known.emplace_back(k.name);
      const auto found = given.find(k.name);
      if (found == given.end())
        return;
      out_.origins[prefix + "." + k.name] = found->second.origin.source;
      guarded([&] { read_value(k, found->second, field); });
    });
    for (const auto& [key, value] : given)
      if (std::ranges::find(known, key) == known.end())
        guarded([&] { fill_other(section, prefix, key, value, known); });
  }

  template <class S>
  void fill_other(S&, const std::string&, const std::string& key, const given_value& value,
                  const std::vector<std::string>& known) {
    refuse_value(value, "there is no key of this name", suggestion(key, known));
  }

  void fill_other(worker_group_section& group, const std::string& prefix, const std::string& key,
                  const given_value& value, std::vector<std::string> known) {
    const engine_option* option = engine_option_of_key(key);
    for (const std::string_view name : group_option_names)
      known.push_back(engine_option_of_name(name)->key());
    if (option != nullptr && std::ranges::find(known, key) == known.end())
      refuse_value(value, "this engine option is the same for all groups", "move it to [engine]");
    if (option == nullptr)
      refuse_value(value, "there is no key of this name", suggestion(key, known));
    out_.origins[prefix + "." + key] = value.origin.source;
    engine_options checked;
    set_engine_option(checked, *option, engine_text(*option, value));
    group.options[option->name] = engine_option_text(checked, *option).value();
  }

  void fill_engine() {
    std::map<std::string, sourced_value> options;
    std::vector<std::string> known;
    for (const engine_option& o : engine_option_table())
      if (std::ranges::find(options_elsewhere, o.name, &std::pair<std::string_view, std::string_view>::first) ==
          options_elsewhere.end())
        known.push_back(o.key());
    for (const auto& [key, value] : given_.sections[engine_table])
      guarded([&, &key = key, &value = value] {
        const engine_option* option = engine_option_of_key(key);
        if (option == nullptr)
          refuse_value(value, "there is no engine option of this name", suggestion(key, known));
        for (const auto& [name, other] : options_elsewhere)
          if (name == option->name)
            refuse_value(value, "a cluster file has this elsewhere", "use " + std::string(other));
        out_.origins["engine." + key] = value.origin.source;
        engine_options checked;
        const sourced_value text = engine_text(*option, value);
        set_engine_option(checked, *option, text);
        options[option->name] = text;
      });
    guarded([&] { store_engine(engine_options_of(options)); });
  }

  void store_engine(const engine_options& options) {
    for (const engine_option& o : engine_option_table()) {
      const bool elsewhere =
          std::ranges::find(options_elsewhere, o.name, &std::pair<std::string_view, std::string_view>::first) !=
          options_elsewhere.end();
      if (const auto text = engine_option_text(options, o); text && !elsewhere)
        out_.configuration.engine[o.name] = *text;
    }
  }

  void fill() {
    cluster_configuration& c = out_.configuration;
    visit_sections(c, [this](const char* name, auto& section) { fill_section(section, given_.sections[name], name); });
    fill_engine();
    for (std::size_t i = 0; i < given_.nodes.size(); ++i) {
      const std::string key = table_key("node", given_.nodes[i], i);
      out_.origins.try_emplace(key, given_.node_places[i]);
      out_.origins[fmt::format("node[{}]", i)] = given_.node_places[i];
      fill_section(c.node.emplace_back(), given_.nodes[i], key);
    }
    for (std::size_t i = 0; i < given_.groups.size(); ++i) {
      const std::string key = table_key("worker_group", given_.groups[i], i);
      out_.origins.try_emplace(key, given_.group_places[i]);
      out_.origins[fmt::format("worker_group[{}]", i)] = given_.group_places[i];
      fill_section(c.worker_group.emplace_back(), given_.groups[i], key);
    }
    fill_defaults();
    check_configuration(out_);
  }

  // What is left out and depends on the rest.
  void fill_defaults() {
    cluster_configuration& c = out_.configuration;
    std::vector<std::string> nodes;
    for (node_section& n : c.node) {
      if (n.host.empty())
        n.host = n.name;
      nodes.push_back(n.name);
    }
    if (c.cluster.coordinators.empty() && !nodes.empty())
      c.cluster.coordinators = {nodes.front()};
    if (c.gateway.node.empty())
      c.gateway.node = c.cluster.coordinators;
    for (worker_group_section& g : c.worker_group) {
      if (g.node.empty())
        g.node = nodes;
      g.data_parallel = data_parallel_of(g);
    }
    if (c.model.path.empty())
      c.model.path = sources_.default_model;
    for (std::string* path : {&c.model.path, &c.model.config, &c.security.ca, &c.security.cert, &c.security.key,
                              &c.security.curve_dir, &c.fault.schedule})
      *path = found_path(*path);
  }

  // A relative path becomes that of what it names: in the working directory, beside the file, or with the program.
  std::string found_path(const std::string& path) const {
    namespace fs = std::filesystem;
    if (path.empty() || fs::path(path).is_absolute())
      return path;
    std::error_code ignored;
    for (const fs::path& root : {fs::current_path(ignored), fs::absolute(sources_.file, ignored).parent_path(),
                                 fs::path(sources_.default_model).parent_path().parent_path()})
      if (!root.empty() && fs::exists(root / path, ignored))
        return (root / path).lexically_normal().string();
    return path;
  }

  const configuration_sources& sources_;
  given_configuration given_;
  configuration_reading out_;
};

} // namespace

std::string configuration_reading::source_of(const std::string& key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? file : found->second;
}

configuration_reading read_configuration(const configuration_sources& sources) {
  return configuration_reader(sources).read();
}

engine_options options_of(const cluster_configuration& configuration, const worker_group_section& group) {
  std::map<std::string, std::string> texts = configuration.engine;
  for (const auto& [name, text] : group.options)
    texts[name] = text;
  engine_options options;
  for (const auto& [name, text] : texts)
    if (!text.empty())
      set_engine_option(options, *engine_option_of_name(name), {"", name, text});
  options.model = configuration.model.path;
  options.seed = configuration.model.seed;
  options.max_model_len = configuration.model.max_model_len;
  options.device = group.device;
  options.cp = group.context_parallel;
  return options;
}

} // namespace troupe
