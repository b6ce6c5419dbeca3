// The file of --config: table [engine] with engine options under their flag names, underscores for dashes.
#include "cli/engine_settings.hpp"
#include "cluster/toml_values.hpp"

namespace troupe {

std::map<std::string, sourced_value> engine_values_of_file(const std::string& path) {
  std::map<std::string, sourced_value> values;
  for (const auto& [table, node] : parse_toml_file(path, "--config")) {
    if (table.str() != "engine" || !node.is_table())
      throw config_error(place_of(path, node), std::string(table.str()), node.is_table() ? "" : shown(node),
                         "the file may hold the table [engine] and nothing else",
                         "move engine options under [engine] and remove this");
    for (const auto& [name, value] : *node.as_table()) {
      const std::string key(name.str());
      const given_value given = value_of_node(path, "engine." + key, value);
      const engine_option* option = engine_option_of_key(key);
      if (option == nullptr)
        refuse_value(given, "there is no engine option of this name",
                     "keys are the engine flags of troupe generate --help with underscores, like max_num_seqs");
      values[option->name] = engine_text(*option, given);
    }
  }
  return values;
}

} // namespace troupe
