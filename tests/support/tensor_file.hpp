// Reads small safetensors files of test vectors into memory.
#pragma once
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::test {

struct tensor {
  std::vector<std::int64_t> shape;
  std::vector<char> bytes;
  // The elements of an F32, I64 or U8 tensor; T must have the size of an element.
  template <class T> std::vector<T> as() const {
    std::size_t n = 1;
    for (const std::int64_t s : shape)
      n *= static_cast<std::size_t>(s);
    if (bytes.size() != n * sizeof(T))
      throw std::runtime_error("test tensor read as another type");
    std::vector<T> v(n);
    std::memcpy(v.data(), bytes.data(), bytes.size());
    return v;
  }
  std::vector<float> f32() const { return as<float>(); }
  std::vector<std::int32_t> i32() const { // of an I64 tensor
    const std::vector<std::int64_t> v = as<std::int64_t>();
    return {v.begin(), v.end()};
  }
};

inline std::map<std::string, tensor> read_tensor_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (all.size() < 8)
    throw std::runtime_error("no test vectors in " + path);
  std::uint64_t header = 0;
  std::memcpy(&header, all.data(), 8);
  std::map<std::string, tensor> out;
  const auto data = all.begin() + 8 + static_cast<std::ptrdiff_t>(header);
  const nlohmann::json entries = nlohmann::json::parse(all.begin() + 8, data);
  for (const auto& [name, e] : entries.items())
    if (name != "__metadata__") {
      const auto range = e.at("data_offsets").get<std::vector<std::ptrdiff_t>>();
      out[name] = {e.at("shape").get<std::vector<std::int64_t>>(), {data + range.at(0), data + range.at(1)}};
    }
  return out;
}

} // namespace troupe::test
