// Diagnostics: the default spdlog logger, to standard error only.
#pragma once
#include "cli/options.hpp"

namespace troupe {

// Replaces the default logger. Text lines are "troupe: error: ...", JSON lines {"time", "level", "message"}.
void set_up_logging(const log_settings& settings);

} // namespace troupe
