// A file that appears whole or not at all: written beside its place, synchronised, renamed.
#pragma once
#include "runtime/base/result.hpp"
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

// A temporary beside `path` that vanishes unless it is committed. After a failed call the others do nothing.
class pending_file {
public:
  explicit pending_file(const std::string& path);
  ~pending_file();
  pending_file(const pending_file&) = delete;
  pending_file& operator=(const pending_file&) = delete;

  void write(const void* data, std::size_t size);
  bool good() const { return why_.empty(); } // false: commit() will fail and say why
  // Failure ("write_failed"): the system's reason for the first thing that went wrong, for example a full disk; then
  // `path` is as before.
  status commit();

private:
  void fail();

  std::string path_, temporary_;
  int fd_ = -1;
  bool exists_ = false; // the temporary is on disk
  std::string why_;     // empty while all went well
};

// A new name in a folder survives the machine only once the folder is synchronised too: for files that others rely on
// after a crash.
status sync_folder_of(const std::string& path);

status write_whole_file(const std::string& path, std::string_view text);

// Temporaries in that folder whose process was killed.
void remove_abandoned_files(const std::string& folder);

} // namespace troupe
