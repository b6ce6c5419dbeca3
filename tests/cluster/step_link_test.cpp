#include "cluster/step_link.hpp"
#include "tests/support/answering_executor.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/sanitizers.hpp"
#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <sys/socket.h>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

const step_board_options four{.executors = 4, .slot_bytes = 256, .ring_bytes = 1 << 17, .steps_out = 2};

step_link_identity identity() {
  return {.cluster = "c1", .incarnation = 17, .token = "a token of the control plane", .executors = 4};
}

// Four executors in processes of their own, a board, a server.
class other_host {
public:
  explicit other_host(const segment_names& names, std::uint64_t die_at = ~std::uint64_t{0}) {
    for (std::size_t e = 0; e < 4; ++e)
      executors_.emplace_back(
          [&] { return run_executor(names("s", "x"), e, e % 2 + 1, e == 2 ? die_at : ~std::uint64_t{0}); });
    auto board = step_board::create(names("s", "x"), four);
    BOOST_REQUIRE(board);
    step_link_server_options options;
    options.identity = identity();
    auto started = step_link_server::start(options, std::move(*board));
    BOOST_REQUIRE(started);
    server_.emplace(std::move(*started));
  }
  step_link_server& server() { return *server_; }
  step_link connect() { return std::move(step_link::connect("127.0.0.1", server_->port(), identity(), 10s)).value(); }
  // Exit codes of the executors.
  std::vector<int> end() {
    server_.reset();
    std::vector<int> codes;
    for (forked& e : executors_)
      codes.push_back(e.wait());
    return codes;
  }

private:
  std::vector<forked> executors_;
  std::optional<step_link_server> server_;
};

std::string code_of_connecting(std::uint16_t port, const step_link_identity& who) {
  const auto link = step_link::connect("127.0.0.1", port, who, 10s);
  return link ? "connected" : link.failure().code;
}

// A plain connection that sends what it likes.
class raw_client {
public:
  explicit raw_client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  ~raw_client() { ::close(fd_); }
  void send(const byte_vector& bytes) { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void shut() { ::shutdown(fd_, SHUT_WR); }
  // Until the server closes; the bytes that came.
  std::size_t drain() {
    std::size_t bytes = 0;
    std::array<char, 4096> block{};
    for (ssize_t n = 0; (n = ::recv(fd_, block.data(), block.size(), 0)) > 0;)
      bytes += static_cast<std::size_t>(n);
    return bytes;
  }

private:
  int fd_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(step_links)

BOOST_AUTO_TEST_CASE(steps_go_to_another_host_and_back) {
  const segment_names names;
  other_host host(names);
  {
    step_link link = host.connect();
    std::uint64_t posted = 5;
    const std::uint64_t end = posted + by_build(2000U, 500U, 300U);
    for (std::uint64_t step = posted; step < end; ++step) {
      for (; posted < std::min(step + 2, end); ++posted)
        BOOST_REQUIRE(post_step(link, posted, 4));
      BOOST_REQUIRE(right_answers(link, step, 4));
    }
  }
  BOOST_TEST(host.server().failure() == "");
  BOOST_TEST(host.end() == std::vector<int>(4), boost::test_tools::per_element());
}

// A scheduler goes with a step out; its successor gets only its own answers.
BOOST_AUTO_TEST_CASE(a_new_scheduler_takes_over) {
  const segment_names names;
  other_host host(names);
  for (std::uint64_t round = 0; round < 10; ++round) {
    step_link link = host.connect();
    const std::uint64_t first = 100 * round;
    for (std::uint64_t step = first; step < first + 20; ++step) {
      BOOST_REQUIRE(post_step(link, step, 4));
      BOOST_REQUIRE(right_answers(link, step, 4));
    }
    BOOST_REQUIRE(post_step(link, first + 20, 4));
    if (round % 2 == 1)
      BOOST_REQUIRE(post_step(link, first + 21, 4));
  }
  BOOST_TEST(host.server().failure() == "");
  BOOST_TEST(host.end() == std::vector<int>(4), boost::test_tools::per_element());
}

// While no step is out, nobody but failure() looks.
BOOST_AUTO_TEST_CASE(an_executor_that_ends_before_any_step_is_seen) {
  const segment_names names;
  auto board = step_board::create(names("s", "x"), four);
  BOOST_REQUIRE(board);
  step_link_server_options options;
  options.identity = identity();
  const auto server = step_link_server::start(options, std::move(*board));
  BOOST_REQUIRE(server);
  BOOST_TEST(server->failure() == "");
  forked loading([&] { return step_board_executor::attach(names("s", "x"), 2) ? 0 : 1; });
  BOOST_TEST(loading.wait() == 0);
  BOOST_TEST(server->failure() == "executor 2 is gone");
}

// The board's ring is full and stays so; nobody wants to wait `board_limit` for the end of the process.
BOOST_AUTO_TEST_CASE(a_server_ends_while_a_step_finds_no_room) {
  const segment_names names;
  auto board = step_board::create(names("s", "x"),
                                  {.executors = 1, .slot_bytes = 8, .ring_bytes = 2048, .steps_out = steps_out_max});
  BOOST_REQUIRE(board);
  step_link_server_options options;
  options.identity = identity();
  options.identity.executors = 1;
  options.board_limit = 1h;
  auto server = step_link_server::start(options, std::move(*board));
  BOOST_REQUIRE(server);
  auto link = step_link::connect("127.0.0.1", server->port(), options.identity, 10s);
  BOOST_REQUIRE(link);
  const byte_vector large(700);
  for (std::uint64_t step = 1; step <= 3; ++step)
    BOOST_REQUIRE(link->post(step, std::vector<byte_span>{large}, 10s));
  std::this_thread::sleep_for(50ms); // so that it most likely waits
  const auto start = std::chrono::steady_clock::now();
  { const step_link_server ends = std::move(*server); }
  BOOST_TEST((std::chrono::steady_clock::now() - start < 5min));
}

BOOST_AUTO_TEST_CASE(who_waits_on_a_link_that_is_shut_hears_of_it) {
  const segment_names names;
  other_host host(names);
  step_link link = host.connect();
  std::string code;
  std::thread waiting([&] {
    const auto answers = link.wait(1, 1h);
    code = answers ? "answers" : answers.failure().code;
  });
  std::this_thread::sleep_for(20ms);
  link.shut();
  waiting.join();
  BOOST_TEST(code == "peer_gone");
  BOOST_TEST(link.lost());
}

// A server that takes connections and does not greet, as one that hangs.
BOOST_AUTO_TEST_CASE(connecting_takes_no_longer_than_it_may) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  BOOST_REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&at), bytes) == 0);
  BOOST_REQUIRE(::listen(fd, 4) == 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes);
  const auto link = step_link::connect("127.0.0.1", ntohs(at.sin_port), identity(), 50ms);
  BOOST_REQUIRE(!link);
  BOOST_TEST(link.failure().code == "unreachable");
  BOOST_TEST(link.failure().message.find("nothing came in time") != std::string::npos, link.failure().message);
  ::close(fd);
}

