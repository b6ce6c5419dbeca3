// The device cuda-reference where a plug-in and a GPU are there.
#pragma once
#include "devices/device.hpp"
#include "runtime/base/result.hpp"
#include <boost/test/unit_test.hpp>
#include <cstdlib>
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

// On a machine that was chosen for its GPU, TROUPE_TEST_NEEDS_GPU=1 turns a skip into a failure.
inline bool needs_gpu() {
  const char* set = std::getenv("TROUPE_TEST_NEEDS_GPU");
  return set != nullptr && std::string(set) == "1";
}

// Whether a case that needs a GPU can run; prints why it does not.
inline bool gpu() {
  BOOST_TEST((no_gpu().empty() || !needs_gpu()), no_gpu());
  if (!no_gpu().empty())
    BOOST_TEST_MESSAGE("skipped: " << no_gpu());
  return no_gpu().empty();
}

// `names`, and cuda-reference behind them when it can be used.
inline std::vector<std::string> with_gpu(std::vector<std::string> names) {
  if (no_gpu().empty() || needs_gpu())
    names.push_back("cuda-reference");
  return names;
}

// Whether a case of a device of that list can run; prints why it does not.
inline bool can_run(const std::string& device) {
  return device != "cuda-reference" || gpu();
}

} // namespace troupe::test
