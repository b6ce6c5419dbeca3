// Shared by the tests that start the built binary.
#pragma once
#include "tests/support/process.hpp"
#include <nlohmann/json.hpp>
#include <sstream>

namespace process_test {

using test_support::finished_process;
using test_support::process_options;
using test_support::temporary_folder;

inline finished_process run_troupe(const std::vector<std::string>& arguments, const process_options& options = {}) {
  return test_support::run_process(TROUPE_BINARY, arguments, options);
}
inline finished_process troupe_reading(const std::string& input, const std::vector<std::string>& arguments) {
  process_options options;
  options.input = input;
  return run_troupe(arguments, options);
}

// Throws if a line is not JSON: a torn line fails the test.
inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline std::string data_file(const std::string& name) {
  return std::string(TROUPE_TEST_DATA) + "/" + name;
}

} // namespace process_test
