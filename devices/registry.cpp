// Devices by name.
#include "devices/cpu/cpu.hpp"
#include "devices/device.hpp"
#include "devices/reference/reference.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

std::unique_ptr<device> make_device(const std::string& name, const device_options& options) {
  if (name == "cpu")
    return make_cpu_device(options);
  if (name == "reference")
    return make_reference_device();
  throw config_error("", "device", name, "unknown device", "use cpu or reference");
}

} // namespace troupe
