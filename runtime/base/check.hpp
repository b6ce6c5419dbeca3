// TROUPE_CHECK: a condition that only a programming error can break. Prints and ends the process in every build.
// Input from outside never reaches a check: it gets a result<T> or a config_error.
#pragma once
#include <cstdio>
#include <cstdlib>

namespace troupe {

[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "troupe: internal error: %s (%s:%d)\n", what, file, line);
  std::abort();
}

} // namespace troupe

#define TROUPE_CHECK(condition, what)                                                                                  \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      ::troupe::check_failed(what, __FILE__, __LINE__);                                                                \
  } while (false)
