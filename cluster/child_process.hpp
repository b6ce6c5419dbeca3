// Processes that this one has started, or has taken over from one that started them (cluster.md §3.1, §3.14).
#pragma once
#include "runtime/base/result.hpp"
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace troupe {

// Ticks since boot at which a running process began: with its id it names a process for good. Absent: there is none.
std::optional<std::uint64_t> start_ticks(pid_t pid);

class child_process {
public:
  struct command {
    std::vector<std::string> arguments; // the program first
    std::string log;                    // file that takes its standard output and error, at the end
    bool dies_with_parent = false;      // killed when the thread that started it ends
    int input = -1;                     // descriptor for its standard input; -1: that is empty
  };
  // A session of its own, signals as at login. Code: cannot_start.
  static result<child_process> start(const command& c);
  // A running process of another parent. Code: not_running.
  static result<child_process> adopt(pid_t pid, std::uint64_t ticks);

  child_process(child_process&& other) noexcept;
  child_process& operator=(child_process&& other) noexcept;
  ~child_process(); // the process is left alone

  pid_t pid() const { return pid_; }
  // False once it has ended; does not wait. Then exit_text() says how, as far as that can be known.
  bool running();
  std::optional<int> exit_code() const { return exit_code_; } // absent: ended by a signal, or of another parent
  const std::string& exit_text() const { return exit_text_; }
  void signal(int number); // no effect once it has ended: never hits another process

private:
  child_process(pid_t pid, int descriptor, bool own) : pid_(pid), descriptor_(descriptor), own_(own) {}
  pid_t pid_ = -1;
  int descriptor_ = -1; // pidfd
  bool own_ = false, ended_ = false;
  std::optional<int> exit_code_;
  std::string exit_text_;
};

} // namespace troupe
