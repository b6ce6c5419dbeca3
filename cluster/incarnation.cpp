#include "cluster/incarnation.hpp"
#include <atomic>
#include <ctime>
#include <unistd.h>

namespace troupe {

// Milliseconds of the wall clock (41 bits until 2039), the process (up to 2^22 of them) and a count in one: a process
// id is not given twice within a millisecond.
std::uint64_t mint_incarnation() {
  static std::atomic<std::uint64_t> count{0};
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto ms = static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
  return (ms + count.fetch_add(1)) << 22 | (static_cast<std::uint64_t>(::getpid()) & 0x3FFFFF);
}

} // namespace troupe
