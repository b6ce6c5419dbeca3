// Speed of single operations of a device.
#pragma once
#include <functional>
#include <string>

namespace troupe {

// Measures the operations whose name contains `filter` with the embedded model's shapes; emit takes one JSON object a
// case, the machine's measured peaks first. Throws config_error for an unknown device.
void bench_kernels(const std::string& device, int threads, const std::string& filter,
                   const std::function<void(const std::string&)>& emit);

} // namespace troupe
