// Bulk bytes between hosts over ZeroMQ: the process's end of all links of one class of traffic. Streams to a peer leave
// through a DEALER connected to the peer's ROUTER, and what the peer sends comes to the ROUTER here: one pair of
// sockets for each peer, direction and class. What is sent, repeated and acknowledged is bulk_protocol's; here are the
// sockets and the one thread that owns them (the pump).
#pragma once
#include "cluster/bulk_channel.hpp"
#include "cluster/bulk_protocol.hpp"
#include "cluster/curve.hpp"
#include "cluster/security_mode.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace troupe {

// What the links of a process share; it outlives them.
class bulk_context {
public:
  // `io_threads`: one moves about 1 GB/s. With security_mode::mutual, `keys` are this process's.
  explicit bulk_context(security_mode mode = security_mode::loopback, curve_keys keys = {}, int io_threads = 1);

  security_mode mode() const { return mode_; }
  const curve_keys& keys() const { return keys_; }
  zmq::context_t& zmq() { return context_; }
  // Public keys of the view; without effect in loopback mode.
  void admit(std::set<std::string> public_keys);
  std::uint64_t refused_connections() const { return gate_ ? gate_->refused() : 0; }

private:
  security_mode mode_;
  curve_keys keys_;
  zmq::context_t context_;
  std::unique_ptr<curve_gate> gate_;
};

// For bulk_link_options::bind, of an address in digits: the system chooses the port.
std::string any_port_of(const std::string& address);

struct bulk_link_options {
  bulk_identity self;
  traffic_class traffic = traffic_class::kv;
  std::string bind = "tcp://127.0.0.1:*"; // the address in digits; port * is chosen by the system
  stream_rules rules;                     // credit_bytes: what this process grants each stream
  std::size_t most_streams = 1024;        // that one peer may have open
  int niceness = 0;                       // added to the pump's: bulk stands back behind what answers requests
};
// The credit of §3.11: KV 64 MiB, weights and experts 32 MiB. A2A is to have two of its largest steps, which only its
// user knows; here 16 MiB.
stream_rules default_rules(traffic_class c);

// A member of the view.
struct bulk_peer {
  std::uint32_t rank = 0;
  std::uint64_t incarnation = 0;
  std::string endpoint;   // of its ROUTER of this class; empty: nothing is sent to it
  std::string public_key; // Z85; empty in loopback mode
  friend bool operator==(const bulk_peer&, const bulk_peer&) = default;
};

class bulk_link {
public:
  // Failures: "refused_address" (not loopback, and security is not mutual), "cannot_bind".
  static result<bulk_link> start(bulk_context& context, const bulk_link_options& options);
  bulk_link(bulk_link&&) noexcept;
  bulk_link& operator=(bulk_link&&) noexcept;
  ~bulk_link(); // what was not delivered is dropped

  std::string endpoint() const; // with the port
  // The view: others are neither sent to nor listened to. A peer that is gone, or has another incarnation, endpoint or
  // key than before, loses its streams ("peer_gone").
  void set_peers(const std::vector<bulk_peer>& peers);
  // Null if the rank is not in the view. They outlive a peer and the link, and then say "peer_gone" or "closed".
  std::shared_ptr<bulk_sender> sender_to(std::uint32_t rank);
  std::shared_ptr<bulk_receiver> receiver_from(std::uint32_t rank);
  // For all senders and receivers.
  void set_mepoch(std::uint64_t mepoch);
  bulk_counters counters() const;

private:
  class pump;
  explicit bulk_link(std::unique_ptr<pump> pump);
  std::unique_ptr<pump> pump_;
};

} // namespace troupe
