// What generate and batch run on: engines of this process, or those of a running cluster (--cluster).
#pragma once
#include "cli/requests.hpp"

namespace troupe {

// Throw config_error for options that are not legal, among them engine options beside --cluster.
void check_engine(const engine_flags& flags);
std::unique_ptr<engine_session> make_session(const engine_flags& flags);

} // namespace troupe
