// A start that failed for what may be gone a moment later: a port that somebody still holds, an engine that did not
// answer in time. Who starts the process tries again; other configuration errors stay.
#pragma once
#include "runtime/base/result.hpp"

namespace troupe {

struct passing_fault : config_error {
  using config_error::config_error;
};

} // namespace troupe
