// What a configuration's values say about each other (cluster.md §3.8, §3.12, §3.13).
#pragma once
#include "cluster/configuration.hpp"
#include <optional>

namespace troupe {

// Appends a fault for everything that cannot work. Needs no model and no other host; files are looked for where they
// belong to this machine.
void check_configuration(configuration_reading& reading);

// Why this version cannot start a cluster of a configuration that is right; nothing: it can.
std::optional<config_error> launch_fault(const configuration_reading& reading);

} // namespace troupe
