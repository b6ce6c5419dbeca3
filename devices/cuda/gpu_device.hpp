// The device "cuda-reference": the plain set on a GPU, with the bits of "reference" and "cpu".
#pragma once
#include "devices/device.hpp"

namespace troupe::cuda {

// GPUs that the driver offers; 0 without a driver.
int gpu_count();

// "CUDA runtime 13.0, driver 13.0, 1 GPU".
std::string toolkit_description();

// name: "cuda-reference" or "cuda-reference:<index>". Throws config_error: no driver, driver too old, no GPU of that
// index, a GPU this build has no code for.
std::unique_ptr<device> make_gpu_device(const std::string& name);

} // namespace troupe::cuda
