#include "runtime/base/pending_file.hpp"
#include "runtime/model/safetensors.hpp"
#include <nlohmann/json.hpp>

namespace troupe {

status write_safetensors(const std::string& path, std::span<const host_tensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  std::size_t at = 0;
  for (const host_tensor& t : tensors) {
    std::size_t bytes = size_of(t.dtype);
    for (std::int64_t d : t.shape)
      bytes *= static_cast<std::size_t>(d);
    if (bytes != t.bytes.size() || header.contains(t.name))
      return error{"write_failed", path + ": tensor " + t.name + " has a wrong size or a repeated name"};
    header[t.name] = {{"dtype", std::string(name_of(t.dtype))}, {"shape", t.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();

  pending_file file(path);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const host_tensor& t : tensors)
    file.write(t.bytes.data(), t.bytes.size());
  return file.commit();
}

} // namespace troupe
