// Shared by the tokenizer tests: both tokenizers, loaded once, and readers of the data files.
#pragma once
#include "runtime/tokenizer/tokenizer.hpp"
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace tokenizer_test {

inline std::string data_path(const std::string& name) {
  return std::string(TROUPE_TEST_DATA) + "/tokenizer/" + name;
}

inline std::vector<nlohmann::json> json_lines(const std::string& name) {
  std::ifstream in(data_path(name));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(in, line);)
    out.push_back(nlohmann::json::parse(line));
  if (out.empty())
    throw std::runtime_error("no lines in " + data_path(name));
  return out;
}

inline const troupe::tokenizer& v41() {
  static const troupe::tokenizer t = troupe::tokenizer::load(data_path("tokenizer.json"));
  return t;
}

inline const troupe::tokenizer& embedded() {
  static const troupe::tokenizer t =
      troupe::tokenizer::load(std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json");
  return t;
}

// `text`, or the bytes of `bytes_hex`.
inline std::string text_of(const nlohmann::json& line) {
  if (line.contains("text"))
    return line["text"].get<std::string>();
  const auto hex = line["bytes_hex"].get<std::string>();
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

inline std::vector<std::int32_t> ids_of(const nlohmann::json& list) {
  return list.get<std::vector<std::int32_t>>();
}

} // namespace tokenizer_test
