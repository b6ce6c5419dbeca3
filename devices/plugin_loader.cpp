#include "devices/plugin_loader.hpp"

#include "runtime/base/result.hpp"
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace troupe {
namespace {

std::filesystem::path plugin_folder() {
  if (const char* folder = std::getenv("TROUPE_PLUGIN_DIR"); folder != nullptr && *folder != '\0')
    return folder;
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? std::filesystem::path(".") : program.parent_path();
}

} // namespace

const troupe_device_api& load_plugin(std::string_view kind, const std::string& device) {
  const auto path = plugin_folder() / ("troupe_" + std::string(kind) + ".so");
  const auto refuse = [&](const std::string& why, const std::string& remedy) -> config_error {
    return {"", "device", device, path.string() + ": " + why, remedy};
  };
  std::error_code failed;
  if (!std::filesystem::exists(path, failed))
    throw refuse("there is no such plug-in",
                 "build troupe where nvcc is, put the file beside the program or set TROUPE_PLUGIN_DIR to its folder");
  // never closed: devices, and what they allocated, live in it
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    throw refuse(std::string("cannot be loaded: ") + (why != nullptr ? why : "unknown reason"), "build it again");
  }
  const auto entry = reinterpret_cast<troupe_device_entry>(::dlsym(library, "troupe_device"));
  const troupe_device_api* api = entry != nullptr ? entry() : nullptr;
  if (api == nullptr)
    throw refuse("this is not a device plug-in of troupe", "build it again");
  const std::string have = api->build_id != nullptr ? api->build_id : "";
  if (api->version != troupe_plugin_version || have != TROUPE_BUILD_ID)
    throw refuse("the plug-in is of another build (" + have + ", this program is " TROUPE_BUILD_ID ")",
                 "build the program and its plug-ins together");
  return *api;
}

} // namespace troupe
