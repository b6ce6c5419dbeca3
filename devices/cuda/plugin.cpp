// The plug-in troupe_cuda.so: what devices/plugin_loader.cpp looks for.
#include "devices/plugin.hpp"

#include "devices/cuda/gpu_device.hpp"

namespace {

const char* describe() {
  static const std::string text = troupe::cuda::toolkit_description();
  return text.c_str();
}

troupe::device* create(const char* name, const troupe::device_options*) {
  return troupe::cuda::make_gpu_device(name).release(); // the loader takes it into a unique_ptr at once
}

constexpr troupe_device_api api{troupe_plugin_version, TROUPE_BUILD_ID, troupe::cuda::gpu_count, describe, create};

} // namespace

extern "C" __attribute__((visibility("default"))) const troupe_device_api* troupe_device() {
  return &api;
}
