// Diagnostics: the default spdlog logger, to standard error only.
#pragma once
#include "cli/options.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

// Replaces the default logger. Text lines are "[time ]troupe: error: ...", JSON lines {"time", "level", "message"}.
void set_up_logging(const log_settings& settings);

// True for success; the message of a failure becomes an error line.
bool succeeded(const status& s);

} // namespace troupe
