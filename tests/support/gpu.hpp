// The device cuda-reference where a plug-in and a GPU are there.
#pragma once
#include "devices/device.hpp"
#include "runtime/base/result.hpp"
#include <string>
#include <vector>

namespace troupe::test {

// Why cuda-reference cannot be used here; empty when it can. Asked once.
inline const std::string& no_gpu() {
  static const std::string why = [] {
    try {
      (void)make_device("cuda-reference", {});
      return std::string();
    } catch (const config_error& e) {
      return std::string(e.what());
    }
  }();
  return why;
}

// `names`, and cuda-reference behind them when it can be used.
inline std::vector<std::string> with_gpu(std::vector<std::string> names) {
  if (no_gpu().empty())
    names.push_back("cuda-reference");
  return names;
}

} // namespace troupe::test
