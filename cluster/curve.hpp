// Encryption of ZeroMQ links (CURVE) and who may connect: one key pair a process; the public keys come with the member
// view (cluster.md §3.12).
#pragma once
#include "runtime/base/result.hpp"
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <zmq.hpp>

namespace troupe {

// As 40 characters of Z85.
struct curve_keys {
  std::string public_key, secret_key;
};
// Failure ("no_curve"): this ZeroMQ was built without.
result<curve_keys> make_curve_keys();

// Makes a socket the server's side of encrypted connections, whose clients the context's curve_gate admits.
void serve_curve(zmq::socket_t& socket, const curve_keys& own);
// Makes a socket a client of the server with this public key, and of no other.
void use_curve(zmq::socket_t& socket, const curve_keys& own, const std::string& server_key);

// Answers ZeroMQ's question (RFC 27, ZAP) whether a client may connect: yes if its key was admitted. One for a context,
// made before any socket that serves CURVE; runs a thread. Everything but CURVE is refused.
class curve_gate {
public:
  explicit curve_gate(zmq::context_t& context);
  ~curve_gate();
  curve_gate(const curve_gate&) = delete;
  curve_gate& operator=(const curve_gate&) = delete;

  // From now on these keys and no others. Connections that stand are not cut: their frames are judged by the links.
  void admit(std::set<std::string> public_keys);
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

private:
  void run();
  void answer();
  bool admits(const std::string& mechanism, const zmq::message_t& key, std::string& z85);

  zmq::socket_t questions_, stop_here_, stop_there_;
  std::mutex guard_;
  std::set<std::string> admitted_;
  std::atomic<std::uint64_t> refused_{0};
  std::thread thread_;
};

} // namespace troupe
