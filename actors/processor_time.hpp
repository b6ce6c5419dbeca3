// Seconds of processor time of the calling thread: what work has cost, whatever else the machine did.
#pragma once
#include <ctime>

namespace troupe {

inline double thread_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

} // namespace troupe
