// Loading of device plug-ins by dlopen.
#pragma once
#include "devices/plugin.hpp"
#include <string>
#include <string_view>

namespace troupe {

// The plug-in troupe_<kind>.so: from TROUPE_PLUGIN_DIR when that is set, else beside the running program. It stays
// loaded until the process ends. device: the device name that was asked for, for messages. Throws config_error: no such
// file (with its path), not loadable, of another build.
const troupe_device_api& load_plugin(std::string_view kind, const std::string& device);

} // namespace troupe
