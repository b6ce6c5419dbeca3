// JSON text as values that keep what a schema needs: the order of keys, and numbers as exact decimals with their
// spelling (structured_output.md 6.1).
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/grammar/json_number.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe {

struct json_value {
  enum class kind : std::uint8_t { null, boolean, number, string, array, object };
  using member = std::pair<std::string, json_value>;

  kind what = kind::null;
  bool truth = false;
  exact_decimal number;
  std::string text; // string: decoded, UTF-8; number: as spelled
  std::vector<json_value> items;
  std::vector<member> members; // in order of the text, at the place of a key's first occurrence; the last value wins

  bool is(kind k) const { return what == k; }
  const json_value* find(std::string_view key) const; // of an object; nullptr if absent

private:
  friend class json_reader;
  std::vector<std::uint32_t> by_key_; // of an object with many members: their numbers, sorted by key
};

// By value as JSON schema compares: 1 equals 1.0, the order of members does not count.
bool same_value(const json_value& a, const json_value& b);

// Values to be found among many.
class json_value_set {
public:
  json_value_set() = default;
  explicit json_value_set(const std::vector<json_value>& values);
  bool contains(const json_value& value) const;
  bool all_different() const { return keys_.size() == values_; }

private:
  std::size_t values_ = 0;
  std::unordered_set<std::string> keys_;
};

struct json_limits {
  std::size_t depth = 256;
  std::size_t bytes = std::size_t{4} << 20;
};

// Errors: so_syntax with line and column, so_too_complex for a limit, of exponents too. Lone surrogate escapes are a
// syntax error.
result<json_value> parse_json(std::string_view text, json_limits limits = {});

std::string quoted_json(std::string_view utf8); // minimal escaping, with quotes
std::string pointer_part(std::string_view key); // "/" and the key with ~0 and ~1

} // namespace troupe
