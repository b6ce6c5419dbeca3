// What is nothing of the cluster comes to every port of its processes: they go on, and say so in their logs.
#include "tests/process/running_cluster.hpp"
#include <arpa/inet.h>
#include <random>
#include <set>

using namespace process_test;
using namespace std::chrono_literals;

namespace {

struct listener {
  std::string process;
  int port;
};

// Of all processes of the cluster.
std::vector<listener> listeners_of(const running_cluster& c) {
  std::map<std::string, int> ports; // by the name of the socket
  std::ifstream table("/proc/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retries, owner, timeouts, inode;
    words >> number >> local >> remote >> state >> queues >> timer >> retries >> owner >> timeouts >> inode;
    if (state == "0A")
      ports["socket:[" + inode + "]"] = std::stoi(local.substr(local.find(':') + 1), nullptr, 16);
  }
  std::vector<listener> all;
  for (const auto& record : std::filesystem::directory_iterator(c.state + "/run")) {
    if (record.path().extension() != ".json")
      continue;
    const std::string process = record.path().stem().string();
    for (const auto& fd : std::filesystem::directory_iterator("/proc/" + c.record(process)["pid"].dump() + "/fd")) {
      std::error_code gone;
      if (const auto at = ports.find(std::filesystem::read_symlink(fd, gone).string()); at != ports.end())
        all.push_back({process, at->second});
    }
  }
  return all;
}

// Sends what the port takes of it and closes.
void throw_at(int port, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  BOOST_REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0)
      break;
    at += static_cast<std::size_t>(n);
  }
  ::shutdown(fd, SHUT_WR);
  const timeval limit{0, 200000};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::array<char, 4096> answer{};
  while (::recv(fd, answer.data(), answer.size(), 0) > 0) {
  }
  ::close(fd);
}

// A message of CAF's protocol: a greeting that announces so many bytes, and as many as there are.
std::string greeting(std::uint32_t announced, std::size_t there) {
  std::string m(32 + there, '\0');
  m[0] = 1;
  for (std::size_t i = 0; i < 4; ++i)
    m[4 + i] = static_cast<char>(announced >> (24 - 8 * i));
  return m;
}

// ZeroMQ's, version 3, without encryption.
std::string zmq_greeting() {
  std::string g = std::string("\xff\0\0\0\0\0\0\0\1\x7f", 10) + std::string("\3\0NULL", 6);
  g.resize(64);
  return g;
}

std::vector<std::string> garbage() {
  std::mt19937 random(7);
  std::vector<std::string> all;
  for (int i = 0; i < 4; ++i) {
    std::string noise(std::size_t{1} << (4 + 4 * i), '\0');
    std::ranges::generate(noise, [&] { return static_cast<char>(random()); });
    all.push_back(noise);
  }
  all.insert(all.end(), {"GET / HTTP/1.1\r\nHost: troupe\r\n\r\n", greeting(100, 10), greeting(~0u, 1000),
                         greeting(0, 0), zmq_greeting().substr(0, 11), zmq_greeting(),
                         zmq_greeting() + std::string("\2\x7f\xff\xff\xff\xff\xff\xff\xff", 9)});
  return all;
}

std::size_t peak_mib(const running_cluster& c, const std::string& process) {
  std::ifstream in("/proc/" + c.record(process)["pid"].dump() + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmHWM:"))
      return std::stoul(line.substr(6)) / 1024;
  return 0;
}

} // namespace

BOOST_AUTO_TEST_SUITE(strangers)

namespace {

void check_with(const std::string& security) {
  running_cluster c({.workers = 1,
                     .prompts = 1,
                     .security = security,
                     .other_keys = "[data]\nport = 0\nintra_host = \"tcp\"\n[gateway]\ncount = 1\nport = 0\n"});
  const std::string lines = mixed_lines(16);
  const auto expected = alone(lines);
  c.require_launch();
  const auto listening = listeners_of(c);
  std::map<std::string, std::size_t> peaks;
  std::map<std::string, std::uint64_t> incarnations;
  for (const listener& l : listening) {
    peaks[l.process] = peak_mib(c, l.process);
    incarnations[l.process] = c.record(l.process)["incarnation"];
  }
  BOOST_TEST(peaks.size() == 5u);     // coordinator, node agent, two workers, gateway
  BOOST_TEST(listening.size() >= 6u); // the decode worker takes bulk bytes too
  running_batch batch(c, lines);
  for (const listener& l : listening)
    for (const std::string& bytes : garbage())
      throw_at(l.port, bytes);
  check_equal(batch.results(), expected);
  for (const listener& l : listening) {
    const std::string log = run_troupe({"logs", c.file, l.process}).out, port = ":" + std::to_string(l.port);
    BOOST_TEST((contains(log, "event=bytes_refused at=127.0.0.1" + port + " why=") ||
                contains(log, "event=bytes_refused at=tcp://127.0.0.1" + port + " why=")),
               l.process << " says nothing of port " << l.port << ":\n"
                         << log);
    BOOST_TEST(c.record(l.process)["incarnation"] == incarnations[l.process]);
    BOOST_TEST(peak_mib(c, l.process) < peaks[l.process] + 300, l.process);
  }
  BOOST_TEST(c.status()["status"] == "ok");
  check_equal(by_id(troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file}).out), expected);
  BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
  c.expect_nothing_left();
}

} // namespace

BOOST_AUTO_TEST_CASE(garbage_at_every_port_is_refused_and_no_byte_changes) {
  check_with("");
}

BOOST_AUTO_TEST_CASE(where_all_have_keys_likewise) {
  const temporary_folder folder;
  const auto made = run_troupe({"keygen", folder / "keys", "--node", "n0"});
  BOOST_REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  check_with(made.out.substr(made.out.find("mode = ")));
}

BOOST_AUTO_TEST_SUITE_END()
