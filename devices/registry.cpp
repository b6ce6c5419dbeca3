// Devices by name.
#include "devices/cpu/cpu.hpp"
#include "devices/device.hpp"
#include "devices/plugin_loader.hpp"
#include "devices/reference/reference.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

std::unique_ptr<device> make_device(const std::string& name, const device_options& options) {
  if (name == "cpu")
    return make_cpu_device(options);
  if (name == "reference")
    return make_reference_device();
  if (name == "cuda-reference" || name.starts_with("cuda-reference:"))
    return std::unique_ptr<device>(load_plugin("cuda", name).create(name.c_str(), &options));
  throw config_error("", "device", name, "unknown device", "use cpu, reference or cuda-reference[:index]");
}

} // namespace troupe
