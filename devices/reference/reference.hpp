// The device "reference": scalar fp32 kernels, one thread, no caching of anything. The oracle of all other devices.
#pragma once
#include "devices/device.hpp"
#include <memory>

namespace troupe {

std::unique_ptr<device> make_reference_device();

} // namespace troupe
