#include "cli/interrupts.hpp"
#include <csignal>
#include <poll.h>
#include <stdexcept>
#include <sys/signalfd.h>
#include <unistd.h>
#include <vector>

namespace troupe {

namespace {

sigset_t both_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

} // namespace

interrupts::interrupts() {
  const sigset_t set = both_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0)
    throw std::runtime_error("the system gave no descriptor for signals");
}

interrupts::~interrupts() {
  ::close(fd_);
}

int interrupts::count() {
  signalfd_siginfo info;
  while (::read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    ++count_;
  if (count_ >= 2)
    release();
  return count_;
}

void interrupts::release() {
  const sigset_t set = both_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void interrupts::wait(std::span<const int> fds, int timeout_ms) {
  std::vector<pollfd> all{{fd_, POLLIN, 0}};
  for (const int fd : fds)
    if (fd >= 0)
      all.push_back({fd, POLLIN, 0});
  ::poll(all.data(), all.size(), timeout_ms);
}

} // namespace troupe
