// A model of the same shapes as the embedded one, whose weights are others.
#pragma once
#include "tests/support/process.hpp"
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace test_support {

// In every tensor of more than `at` bytes that one is another: 0 is among those that weights_digest samples, 100 is
// not.
inline void write_other_model(const std::string& folder, std::size_t at) {
  namespace fs = std::filesystem;
  fs::copy(TROUPE_SOURCE_DIR "/models/tiny-v41", folder, fs::copy_options::recursive);
  const std::string file = folder + "/model-00001-of-00001.safetensors";
  std::string image = read_text(file);
  std::uint64_t length = 0;
  std::memcpy(&length, image.data(), sizeof length); // little endian, like the machines that this runs on
  const auto header = nlohmann::json::parse(image.substr(sizeof length, length));
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__")
      continue;
    const std::size_t first = tensor["data_offsets"][0], last = tensor["data_offsets"][1];
    if (first + at < last)
      image[sizeof length + length + first + at] ^= 1;
  }
  write_text(file, image);
}

} // namespace test_support
