// A child of this process for tests of what processes share, and segment names that no other test has. Forking is safe
// only while the test program has one thread: start threads behind it.
#pragma once
#include "cluster/shared_memory.hpp"
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace troupe::test {

class forked {
public:
  // Runs `body` in a child; what it returns is the exit code.
  explicit forked(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ < 0)
      throw std::runtime_error("no child process");
    if (pid_ > 0)
      return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) // Boost.Test's handlers are the parent's
      ::signal(signal, SIG_DFL);
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child of a test: %s\n", e.what());
    }
    ::_exit(code);
  }
  forked(forked&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  forked& operator=(forked&&) = delete;
  ~forked() {
    if (pid_ > 0) {
      kill(SIGKILL);
      (void)wait();
    }
  }

  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  // Exit code, or 128 + signal.
  int wait() {
    int how = 0;
    ::waitpid(std::exchange(pid_, 0), &how, 0);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  }

private:
  pid_t pid_;
};

// Names of segments for one test; whatever is left of them at its end fails the test.
class segment_names {
public:
  segment_names() : cluster_("test" + std::to_string(::getpid())) {}
  ~segment_names() {
    for (const std::string& left : list_segments(prefix()))
      BOOST_ERROR("left behind: /dev/shm/" + left);
  }
  segment_names(const segment_names&) = delete;
  segment_names& operator=(const segment_names&) = delete;

  std::string prefix() const { return "troupe." + cluster_ + "."; }
  std::string operator()(const std::string& a, const std::string& b) const {
    return segment_name(cluster_, "n0", a, b).value();
  }

private:
  std::string cluster_;
};

} // namespace troupe::test