// Its greeting lies there when the server comes to it, but nobody waits for the answer.
BOOST_AUTO_TEST_CASE(who_gave_up_connecting_is_no_lost_scheduler) {
  const segment_names names;
  other_host host(names);
  {
    const raw_client silent(host.server().port()); // the server waits for its greeting
    std::this_thread::sleep_for(100ms);
    const auto link = step_link::connect("127.0.0.1", host.server().port(), identity(), 100ms);
    BOOST_REQUIRE(!link);
    BOOST_TEST(link.failure().code == "unreachable");
  }
  step_link link = host.connect();
  BOOST_TEST(!host.server().lost());
  BOOST_REQUIRE(post_step(link, 1, 4));
  BOOST_REQUIRE(right_answers(link, 1, 4));
  BOOST_TEST(host.end() == std::vector<int>(4), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_dead_executor_is_reported_through_the_link) {
  const segment_names names;
  other_host host(names, 30);
  step_link link = host.connect();
  for (std::uint64_t step = 20; step < 30; ++step) {
    BOOST_REQUIRE(post_step(link, step, 4));
    BOOST_REQUIRE(right_answers(link, step, 4));
  }
  BOOST_REQUIRE(post_step(link, 30, 4));
  const auto lost = link.wait(30, 60s);
  BOOST_REQUIRE(!lost);
  BOOST_TEST(lost.failure().code == "executor_gone");
  BOOST_TEST(host.server().failure().find("2") != std::string::npos);
  const auto codes = host.end();
  BOOST_TEST(codes[2] == 128 + SIGKILL);
  BOOST_TEST(codes[1] == 0);
}

BOOST_AUTO_TEST_CASE(only_those_who_belong_together_connect) {
  const segment_names names;
  other_host host(names);
  const std::uint16_t port = host.server().port();
  auto who = identity();
  who.token = "another";
  BOOST_TEST(code_of_connecting(port, who) == "refused");
  who = identity();
  who.cluster = "c2";
  BOOST_TEST(code_of_connecting(port, who) == "refused");
  who = identity();
  who.incarnation = 16;
  BOOST_TEST(code_of_connecting(port, who) == "refused");
  who = identity();
  who.executors = 5;
  BOOST_TEST(code_of_connecting(port, who) == "refused");
  BOOST_TEST(code_of_connecting(port, identity()) == "connected");
  BOOST_TEST(step_link::connect("host.example", port, identity(), 1s).failure().code == "unreachable");
  (void)host.end();
  BOOST_TEST(code_of_connecting(port, identity()) == "unreachable");
}

BOOST_AUTO_TEST_CASE(anything_may_be_sent_to_the_server) {
  const segment_names names;
  other_host host(names);
  std::mt19937_64 random(3);
  for (int round = 0; round < 30; ++round) {
    raw_client client(host.server().port());
    byte_vector bytes(random() % 200);
    for (auto& b : bytes)
      b = static_cast<std::uint8_t>(random());
    client.send(bytes);
    client.shut();
    (void)client.drain(); // the server closes
  }
  step_link link = host.connect();
  BOOST_REQUIRE(post_step(link, 1, 4));
  BOOST_TEST(right_answers(link, 1, 4));
}

BOOST_AUTO_TEST_CASE(limits_pass_and_the_link_goes_on) {
  const segment_names names;
  other_host host(names);
  step_link link = host.connect();
  BOOST_TEST(link.wait(1, 1ms).failure().code == "timed_out");
  const byte_vector large(step_frame_bytes_max);
  const std::vector<byte_span> commands{large, large, {}, {}};
  BOOST_TEST(link.post(1, commands, 1s).failure().code == "too_large");
  BOOST_REQUIRE(post_step(link, 1, 4));
  BOOST_TEST(right_answers(link, 1, 4));
  BOOST_REQUIRE(post_step(link, 2, 4));
  BOOST_TEST(link.wait(3, 60s).failure().code == "wrong_step");
  (void)host.end();
  BOOST_TEST(link.wait(4, 60s).failure().code == "peer_gone");
}

BOOST_AUTO_TEST_CASE(addresses_that_leave_the_host_need_a_token) {
  const segment_names names;
  auto board = std::move(step_board::create(names("s", "x"), four)).value();
  step_link_server_options options;
  options.address = "0.0.0.0";
  options.identity.cluster = "c1";
  const auto refused = step_link_server::start(options, std::move(board));
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "refused_address");
}

BOOST_AUTO_TEST_SUITE_END()
