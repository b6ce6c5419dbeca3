#include "runtime/speculation/cost_file.hpp"
#include "runtime/base/pending_file.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr int file_version = 1;
constexpr std::size_t most_bytes = 1 << 20; // no curve is as long

error unusable(const std::string& path, const std::string& why) {
  return {"unusable", path + ": " + why + "; the step-cost curve is measured again"};
}

// A text of the file for a message, whatever it holds.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

std::string difference(const json& file, const char* name, const std::string& ours) {
  const json found = file.value(name, json());
  if (found == ours)
    return "";
  return std::string(name) + " is " + shown(found) + ", this engine's is " + shown(ours);
}

bool is_curve(const json& curve) {
  return curve.is_array() && std::ranges::all_of(curve, [](const json& point) {
           return point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_number() &&
                  point[0].get<std::int64_t>() > 0 && point[0].get<std::int64_t>() <= INT32_MAX;
         });
}

} // namespace

status check_curve_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path file(path);
  if (!std::filesystem::exists(file, ignored)) {
    if (file.has_parent_path() && !std::filesystem::is_directory(file.parent_path(), ignored))
      return error{"unusable", "there is no such folder"};
    return nothing{};
  }
  std::ifstream in(path, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(file, ignored))
    return error{"unusable", "this is no file that can be read"};
  std::string text(most_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  const json content = json::parse(text, nullptr, false);
  if (!content.is_object() || !content.contains("curve"))
    return error{"unusable", "the file holds something else than a step-cost curve"};
  return nothing{};
}

result<std::vector<timed_size>> load_cost_curve(const std::string& path, const cost_key& key, std::int64_t now) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return error{"not_found", path + ": there is no such file"};
  std::ifstream in(path, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(path, ignored))
    return unusable(path, "the file cannot be read");
  std::string text(most_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > most_bytes)
    return unusable(path, "the file is longer than any curve");
  const json file = json::parse(text, nullptr, false);
  if (!file.is_object())
    return unusable(path, "the file is no JSON object");
  if (file.value("version", json()) != file_version)
    return unusable(path, "version is " + shown(file.value("version", json())) + ", known is 1");
  for (const auto& [name, ours] : {std::pair("model", key.model), std::pair("device", key.device)})
    if (const std::string why = difference(file, name, ours); !why.empty())
      return unusable(path, why);
  const json written = file.value("written", json());
  // Later than now: by a clock that is wrong.
  if (!written.is_number_integer() || written < now - cost_file_life || written > now)
    return unusable(path, "the curve was not written within the last hour");
  const json points = file.value("curve", json());
  if (!is_curve(points))
    return unusable(path, "curve is no list of [rows, ms]");
  std::vector<timed_size> curve;
  for (const json& point : points)
    curve.push_back({point[0].get<std::int32_t>(), point[1].get<double>()});
  if (const char* fault = curve_fault(curve); *fault != '\0')
    return unusable(path, std::string("the curve is wrong: ") + fault);
  if (!std::ranges::equal(curve, key.sizes, {}, &timed_size::rows))
    return unusable(path, "the curve is of other sizes of steps");
  return curve;
}

status save_cost_curve(const std::string& path, const cost_key& key, std::span<const timed_size> curve,
                       std::int64_t now) {
  json points = json::array();
  for (const timed_size& t : curve)
    points.push_back({t.rows, t.ms});
  const json file{
      {"version", file_version}, {"written", now}, {"model", key.model}, {"device", key.device}, {"curve", points}};
  return write_whole_file(path, file.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

} // namespace troupe
