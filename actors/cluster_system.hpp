// The actor system of a process that is part of a cluster: the same settings in all of them.
#pragma once
#include "cluster/connect.hpp"
#include "cluster/control_messages.hpp"
#include "cluster/shutdown.hpp"
#include <string>
#include <vector>

namespace troupe {

// What all processes of a cluster know of it.
struct cluster_identity {
  std::string name;
  std::string configuration;          // digest
  std::vector<endpoint> coordinators; // in the order in which they are asked
  std::chrono::milliseconds heartbeat{500}, connection_timeout{2000};
};

struct cluster_system_config : caf::actor_system_config {
  cluster_system_config(const cluster_identity& c, std::size_t threads) {
    prepare_process<caf::id_block::troupe, caf::id_block::troupe_control>();
    prepare<caf::id_block::troupe, caf::id_block::troupe_control>(*this, c.name, threads, c.heartbeat,
                                                                  c.connection_timeout);
  }
};

} // namespace troupe
