#include "runtime/base/pending_file.hpp"
#include "runtime/model/safetensors.hpp"
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace troupe {
namespace {

std::uint64_t bytes_of(const host_tensor& t) {
  std::uint64_t bytes = size_of(t.dtype);
  for (const std::int64_t d : t.shape)
    bytes *= static_cast<std::uint64_t>(d);
  return bytes;
}

error failed(const std::string& path, const std::string& why) {
  return {"write_failed", path + ": " + why};
}

} // namespace

struct safetensors_writer::file {
  explicit file(const std::string& p) : path(p), pending(p) {}
  std::string path;
  pending_file pending;
  std::uint64_t missing = 0; // bytes of tensors still to come
};

safetensors_writer::safetensors_writer(std::unique_ptr<file> f) : file_(std::move(f)) {}
safetensors_writer::safetensors_writer(safetensors_writer&&) noexcept = default;
safetensors_writer& safetensors_writer::operator=(safetensors_writer&&) noexcept = default;
safetensors_writer::~safetensors_writer() = default;

result<safetensors_writer> safetensors_writer::create(const std::string& path, std::span<const host_tensor> tensors,
                                                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  std::set<std::string_view> names;
  for (const host_tensor& t : tensors) {
    if (!names.insert(t.name).second)
      return failed(path, "tensor " + t.name + " has a repeated name");
    const std::uint64_t end = at + bytes_of(t);
    header.push_back(
        {t.name, {{"dtype", std::string(name_of(t.dtype))}, {"shape", t.shape}, {"data_offsets", {at, end}}}});
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  auto f = std::make_unique<file>(path);
  f->missing = at;
  f->pending.write(&length, sizeof length);
  f->pending.write(text.data(), text.size());
  if (!f->pending.good())
    return f->pending.commit().failure();
  return safetensors_writer(std::move(f));
}

status safetensors_writer::append(std::span<const std::byte> bytes) {
  if (bytes.size() > file_->missing)
    return failed(file_->path, "more bytes than the header announces");
  file_->pending.write(bytes.data(), bytes.size());
  if (!file_->pending.good())
    return file_->pending.commit();
  file_->missing -= bytes.size();
  return nothing{};
}

status safetensors_writer::commit() {
  if (file_->missing != 0)
    return failed(file_->path, std::to_string(file_->missing) + " bytes of its tensors are missing");
  return file_->pending.commit();
}

status write_safetensors(const std::string& path, std::span<const host_tensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  for (const host_tensor& t : tensors)
    if (bytes_of(t) != t.bytes.size())
      return failed(path, "tensor " + t.name + " has a wrong size");
  result<safetensors_writer> writer = safetensors_writer::create(path, tensors, metadata);
  if (!writer)
    return writer.failure();
  for (const host_tensor& t : tensors)
    if (const status s = writer->append(t.bytes); !s)
      return s;
  return writer->commit();
}

} // namespace troupe
