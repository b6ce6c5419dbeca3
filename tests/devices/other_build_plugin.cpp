// A plug-in as another build would make it: right name and symbol, another build id.
#include "devices/plugin.hpp"

namespace {
constexpr troupe_device_api api{troupe_plugin_version, "0123456789abcdef", nullptr, nullptr, nullptr};
}
extern "C" __attribute__((visibility("default"))) const troupe_device_api* troupe_device() {
  return &api;
}
