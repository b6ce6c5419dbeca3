// A file that one process at a time holds. It goes with its holder; what a killed one leaves is nobody's.
#pragma once
#include "runtime/base/result.hpp"
#include <string>

namespace troupe {

class file_lock {
public:
  // Fails: "held" (by another process, or by this one), "write_failed" (the system's reason).
  static result<file_lock> take(const std::string& path);

  file_lock(file_lock&& other) noexcept;
  file_lock& operator=(file_lock&&) = delete;
  ~file_lock(); // removes the file

private:
  file_lock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

// Removes what killed holders left. False: somebody holds it.
bool remove_stale_lock(const std::string& path);

} // namespace troupe
