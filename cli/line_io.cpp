#include "cli/line_io.hpp"
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

std::string reason(int number) {
  return std::strerror(number);
} // NOLINT(concurrency-mt-unsafe): called by the main thread

} // namespace

file_handle::file_handle(file_handle&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)), owned_(other.owned_) {}

file_handle::~file_handle() {
  if (owned_ && fd_ >= 0)
    ::close(fd_);
}

bool file_handle::is_regular() const {
  struct stat s {};
  return ::fstat(fd_, &s) == 0 && S_ISREG(s.st_mode);
}

file_handle open_input(const std::string& path) {
  if (path == "-")
    return {STDIN_FILENO, "standard input", false};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw config_error(path, "", "", "the file cannot be read: " + reason(errno),
                       "give an existing file, or - for standard input");
  file_handle file(fd, path, true);
  struct stat s {};
  if (::fstat(fd, &s) == 0 && S_ISDIR(s.st_mode))
    throw config_error(path, "", "", "this is a folder", "give a file, or - for standard input");
  return file;
}

file_handle open_output(const std::string& path) {
  if (path == "-")
    return {STDOUT_FILENO, "standard output", false};
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0)
    throw config_error(path, "", "", "the file cannot be written: " + reason(errno),
                       "give a path that you may write, or - for standard output");
  file_handle file(fd, path, true);
  if (file.is_regular() && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw config_error(path, "", "", "another process is writing this file", "wait for it or name another file");
  return file;
}

file_handle open_output_anew(const std::string& path, const file_handle& input) {
  file_handle file = open_output(path);
  check_distinct(input, file);
  if (path != "-" && file.is_regular() && ::ftruncate(file.fd(), 0) != 0)
    throw config_error(path, "", "", "the file cannot be emptied: " + reason(errno), "name another file");
  return file;
}

void check_distinct(const file_handle& input, const file_handle& output) {
  struct stat a {
  }, b{};
  if (::fstat(input.fd(), &a) == 0 && ::fstat(output.fd(), &b) == 0 && S_ISREG(a.st_mode) && a.st_dev == b.st_dev &&
      a.st_ino == b.st_ino)
    throw config_error(output.name(), "", "", "input and output are the same file", "name another output file");
}

void check_replaceable(const std::string& path, std::initializer_list<const file_handle*> others) {
  struct stat target {};
  if (::stat(path.c_str(), &target) == 0) {
    if (!S_ISREG(target.st_mode))
      throw config_error(path, "", "", "this is not a regular file, and writing would replace it",
                         "name a new file or a regular one");
    for (const file_handle* other : others) {
      struct stat s {};
      if (::fstat(other->fd(), &s) == 0 && s.st_dev == target.st_dev && s.st_ino == target.st_ino)
        throw config_error(path, "", "", "this is the same file as " + other->name(), "name another file");
    }
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw config_error(path, "", "", "the file cannot be written: " + reason(errno), "give a path that you may write");
}

void occupy_standard_streams() {
  for (const auto& [fd, mode] : {std::pair(STDIN_FILENO, O_WRONLY), {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_RDWR}})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      ::open("/dev/null", mode); // gets the lowest free number, which is fd
}

bool line_reader::fill() {
  pollfd p{input_.fd(), POLLIN, 0};
  if (::poll(&p, 1, 0) == 0)
    return false;
  std::array<char, 1 << 16> block; // NOLINT(cppcoreguidelines-pro-type-member-init): read fills it
  const ssize_t n = ::read(input_.fd(), block.data(), block.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN))
    return false;
  if (n < 0)
    failure_ = input_.name() + ": reading failed: " + reason(errno);
  if (n <= 0)
    ended_ = true;
  else
    buffer_.append(block.data(), static_cast<std::size_t>(n));
  return true;
}

line_reader::state line_reader::next(std::string& line) {
  while (true) {
    const std::size_t end = buffer_.find('\n', scanned_);
    if (end != std::string::npos) {
      line.assign(buffer_, start_, end - start_);
      start_ = scanned_ = end + 1;
      ++line_number_;
      if (std::exchange(skipping_, false))
        return state::too_long;
      return state::line;
    }
    buffer_.erase(0, start_);
    start_ = 0;
    if (buffer_.size() > limit_) {
      buffer_.clear();
      skipping_ = true;
    }
    scanned_ = buffer_.size();
    if (ended_)
      break;
    if (!fill())
      return state::waiting;
  }
  if (!failure_.empty())
    return state::failed;
  if (buffer_.empty() && !skipping_)
    return state::end;
  line = std::move(buffer_); // a last line without line feed counts
  buffer_.clear();
  scanned_ = 0;
  ++line_number_;
  return std::exchange(skipping_, false) ? state::too_long : state::line;
}

line_writer::line_writer(file_handle output) : output_(std::move(output)), regular_(output_.is_regular()) {}

error line_writer::failure(const std::string& why) const {
  return {"write_failed",
          output_.name() + ": writing failed: " + why + "; the lines that are already there are complete"};
}

status line_writer::write_line(std::string line) {
  line += '\n';
  return write_text(line);
}

status line_writer::write_text(std::string_view text) {
  struct stat before {};
  const bool can_undo = regular_ && ::fstat(output_.fd(), &before) == 0;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(output_.fd(), text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    if (errno == EINTR)
      continue;
    if (errno == EAGAIN) { // standard output can share its settings with a program that made it non-blocking
      pollfd p{output_.fd(), POLLOUT, 0};
      ::poll(&p, 1, -1);
      continue;
    }
    std::string why = reason(errno);
    if (can_undo && done > 0 && ::ftruncate(output_.fd(), before.st_size) != 0)
      why += "; the last line is torn and could not be taken back: " + reason(errno);
    return failure(why);
  }
  return nothing{};
}

status line_writer::finish() {
  if (regular_ && ::fsync(output_.fd()) != 0 && errno != EINVAL && errno != EROFS)
    return failure(reason(errno));
  return nothing{};
}

} // namespace troupe
