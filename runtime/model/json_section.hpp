// Typed access to one object of a JSON configuration file. Every refusal is a config_error with file, dotted key and
// value.
#pragma once
#include "runtime/base/result.hpp"
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class json_section {
public:
  using json = nlohmann::json;

  json_section(const json& object, std::string file, std::string prefix)
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  // Null counts as absent.
  const json* find(const std::string& key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  const json& need(const std::string& key) const {
    if (const json* value = find(key))
      return *value;
    throw config_error(file_, prefix_ + key, "", "this key is missing",
                       "take config.json from the checkpoint's release");
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why, const std::string& remedy = "") const {
    const json* value = find(key);
    std::string text = value ? value->dump(-1, ' ', false, json::error_handler_t::replace) : "null";
    if (text.size() > 100)
      text = text.substr(0, 100) + "...";
    throw config_error(file_, prefix_ + key, text, why, remedy);
  }

  json_section object(const std::string& key) const {
    if (!need(key).is_object())
      refuse(key, "must be an object");
    return {need(key), file_, prefix_ + key + "."};
  }

  template <class Int> Int integer(const std::string& key, std::int64_t low, std::int64_t high) const {
    need(key);
    return static_cast<Int>(bounded(key, *find(key), low, high));
  }

  template <class Int> Int integer_or(const std::string& key, Int absent, std::int64_t low, std::int64_t high) const {
    return find(key) ? integer<Int>(key, low, high) : absent;
  }

  template <class Int>
  std::vector<Int> integers(const std::string& key, std::size_t max_count, std::int64_t low, std::int64_t high) const {
    const json& list = need(key);
    if (!list.is_array())
      refuse(key, "must be a list of integers");
    if (list.size() > max_count)
      refuse(key, "has more than " + std::to_string(max_count) + " entries");
    std::vector<Int> values;
    for (const json& v : list)
      values.push_back(static_cast<Int>(bounded(key, v, low, high)));
    return values;
  }

  // A finite number in [low, high].
  double number(const std::string& key, double low, double high) const {
    const json& value = need(key);
    if (!value.is_number())
      refuse(key, "must be a number");
    const double x = value.get<double>();
    if (!(x >= low && x <= high))
      refuse(key, "must lie in " + json(low).dump() + " to " + json(high).dump());
    return x;
  }

  bool boolean_or(const std::string& key, bool absent) const {
    const json* value = find(key);
    if (!value)
      return absent;
    if (!value->is_boolean())
      refuse(key, "must be true or false");
    return value->get<bool>();
  }

  // The key must be there and have exactly this value; `remedy` says what to do otherwise.
  void require(const std::string& key, const json& wanted, const std::string& remedy = "") const {
    if (need(key) != wanted)
      refuse(key, "only " + wanted.dump() + " is supported", remedy);
  }

  void require_or_absent(const std::string& key, const json& wanted) const {
    if (find(key))
      require(key, wanted);
  }

private:
  std::int64_t bounded(const std::string& key, const json& v, std::int64_t low, std::int64_t high) const {
    const bool too_big = v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    if (!v.is_number_integer())
      refuse(key, "must hold integers only");
    if (too_big || v.get<std::int64_t>() < low || v.get<std::int64_t>() > high)
      refuse(key, "must lie in " + std::to_string(low) + " to " + std::to_string(high));
    return v.get<std::int64_t>();
  }

  const json& object_;
  std::string file_, prefix_;
};

} // namespace troupe
