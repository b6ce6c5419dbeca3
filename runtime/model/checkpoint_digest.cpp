#include "runtime/model/checkpoint_digest.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/model/mapped_file.hpp"
#include <filesystem>
#include <set>

namespace troupe {

namespace fs = std::filesystem;

std::string checkpoint_digest(const std::string& folder) {
  std::error_code fault;
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, fault)) {
    const fs::path name = entry.path().filename();
    if (name == "config.json" || name == "tokenizer.json" || name.extension() == ".safetensors")
      names.insert(name.string());
  }
  if (fault)
    throw config_error(folder, "", "", "the folder cannot be read: " + fault.message(), "name a model folder");
  sha256 all;
  for (const std::string& name : names) {
    const mapped_file file(folder + "/" + name);
    const auto bytes = file.bytes();
    sha256 one;
    one.update(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    all.update(name + " " + to_hex(one.finish()) + "\n");
  }
  return to_hex(all.finish());
}

} // namespace troupe
