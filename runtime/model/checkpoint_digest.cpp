#include "runtime/model/checkpoint_digest.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/model/expected_tensors.hpp"
#include "runtime/model/mapped_file.hpp"
#include <algorithm>
#include <filesystem>
#include <set>

namespace troupe {

namespace fs = std::filesystem;

namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string line_of_file(const std::string& folder, const std::string& name) {
  const mapped_file file(folder + "/" + name);
  return name + " " + to_hex(sha256_of(text_of(file.bytes()))) + "\n";
}

} // namespace

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
  for (const std::string& name : names)
    all.update(line_of_file(folder, name));
  return to_hex(all.finish());
}

std::string texts_digest(const std::string& folder) {
  return to_hex(sha256_of(line_of_file(folder, "config.json") + line_of_file(folder, "tokenizer.json")));
}

std::string weights_digest(const checkpoint& source) {
  constexpr std::size_t sample = 64, stride = std::size_t{64} << 20;
  sha256 all;
  for (const auto& [name, tensor] : source.tensors()) {
    if (is_ignored_tensor(name, source.config()))
      continue;
    all.update(name + " " + describe(tensor) + "\n");
    for (std::size_t at = 0; at < tensor.bytes.size(); at += stride)
      all.update(text_of(tensor.bytes.subspan(at, std::min(sample, tensor.bytes.size() - at))));
  }
  return to_hex(all.finish());
}

} // namespace troupe
