// What a device plug-in (devices/NAME/plugin.cpp, built as troupe_NAME.so) exports under the symbol "troupe_device".
// Version and build id are read before anything else of a plug-in is used: C++ objects cross the border, so both sides
// must come from one build.
#pragma once

namespace troupe {
class device;
struct device_options;
} // namespace troupe

extern "C" {

struct troupe_device_api {
  unsigned version;          // troupe_plugin_version
  const char* build_id;      // TROUPE_BUILD_ID: a digest of the interface's headers and the compiler
  int (*device_count)();     // 0 without driver or hardware; throws nothing
  const char* (*describe)(); // "CUDA runtime 13.0, driver 13.0": for people; throws nothing
  // Opens "<kind>" or "<kind>:<index>". Throws config_error for a device that is not there or not usable.
  troupe::device* (*create)(const char* name, const troupe::device_options* options);
};
using troupe_device_entry = const troupe_device_api* (*)();
}

inline constexpr unsigned troupe_plugin_version = 1;
