// Numbers out of Prometheus text, for tests.
#pragma once
#include <sstream>
#include <string>

namespace test_support {

// Sum of the samples of troupe:<name> whose labels hold `label`; -1 if there is none.
inline double metric(const std::string& text, const std::string& name, const std::string& label = "") {
  std::istringstream in(text);
  double sum = 0;
  bool found = false;
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = line.rfind("} ");
    if (!line.starts_with("troupe:" + name + "{") || end == std::string::npos || line.find(label) >= end)
      continue;
    sum += std::stod(line.substr(end + 2));
    found = true;
  }
  return found ? sum : -1;
}

} // namespace test_support
