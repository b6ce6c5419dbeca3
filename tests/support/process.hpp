// Runs a program to its end: arguments, environment, standard input as text; exit code and both outputs back.
#pragma once
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace test_support {

struct finished_process {
  int exit_code = -1; // 128 + signal for one that a signal ended
  std::string out, err;
};

struct process_options {
  std::string input{};                              // whole standard input
  std::map<std::string, std::string> environment{}; // added
  std::string stdout_path{};                        // instead of a pipe
  // Called with the process id and everything on standard output and error so far, whenever more has come or 20 ms
  // passed.
  std::function<void(pid_t, const std::string& out, const std::string& err)> watch{};
  bool keep_input_open = false;
  std::chrono::seconds limit{400}; // of a program that hangs; a crowded machine is slow
};

inline finished_process run_process(const std::string& program, const std::vector<std::string>& arguments,
                                    const process_options& options = {}) {
  int in[2], out[2], err[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipes");
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments)
    argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const auto& [name, value] : options.environment)
      ::setenv(name.c_str(), value.c_str(), 1);
    ::dup2(in[0], 0);
    ::dup2(options.stdout_path.empty() ? out[1] : ::open(options.stdout_path.c_str(), O_WRONLY), 1);
    ::dup2(err[1], 2);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  ::signal(SIGPIPE, SIG_IGN);
  ::fcntl(in[1], F_SETFL, O_NONBLOCK);

  finished_process result;
  std::size_t written = 0;
  int input = in[1];
  std::array<pollfd, 2> outputs{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  const auto end = std::chrono::steady_clock::now() + options.limit;
  bool timed_out = false;
  while (outputs[0].fd >= 0 || outputs[1].fd >= 0) {
    if (input >= 0 && written < options.input.size()) {
      const ssize_t n = ::write(input, options.input.data() + written, options.input.size() - written);
      written = n > 0 ? written + static_cast<std::size_t>(n) : errno == EAGAIN ? written : options.input.size();
    }
    if (input >= 0 && written >= options.input.size() && !options.keep_input_open) {
      ::close(input);
      input = -1;
    }
    ::poll(outputs.data(), outputs.size(), 20);
    for (std::size_t i = 0; i < 2; ++i)
      if (outputs[i].fd >= 0 && outputs[i].revents != 0) {
        std::array<char, 65536> block{};
        const ssize_t n = ::read(outputs[i].fd, block.data(), block.size());
        if (n <= 0) {
          ::close(outputs[i].fd);
          outputs[i].fd = -1;
        } else {
          (i == 0 ? result.out : result.err).append(block.data(), static_cast<std::size_t>(n));
        }
      }
    if (options.watch)
      options.watch(pid, result.out, result.err);
    if (!timed_out && std::chrono::steady_clock::now() > end) {
      timed_out = true;
      ::kill(pid, SIGKILL);
    }
  }
  if (input >= 0)
    ::close(input);
  int wait_status = 0;
  ::waitpid(pid, &wait_status, 0);
  result.exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  if (timed_out)
    throw std::runtime_error(program + " did not end in time; standard error: " + result.err);
  return result;
}

// A folder of its own, removed with all it holds.
class temporary_folder {
public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

} // namespace test_support
