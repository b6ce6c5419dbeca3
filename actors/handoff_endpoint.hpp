// Where the caches of prompts leave a process and arrive (cluster.md §3.7, §3.10): rings of shared memory inside a
// host, ZeroMQ between hosts, on threads of their own. What is sent, taken and given up is decided by
// runtime/kv/handoff.hpp; here are the threads, the clock and the channels.
#pragma once
#include "cluster/bulk_link.hpp"
#include "cluster/link_epochs.hpp"
#include "cluster/messages.hpp"
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

struct handoff_sender_place { // an engine that computes prompts
  std::uint32_t rank = 0;
  std::string node;
};

struct handoff_setup {
  bulk_identity self;
  std::string node;
  image_shape shape; // positions: of each handoff
  handoff_times times;
  std::vector<handoff_sender_place> senders;        // whose caches may arrive here; empty: nothing arrives here
  bool shared_memory = true;                        // inside the node; else ZeroMQ here too
  bool uses_link = false;                           // some of the others are not to be reached through shared memory
  std::string bind = "tcp://127.0.0.1:*";           // of the link, where there is one
  std::shared_ptr<bulk_context> bulk{};             // likewise; null: one of its own, without encryption
  std::size_t credit_bytes = std::size_t{64} << 20; // of one cache that wait to be sent
};

class handoff_endpoint {
public:
  // Throws config_error if the address cannot be had.
  explicit handoff_endpoint(const handoff_setup& setup);
  ~handoff_endpoint(); // what is under way is given up
  handoff_endpoint(const handoff_endpoint&) = delete;
  handoff_endpoint& operator=(const handoff_endpoint&) = delete;

  // Called on the threads below, until it is set anew.
  void report_to(std::function<void(handoff_note)> report);

  // ---- of a prompt that is computed here. Notes: flows_again, then sent or failed.
  void open(const handoff_ticket& ticket, std::int32_t positions);
  // The next bytes of its cache; `last`: all of it is there. False: so much waits that no more should be computed until
  // flows_again is heard.
  bool add(std::uint64_t id, std::shared_ptr<const image_bytes> bytes, bool last, std::int32_t cached);
  // ---- of one that goes on here. Notes: arrived, failed.
  void expect(const handoff_ticket& ticket, std::int32_t positions);
  // No more of it, on either side; nothing is noted behind this. Idempotent.
  void drop(std::uint64_t id);

  // The public keys of senders, by rank, as far as they are known by now: nothing else is taken over an encrypted link.
  void set_sender_keys(const std::map<std::uint32_t, std::string>& keys);
  // By rank: what is sent goes by these epochs, and what comes of an older one is refused.
  void set_epochs(const std::map<std::uint32_t, link_epoch>& epochs);
  std::uint64_t stale_frames() const; // that were refused
  // Where senders of other nodes reach it; empty: nowhere.
  std::string address() const;
  handoff_counters counters() const;

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace troupe
