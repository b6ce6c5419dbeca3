// Devices by name.
#include "devices/device.hpp"
#include "devices/reference/reference.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

std::unique_ptr<device> make_device(const std::string& name, const device_options&) {
  if (name == "reference")
    return make_reference_device();
  throw config_error("", "device", name, "unknown device", "use reference");
}

} // namespace troupe
