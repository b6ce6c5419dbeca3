// The steady clock as the state machines of cluster/ count it.
#pragma once
#include <chrono>
#include <cstdint>

namespace troupe {

inline std::int64_t steady_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

} // namespace troupe
