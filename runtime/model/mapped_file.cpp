#include "runtime/model/mapped_file.hpp"
#include "runtime/base/result.hpp"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe {

mapped_file::mapped_file(const std::string& path, const std::string& remedy) {
  auto fail = [&](const std::string& why) { throw config_error(path, "", "", why, remedy); };
  // O_NONBLOCK: a named pipe in place of the file must not hang the start-up.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info {};
  const char* why = nullptr;
  if (::fstat(fd, &info) != 0)
    why = std::strerror(errno);
  else if (!S_ISREG(info.st_mode))
    why = "not a regular file";
  else if (info.st_size > 0) {
    size_ = static_cast<std::size_t>(info.st_size);
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
      why = std::strerror(errno);
    else
      data_ = static_cast<const std::byte*>(at);
  }
  ::close(fd);
  if (why)
    fail(std::string("cannot be read: ") + why);
}

mapped_file::~mapped_file() {
  if (data_)
    ::munmap(const_cast<std::byte*>(data_), size_);
}

mapped_file::mapped_file(mapped_file&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

mapped_file& mapped_file::operator=(mapped_file&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

} // namespace troupe
