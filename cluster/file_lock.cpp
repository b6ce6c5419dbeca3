#include "cluster/file_lock.hpp"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe {

// Its last holder may have removed the file between the two steps, and others have one of that name since: the next is
// tried.
result<file_lock> file_lock::take(const std::string& path) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
      return error{"write_failed", std::strerror(errno)}; // NOLINT(concurrency-mt-unsafe): called by one thread
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd);
      return error{"held", "another process holds it"};
    }
    struct stat held = {};
    struct stat there = {};
    if (::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
        held.st_ino == there.st_ino)
      return file_lock(path, fd);
    ::close(fd);
  }
}

file_lock::file_lock(file_lock&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

// While it is held: whoever opened it meanwhile finds that it is not there any more.
file_lock::~file_lock() {
  if (fd_ < 0)
    return;
  ::unlink(path_.c_str());
  ::close(fd_);
}

bool remove_stale_lock(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0)
    return true;
  const auto taken = file_lock::take(path);
  return taken || taken.failure().code != "held";
}

} // namespace troupe
