#include "cluster/shared_memory.hpp"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint64_t segment_magic = 0x31'6d68'732d'7274; // "tr-shm1"
constexpr std::size_t header_bytes = 4096; // a page: what follows may be mapped and aligned as one likes

struct segment_header {
  std::atomic<std::uint64_t> magic{0}; // written last: a segment without it is not finished
  std::uint64_t bytes = 0;             // behind the header
  shared_end owner;
};
static_assert(sizeof(segment_header) <= header_bytes);

std::string reason(int code) {
  return std::generic_category().message(code);
}
error failed(const std::string& name, const std::string& what, int code) {
  return error{code == ENOSPC || code == ENOMEM ? "no_space" : "shm_failed",
               "/dev/shm/" + name + ": " + what + ": " + reason(code)};
}

// The number after the closing bracket of the command's name that is `field` in proc(5); state is field 3.
struct process_facts {
  char state = 0;
  std::uint64_t started = 0;
};
std::optional<process_facts> facts_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line))
    return std::nullopt;
  const std::size_t bracket = line.rfind(')');
  if (bracket == std::string::npos)
    return std::nullopt;
  std::istringstream rest(line.substr(bracket + 1));
  process_facts facts;
  rest >> facts.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field)
    rest >> skipped;
  rest >> facts.started;
  return rest ? std::optional(facts) : std::nullopt;
}

class descriptor {
public:
  explicit descriptor(int fd) : fd_(fd) {}
  ~descriptor() {
    if (fd_ >= 0)
      ::close(fd_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

private:
  int fd_;
};

// Whether `name` is still the file behind `fd`.
bool still_named(const std::string& name, int fd) {
  struct stat by_name {
  }, by_fd{};
  return ::stat(("/dev/shm/" + name).c_str(), &by_name) == 0 && ::fstat(fd, &by_fd) == 0 &&
         by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev;
}

// Locks of open file descriptions: they go when the last copy of the descriptor does, and can be asked for without
// being taken (a probe that took one would look like an owner to others).
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}
bool take_lock(int fd) {
  struct flock lock = whole_file();
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}
bool lock_is_free(int fd) {
  struct flock lock = whole_file();
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

// Removes a segment of a dead owner. False: its owner lives.
bool unlink_if_left(const std::string& name) {
  const descriptor fd(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (fd.get() < 0)
    return errno == ENOENT;
  if (!take_lock(fd.get()))
    return false;
  // Held by us: whoever else wants to replace it waits, and nobody can have made a new one under this name but by
  // unlinking this one first.
  if (still_named(name, fd.get()))
    ::shm_unlink(name.c_str());
  return true;
}

} // namespace

std::string segment_part(std::string_view name) {
  std::string part(name);
  for (char& c : part)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')))
      c = '_';
  return part;
}

std::string segment_prefix(std::string_view cluster, std::string_view node) {
  return "troupe." + segment_part(cluster) + "." + segment_part(node) + ".";
}

result<std::string> segment_name(std::string_view cluster, std::string_view node, std::string_view a,
                                 std::string_view b) {
  const auto plain = [](std::string_view part, bool dots) {
    return !part.empty() && std::ranges::all_of(part, [dots](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
             (dots && c == '.');
    });
  };
  for (const std::string_view part : {cluster, node})
    if (!plain(part, false))
      return error{"bad_name",
                   "'" + std::string(part) + "' can not be part of a segment's name; use letters, digits and _ only"};
  for (const std::string_view part : {a, b})
    if (!plain(part, true))
      return error{"bad_name",
                   "'" + std::string(part) + "' can not be an end of a segment; use letters, digits, _ and . only"};
  std::string name = "troupe.";
  name.append(cluster).append(".").append(node).append(".").append(a).append("-").append(b);
  if (name.size() > NAME_MAX - 1) // shm_open adds a slash
    return error{"bad_name", name + ": longer than " + std::to_string(NAME_MAX - 1) + " characters"};
  return name;
}

status shared_end::take() {
  const pid_t before = pid();
  if (before != 0 && before != ::getpid() && !left() && !died())
    return error{"in_use", "process " + std::to_string(before) + " stands at this end of the shared memory"};
  const auto self = facts_of(::getpid());
  started_.store(self ? self->started : 0, std::memory_order_relaxed);
  beat();
  left_.store(0, std::memory_order_seq_cst);
  pid_.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_seq_cst);
  return nothing{};
}

void shared_end::leave() {
  left_.store(1, std::memory_order_seq_cst);
}

bool shared_end::died() const {
  const pid_t who = pid();
  if (who == 0 || left())
    return false;
  if (who == ::getpid())
    return false;
  if (::kill(who, 0) != 0 && errno == ESRCH)
    return true;
  const auto facts = facts_of(who);
  const std::uint64_t started = started_.load(std::memory_order_relaxed);
  return !facts || facts->state == 'Z' || facts->state == 'X' || (started != 0 && facts->started != started);
}

result<shared_memory> shared_memory::create(const std::string& name, std::size_t bytes) {
  constexpr int tries = 100; // each lost to another process that made or removed a segment of this name meanwhile
  for (int n = 0; n < tries; ++n) {
    descriptor fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd.get() < 0 && errno == EEXIST) {
      if (!unlink_if_left(name))
        return error{"in_use", "/dev/shm/" + name + ": belongs to a living process"};
      continue;
    }
    if (fd.get() < 0)
      return failed(name, "cannot be made", errno);
    if (!take_lock(fd.get()) || !still_named(name, fd.get()))
      continue;               // another took it for an orphan before the lock was there
    ::fchmod(fd.get(), 0600); // whatever the umask says
    const std::size_t whole = header_bytes + bytes;
    // Memory is taken now: a full /dev/shm is an error here and not a SIGBUS later.
    if (const int code = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(whole)); code != 0) {
      ::shm_unlink(name.c_str());
      return failed(name, "no " + std::to_string(whole) + " bytes", code);
    }
    void* map = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (map == MAP_FAILED) {
      const int code = errno;
      ::shm_unlink(name.c_str());
      return failed(name, "cannot be mapped", code);
    }
    auto* header = new (map) segment_header;
    header->bytes = bytes;
    (void)header->owner.take();
    header->magic.store(segment_magic, std::memory_order_release);
    shared_memory made;
    made.name_ = name;
    made.fd_ = fd.release();
    made.map_ = map;
    made.mapped_ = whole;
    made.owner_ = true;
    made.owner_pid_ = ::getpid();
    return made;
  }
  return error{"in_use", "/dev/shm/" + name + ": others keep making and removing it"};
}

