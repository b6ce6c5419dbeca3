// The device "cpu": SIMD kernels over a fork-join thread pool, the bits of the device "reference" (numerics id "cpu-1")
// with every instruction set and any number of threads.
#pragma once
#include "devices/device.hpp"
#include <memory>

namespace troupe {

// Throws config_error for a thread count or core list that the machine cannot serve.
std::unique_ptr<device> make_cpu_device(const device_options& options);

} // namespace troupe
