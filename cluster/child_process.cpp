#include "cluster/child_process.hpp"
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

int open_process(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

// Of the child, between fork and exec: nothing here allocates or locks. Ends with the errno that stopped it.
[[noreturn]] void become(char* const* arguments, int input, int log, int failure, pid_t parent, bool dies_with_parent) {
  const auto give_up = [&] {
    const int why = errno;
    [[maybe_unused]] const ssize_t n = ::write(failure, &why, sizeof why);
    ::_exit(127);
  };
  ::setsid();
  if (dies_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
      ::_exit(127); // it ended meanwhile
  }
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD})
    ::signal(s, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int in = input >= 0 ? input : ::open("/dev/null", O_RDONLY);
  if (in < 0 || ::dup2(in, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0)
    give_up();
  ::execv(arguments[0], arguments);
  give_up();
  ::_exit(127);
}

} // namespace

std::optional<std::uint64_t> start_ticks(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(in, text))
    return {};
  const auto behind_name = text.rfind(')'); // which may hold anything
  if (behind_name == std::string::npos)
    return {};
  std::istringstream fields(text.substr(behind_name + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) // proc(5): the state is field 3, the start 22
    if (i == 3 && (field == "Z" || field == "X"))
      return {};
  return std::stoull(field);
}

result<child_process> child_process::start(const command& c) {
  const int log = ::open(c.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0)
    return error{"cannot_start", "cannot write the log " + c.log + ": " + std::strerror(errno)};
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0) {
    ::close(log);
    return error{"cannot_start", "no pipe for a process: " + std::string(std::strerror(errno))};
  }
  std::vector<char*> arguments;
  for (const std::string& a : c.arguments)
    arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0)
    become(arguments.data(), c.input, log, failure[1], parent, c.dies_with_parent);
  int why = pid < 0 ? errno : 0;
  ::close(log);
  ::close(failure[1]);
  if (pid > 0 && ::read(failure[0], &why, sizeof why) > 0)
    ::waitpid(pid, nullptr, 0);
  ::close(failure[0]);
  if (why != 0)
    return error{"cannot_start", "cannot start " + c.arguments.front() + ": " + std::strerror(why)};
  return child_process(pid, open_process(pid), true);
}

result<child_process> child_process::adopt(pid_t pid, std::uint64_t ticks) {
  const int descriptor = open_process(pid);
  if (descriptor >= 0 && start_ticks(pid) == ticks) // in this order: the descriptor stays with what was checked
    return child_process(pid, descriptor, false);
  if (descriptor >= 0)
    ::close(descriptor);
  return error{"not_running", "process " + std::to_string(pid) + " has ended"};
}

child_process::child_process(child_process&& other) noexcept
    : pid_(other.pid_), descriptor_(std::exchange(other.descriptor_, -1)), own_(other.own_), ended_(other.ended_),
      exit_code_(other.exit_code_), exit_text_(std::move(other.exit_text_)) {}

child_process& child_process::operator=(child_process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(own_, other.own_);
  std::swap(ended_, other.ended_);
  std::swap(exit_code_, other.exit_code_);
  std::swap(exit_text_, other.exit_text_);
  return *this;
}

child_process::~child_process() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

bool child_process::running() {
  if (ended_)
    return false;
  if (!own_) {
    pollfd p{descriptor_, POLLIN, 0};
    ended_ = ::poll(&p, 1, 0) > 0;
    if (ended_)
      exit_text_ = "ended";
    return !ended_;
  }
  int how_it_ended = 0;
  if (::waitpid(pid_, &how_it_ended, WNOHANG) != pid_)
    return true;
  ended_ = true;
  if (WIFEXITED(how_it_ended)) {
    exit_code_ = WEXITSTATUS(how_it_ended);
    exit_text_ = "exit code " + std::to_string(*exit_code_);
  } else {
    exit_text_ =
        "ended by signal " + std::to_string(WTERMSIG(how_it_ended)) + " (" + ::strsignal(WTERMSIG(how_it_ended)) + ")";
  }
  return false;
}

void child_process::signal(int number) {
  if (!ended_ && descriptor_ >= 0)
    ::syscall(SYS_pidfd_send_signal, descriptor_, number, nullptr, 0);
}

} // namespace troupe