result<shared_memory> shared_memory::open(const std::string& name) {
  descriptor fd(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (fd.get() < 0)
    return errno == ENOENT ? error{"unknown", "/dev/shm/" + name + ": there is no such segment"}
                           : failed(name, "cannot be opened", errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0)
    return failed(name, "cannot be looked at", errno);
  if (facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0)
    return error{"bad_segment", "/dev/shm/" + name + ": belongs to another user or is open to others"};
  if (lock_is_free(fd.get()))
    return error{"owner_gone", "/dev/shm/" + name + ": its owner is dead"};
  const auto whole = static_cast<std::size_t>(facts.st_size);
  if (whole < header_bytes)
    return error{"bad_segment", "/dev/shm/" + name + ": not finished, or not a segment of ours"};
  void* map = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED)
    return failed(name, "cannot be mapped", errno);
  shared_memory opened;
  opened.name_ = name;
  opened.fd_ = fd.release();
  opened.map_ = map;
  opened.mapped_ = whole;
  const auto* header = static_cast<const segment_header*>(map);
  if (header->magic.load(std::memory_order_acquire) != segment_magic || header->bytes != whole - header_bytes)
    return error{"bad_segment", "/dev/shm/" + name + ": not finished, or not a segment of ours"};
  return opened;
}

shared_memory::shared_memory(shared_memory&& other) noexcept {
  *this = std::move(other);
}

shared_memory& shared_memory::operator=(shared_memory&& other) noexcept {
  if (this != &other) {
    close();
    name_ = std::move(other.name_);
    fd_ = std::exchange(other.fd_, -1);
    map_ = std::exchange(other.map_, nullptr);
    mapped_ = std::exchange(other.mapped_, 0);
    owner_ = std::exchange(other.owner_, false);
    owner_pid_ = std::exchange(other.owner_pid_, 0);
  }
  return *this;
}

shared_memory::~shared_memory() {
  close();
}

void shared_memory::close() {
  if (map_ == nullptr)
    return;
  if (owner_ && owner_pid_ == ::getpid()) {
    static_cast<segment_header*>(map_)->owner.leave();
    if (still_named(name_, fd_))
      ::shm_unlink(name_.c_str());
  }
  ::munmap(map_, mapped_);
  ::close(fd_);
  map_ = nullptr;
}

std::byte* shared_memory::data() const {
  return static_cast<std::byte*>(map_) + header_bytes;
}

std::size_t shared_memory::size() const {
  return mapped_ - header_bytes;
}

bool shared_memory::owner_gone() const {
  if (owner_)
    return false;
  return static_cast<const segment_header*>(map_)->owner.left() || lock_is_free(fd_);
}

std::vector<std::string> list_segments(std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored))
    if (std::string name = entry.path().filename().string(); name.starts_with(prefix))
      names.push_back(std::move(name));
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> reap_segments(std::string_view prefix) {
  std::vector<std::string> names = list_segments(prefix);
  std::erase_if(names, [](const std::string& name) { return !unlink_if_left(name); });
  return names;
}

} // namespace troupe
