#include "runtime/model/checkpoint_index.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/read_file.hpp"
#include <nlohmann/json.hpp>
#include <set>

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::size_t max_index_bytes = 256 << 20;
const char* const remedy = "check that the checkpoint folder is complete";

std::string shown(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 100);
}

// Shards are plain file names: an index does not reach outside its folder.
bool is_plain(const json& file) {
  if (!file.is_string())
    return false;
  const auto& name = file.get_ref<const std::string&>();
  return !name.empty() && name.find_first_of(std::string("/\0", 2)) == std::string::npos && name != "." && name != "..";
}

// A parser keeps one of two equal keys; the callback hears both.
json parse(const std::string& text, std::vector<std::string>& repeated) {
  std::set<std::string> seen;
  std::string section;
  return json::parse(text, [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1)
      section = value.get<std::string>();
    else if (event == json::parse_event_t::key && depth == 2 && section == "weight_map")
      if (std::string name = value.get<std::string>(); !seen.insert(name).second)
        repeated.push_back(std::move(name));
    return true;
  });
}

} // namespace

std::string_view canonical_name(std::string_view name) {
  return name.starts_with("model.") ? name.substr(6) : name;
}

checkpoint_index read_checkpoint_index(const std::string& path) {
  checkpoint_index index;
  json root;
  try {
    root = parse(read_text_file(path, max_index_bytes, remedy), index.repeated);
  } catch (const json::exception& e) {
    throw config_error(path, "", "", std::string("not valid JSON: ") + e.what(), remedy);
  }
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    throw config_error(path, "weight_map", "", "must be an object that maps tensor names to files", remedy);
  for (const auto& [name, file] : root["weight_map"].items()) {
    if (!is_plain(file))
      throw config_error(path, "weight_map." + name, shown(file), "must be the name of a file in the same folder",
                         remedy);
    index.shard_of.emplace(name, file.get<std::string>());
  }
  if (const auto meta = root.find("metadata"); meta != root.end() && meta->is_object())
    if (const auto size = meta->find("total_size"); size != meta->end() && size->is_number_integer())
      index.total_size = size->get<std::int64_t>();
  return index;
}

} // namespace troupe
