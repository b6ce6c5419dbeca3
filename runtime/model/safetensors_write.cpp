#include "runtime/model/safetensors.hpp"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <utility>

namespace troupe {
namespace {

// A file that vanishes unless it is committed under its final name.
class pending_file {
public:
  explicit pending_file(const std::string& path)
      : path_(path), temporary_(path + ".partial-" + std::to_string(::getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    exists_ = fd_ >= 0;
  }
  ~pending_file() {
    if (fd_ >= 0)
      ::close(fd_);
    if (exists_)
      ::unlink(temporary_.c_str());
  }
  pending_file(const pending_file&) = delete;
  pending_file& operator=(const pending_file&) = delete;

  bool is_open() const { return fd_ >= 0; }

  bool write(const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(fd_, at, size);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return false;
      at += n;
      size -= static_cast<std::size_t>(n);
    }
    return true;
  }

  // fsync before rename: a full disk or a broken one shows up here, not after success was reported.
  bool commit() {
    if (::fsync(fd_) != 0)
      return false;
    const bool closed = ::close(std::exchange(fd_, -1)) == 0;
    if (!closed || ::rename(temporary_.c_str(), path_.c_str()) != 0)
      return false;
    exists_ = false;
    return true;
  }

private:
  std::string path_, temporary_;
  int fd_ = -1;
  bool exists_ = false; // the temporary is on disk
};

} // namespace

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
  bool good = file.is_open() && file.write(&length, sizeof length) && file.write(text.data(), text.size());
  for (std::size_t i = 0; good && i < tensors.size(); ++i)
    good = file.write(tensors[i].bytes.data(), tensors[i].bytes.size());
  if (!good || !file.commit())
    return error{"write_failed",
                 path + ": cannot be written: " + std::strerror(errno) + "; free space or choose another place"};
  return nothing{};
}

} // namespace troupe
