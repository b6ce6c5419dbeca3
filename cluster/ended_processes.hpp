// The processes of a cluster that are over (cluster.md §3.4): none of them is taken in again, and clients are named no
// longer once everybody has heard of their end. No CAF.
#pragma once
#include "cluster/identity.hpp"
#include <deque>
#include <set>
#include <vector>

namespace troupe {

class ended_processes {
public:
  static constexpr std::size_t most = 65536;           // incarnations; then the oldest is forgotten
  static constexpr std::size_t most_clients = 64;      // that are named at once
  static constexpr std::int64_t client_ms = 60 * 1000; // that a client is named

  void note(incarnation_t who, bool client, std::int64_t now_ms);
  bool knows(incarnation_t who) const { return all_.contains(who); }
  std::vector<incarnation_t> newest(std::size_t count) const; // the last first
  // Clients that need no longer be named, each once.
  std::vector<incarnation_t> take_forgotten(std::int64_t now_ms);

private:
  struct named_client {
    incarnation_t who = 0;
    std::int64_t ended_ms = 0;
  };
  std::set<incarnation_t> all_;
  std::deque<incarnation_t> in_order_; // all_, oldest first
  std::deque<named_client> clients_;   // that are named, likewise
};

} // namespace troupe
