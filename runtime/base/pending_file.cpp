#include "runtime/base/pending_file.hpp"
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

constexpr std::string_view mark = ".partial-"; // behind it the process

} // namespace

pending_file::pending_file(const std::string& path)
    : path_(path), temporary_(path + std::string(mark) + std::to_string(::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  exists_ = fd_ >= 0;
  if (!exists_)
    fail();
}

pending_file::~pending_file() {
  if (fd_ >= 0)
    ::close(fd_);
  if (exists_)
    ::unlink(temporary_.c_str());
}

void pending_file::fail() {
  if (why_.empty())
    why_ = std::strerror(errno); // NOLINT(concurrency-mt-unsafe): called by one thread
}

void pending_file::write(const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0 && why_.empty()) {
    const ssize_t n = ::write(fd_, at, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail();
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

// fsync before rename: a full disk or a broken one shows up here, not after success was reported.
status pending_file::commit() {
  if (why_.empty() &&
      (::fsync(fd_) != 0 || ::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0))
    fail();
  if (!why_.empty())
    return error{"write_failed", path_ + ": cannot be written: " + why_ + "; free space or choose another place"};
  exists_ = false;
  return nothing{};
}

status sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const std::string why = std::strerror(errno); // NOLINT(concurrency-mt-unsafe): called by one thread
  if (fd >= 0)
    ::close(fd);
  if (!synced)
    return error{"write_failed", folder + ": cannot be synchronised: " + why + "; choose another place"};
  return nothing{};
}

status write_whole_file(const std::string& path, std::string_view text) {
  pending_file file(path);
  file.write(text.data(), text.size());
  return file.commit();
}

void remove_abandoned_files(const std::string& folder) {
  std::error_code why;
  for (std::filesystem::directory_iterator at(folder, why), end; !why && at != end; at.increment(why)) {
    const std::string name = at->path().filename();
    const auto from = name.rfind(mark);
    if (from == name.npos)
      continue;
    pid_t who = 0;
    const char* const last = name.data() + name.size();
    const auto [number_ends, fault] = std::from_chars(name.data() + from + mark.size(), last, who);
    if (fault == std::errc() && number_ends == last && who > 0 && ::kill(who, 0) != 0 && errno == ESRCH)
      ::unlink(at->path().c_str());
  }
}

} // namespace troupe
