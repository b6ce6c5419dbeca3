// Ctrl-C and SIGTERM as something that can be waited for together with files: the first asks to drain, the second to
// stop.
#pragma once
#include <span>

namespace troupe {

// Blocks both signals in this thread and all that it starts later; make it before anything that starts threads. After
// two signals the third has its usual effect, should stopping take too long.
class interrupts {
public:
  interrupts();
  ~interrupts();
  interrupts(const interrupts&) = delete;
  interrupts& operator=(const interrupts&) = delete;

  int count();    // signals so far; does not wait
  void release(); // the signals have their usual effect again
  // Waits until one of the descriptors (negative ones are left out) is readable, a signal comes, or the time is over
  // (-1: never).
  void wait(std::span<const int> fds, int timeout_ms);

private:
  int fd_ = -1;
  int count_ = 0;
};

} // namespace troupe
