// A cluster of real processes that a test launches, and what its results are compared with.
#pragma once
#include "tests/process/troupe_process.hpp"
#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

namespace process_test {

// The first of eight ports in a row that nothing listens on at the moment.
inline int free_port() {
  constexpr int ports = 8, lowest = 16000, blocks = 2000; // the system gives ports of its own choice above 32767
  const auto can_listen = [](int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool can = ::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
    ::close(fd);
    return can;
  };
  static int next = static_cast<int>(::getpid()) * 7; // other tests run beside this one
  for (int tried = 0; tried < blocks; ++tried) {
    const int first = lowest + next++ % blocks * ports;
    int free = 0;
    while (free < ports && can_listen(first + free))
      ++free;
    if (free == ports)
      return first;
  }
  BOOST_FAIL("no free ports");
  return 0;
}

// Nothing of a cluster is left on this machine.
inline void expect_nothing_left_of(const std::string& name, const std::string& state, const std::string& file) {
  BOOST_TEST(std::filesystem::is_empty(state + "/run"));
  for (const auto& entry : std::filesystem::directory_iterator(state))
    BOOST_TEST((entry.path().extension() != ".lock" && !contains(entry.path().string(), ".partial-")), entry.path());
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline");
    std::string line((std::istreambuf_iterator<char>(in)), {});
    BOOST_TEST((!contains(line, state) && !contains(line, file)), line);
  }
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    BOOST_TEST(!contains(entry.path().filename().string(), "troupe." + name + "."));
}

struct running_cluster {
  temporary_folder folder;
  std::string name = "t" + std::to_string(::getpid()), state = folder / "state", file = folder / "cluster.toml";

  struct shape {
    int workers = 2, port = 0, nodes = 1; // nodes n0, n1, ... are all this host
    int prompts = 0;                      // workers before them that compute prompts for them
    std::string coordinators = "\"n0\"", launcher = "local";
    std::string security{}, group_keys{}, other_keys{};         // of [security]; of the workers' group; whole sections
    std::string prompt_keys{};                                  // of the group that computes prompts
    std::string cluster_keys{}, control_keys{}, timeout_keys{}; // of [cluster], [control] and [timeouts]
    std::string on = "\"n0\"";                                  // where the workers run that compute no prompts
  };
  int port; // of the first node agent; 0: any
  explicit running_cluster(const shape& s) : port(s.port) {
    std::ofstream out(file);
    out << "[cluster]\nname = \"" << name << "\"\nstate_dir = \"" << state << "\"\nlauncher = \"" << s.launcher
        << "\"\nrestart_backoff_ms = 100\ncoordinators = [" << s.coordinators << "]\n"
        << s.cluster_keys << "[security]\n"
        << s.security << "\n[control]\nport = " << s.port << "\n"
        << s.control_keys << "[model]\npath = \"" << TROUPE_SOURCE_DIR
        << "/models/tiny-v41\"\nseed = 5\nmax_model_len = 1024\n";
    for (int i = 0; i < s.nodes; ++i)
      out << "[[node]]\nname = \"n" << i << "\"\nhost = \"127.0.0.1\"\n";
    if (s.prompts > 0)
      out << "[[worker_group]]\nname = \"prefill\"\nengine = \"prompt\"\nnode = [\"n0\"]\ncount = " << s.prompts
          << "\ndevice = \"cpu\"\nthreads = 1\n"
          << s.prompt_keys;
    out << "[[worker_group]]\nname = \"decode\"\nengine = \"" << (s.prompts > 0 ? "completion" : "normal")
        << "\"\nnode = [" << s.on << "]\ncount = " << s.workers << "\ndevice = \"cpu\"\nthreads = 1\nmax_num_seqs = 8\n"
        << s.group_keys << s.other_keys << "[eplb]\nmin_extra = 4\n"
        << "[timeouts]\nlease_ms = 900\nlease_renew_ms = 200\nlease_margin_ms = 150\n"
        << s.timeout_keys;
  }
  ~running_cluster() { run_troupe({"stop", file, "--now"}); }

  finished_process launch(const process_options& options = {}) { return run_troupe({"launch", file}, options); }
  void require_launch() {
    const auto up = launch();
    BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
  }
  // Null while nobody leads.
  nlohmann::json status() {
    const std::string out = run_troupe({"status", file, "--json"}).out;
    const auto s = out.empty() ? nlohmann::json() : nlohmann::json::parse(out);
    return s.is_null() || s["leader"] == "" ? nlohmann::json() : s;
  }
  nlohmann::json record(const std::string& process) const {
    std::ifstream in(state + "/run/" + process + ".json");
    return nlohmann::json::parse(in);
  }
  template <class Condition> void wait_until(const Condition& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (const auto s = status(); !s.is_null() && condition(s))
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    BOOST_FAIL("not within five minutes: " << status().dump());
  }
  void kill(const std::string& process, int signal = SIGKILL) const {
    ::kill(record(process)["pid"].get<pid_t>(), signal);
  }
  void expect_nothing_left() const { expect_nothing_left_of(name, state, file); }
};

