// How long this process could not go on for want of a CPU. On a crowded machine a worker takes no step and is well.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace troupe {

class cpu_wait {
public:
  // Milliseconds since the process began. Threads that wait at the same time count once: between two calls the one
  // that waited longest. 0 where the system does not say (/proc/self/task/*/schedstat of Linux).
  std::uint64_t total_ms();

private:
  std::map<std::string, std::uint64_t> known_; // ns, by thread
  std::uint64_t total_ = 0;                    // ns
};

} // namespace troupe
