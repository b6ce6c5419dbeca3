// Steps to the executors of another host: one TCP connection (no delay) to a server there, which posts each step on its
// step board and sends the answers back (foundations.md §8). One frame a step and direction.
//
// The connection is not encrypted. Where it may leave the host, both sides prove that they belong together by a token
// that the encrypted control plane gave them; a server on any but a loopback address needs one.
#pragma once
#include "cluster/frame.hpp"
#include "cluster/step_board.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

inline constexpr std::size_t step_frame_bytes_max = std::size_t{64} << 20;

// What both sides of a link must agree on.
struct step_link_identity {
  std::string cluster;
  std::uint64_t incarnation = 0; // of the server's process
  std::string token;             // at most 64 bytes; empty only inside a host
  std::size_t executors = 1;
};

// The scheduler's side. post() and wait() may be called by two threads, each by one.
class step_link {
public:
  // Failures: "unreachable", "refused" (another cluster, incarnation, token or number of executors). All of it, the
  // greeting included, takes at most `limit`.
  static result<step_link> connect(const std::string& address, std::uint16_t port, const step_link_identity& identity,
                                   std::chrono::milliseconds limit);
  step_link(step_link&&) noexcept;
  step_link& operator=(step_link&&) noexcept;
  ~step_link();

  // One command for each executor. Does not wait for the server. Failures: "too_large", "timed_out" (the connection
  // takes no more), "peer_gone"; after the last two the link is of no more use.
  status post(std::uint64_t step, std::span<const byte_span> commands, std::chrono::milliseconds limit);
  // Answers to `step`, in the order of posting; valid until the next wait(). Failures: "timed_out" (it may be waited
  // for again), "peer_gone", "executor_gone" with the board's words, "wrong_step", "bad_frame".
  result<std::span<const byte_span>> wait(std::uint64_t step, std::chrono::milliseconds limit);
  // On any thread: whether the server's side of the connection is gone, as far as the system knows.
  bool lost() const;
  void shut(); // likewise: who posts or waits hears "peer_gone" now

private:
  struct state;
  explicit step_link(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

struct step_link_server_options {
  std::string address = "127.0.0.1";           // digits
  std::uint16_t port = 0;                      // 0: the system chooses
  step_link_identity identity;                 // `executors` is taken from the board
  std::chrono::milliseconds board_limit{1000}; // until the board has room for a command
};

// The agent's side: one connection at a time, served by two threads of its own (one posts, one answers).
class step_link_server {
public:
  // Failures: "refused_address" (not loopback and no token), "cannot_bind".
  static result<step_link_server> start(const step_link_server_options& options, step_board board);
  step_link_server(step_link_server&&) noexcept;
  step_link_server& operator=(step_link_server&&) noexcept;
  ~step_link_server(); // ends the connection and the board

  std::uint16_t port() const;
  // Empty while all is well; the server takes no new connection once an executor is gone.
  std::string failure() const;
  bool lost() const; // a scheduler was connected, and is not any more

private:
  struct state;
  explicit step_link_server(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

} // namespace troupe