// That all workers have taken.
inline std::uint64_t steps_of(const nlohmann::json& status) {
  std::uint64_t steps = 0;
  for (const auto& m : status["members"])
    steps += m["steps"].get<std::uint64_t>();
  return steps;
}

// Requests of every kind: greedy and drawn, several outputs, prompts' log-probabilities, constraints, and prompts with
// a long common beginning, of which prefix caches can hold blocks.
inline std::string mixed_lines(int count) {
  std::string lines, common;
  for (int i = 0; i < 40; ++i)
    common += "value_" + std::to_string(i) + " = read_value(" + std::to_string(7 * i) + ")\n";
  for (int i = 0; i < count; ++i) {
    nlohmann::json p{{"max_tokens", 40 + 11 * (i % 4)}, {"temperature", i % 2 == 0 ? 0.0 : 0.8}};
    if (i % 3 == 0)
      p["n"] = 2;
    if (i % 4 == 1)
      p["prompt_logprobs"] = true;
    if (i % 5 == 2)
      p["so_args"] = {{"schema_type", "regex"}, {"schema", "[a-z ]{5,60}"}};
    if (i % 5 == 4)
      p["so_args"] = {{"schema_type", "json"},
                      {"schema", R"({"type": "object", "properties": {"age": {"type": "integer"},
        "city": {"enum": ["Oslo", "Lima"]}}, "required": ["age", "city"]})"}};
    lines += nlohmann::json{{"id", "r" + std::to_string(i)},
                            {"prompt", (i % 4 == 3 ? common : std::string()) + "def function_" + std::to_string(i % 6) +
                                           "(argument):\n    return "},
                            {"params", p}}
                 .dump() +
             "\n";
  }
  return lines;
}

// By (id, index), without what may differ between two runs of the same request.
inline std::map<std::string, std::string> by_id(const std::string& text) {
  std::map<std::string, std::string> results;
  for (auto line : json_lines(text)) {
    line.erase("usage");
    line.erase("cached_tokens");
    BOOST_TEST(results.emplace(line["id"].get<std::string>() + "/" + line["index"].dump(), line.dump()).second);
  }
  return results;
}

inline std::map<std::string, std::string> alone(const std::string& lines) {
  const auto run = troupe_reading(lines, {"batch", "-", "-", "--seed", "5", "--max-model-len", "1024"});
  BOOST_REQUIRE(run.exit_code == 0);
  return by_id(run.out);
}

inline void check_equal(const std::map<std::string, std::string>& got,
                        const std::map<std::string, std::string>& expected) {
  BOOST_TEST(got.size() == expected.size());
  for (const auto& [id, line] : expected)
    BOOST_CHECK_MESSAGE(got.contains(id) && got.at(id) == line, id << " differs");
}

// Of a file that is written; 0: it is not there yet.
inline std::size_t count_of_lines(const std::string& path) {
  const std::string text = std::filesystem::exists(path) ? test_support::read_text(path) : "";
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Whether some result began in an earlier process.
inline bool some_went_on(const std::string& results) {
  const auto lines = json_lines(results);
  return std::any_of(lines.begin(), lines.end(),
                     [](const auto& line) { return line["usage"]["attempts"].template get<int>() > 1; });
}

// A batch from file to file.
struct file_batch {
  const running_cluster& cluster;
  std::string in = cluster.folder / "in.jsonl", out = cluster.folder / "out.jsonl", ledger = out + ".ledger";

  finished_process run(const std::vector<std::string>& more = {}, const process_options& options = {}) const {
    std::vector<std::string> arguments{"batch", in, out, "--cluster", cluster.file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_troupe(arguments, options);
  }
  // Once three more results are there, and others are under way, `kill` is called, with the process.
  template <class Kill> finished_process run_until(const Kill& kill) const {
    process_options options;
    options.watch = [&, enough = count_of_lines(out) + 3, killed = false](pid_t pid, const std::string&,
                                                                          const std::string&) mutable {
      if (!killed && count_of_lines(out) >= enough) {
        killed = true;
        kill(pid);
      }
    };
    return run({}, options);
  }
};

// A batch on a cluster, under way while other things happen to it.
class running_batch {
public:
  running_batch(const running_cluster& c, const std::string& lines)
      : thread_([this, file = c.file, lines] {
          output_ = troupe_reading(lines, {"batch", "-", "-", "--cluster", file}).out;
          ended_ = true;
        }) {}
  ~running_batch() {
    if (thread_.joinable())
      thread_.join();
  }
  bool ended() const { return ended_; }
  // Once it has ended. Called once.
  std::map<std::string, std::string> results() {
    thread_.join();
    return by_id(output_);
  }

private:
  std::string output_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

} // namespace process_test
