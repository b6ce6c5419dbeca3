// The actor system of a process that is part of a cluster: the same settings in all of them.
#pragma once
#include "cluster/actor_system.hpp"
#include "cluster/build_id.hpp"
#include "cluster/cluster_identity.hpp"
#include "cluster/connect.hpp"
#include "cluster/gateway_messages.hpp"
#include "cluster/shutdown.hpp"

namespace troupe {

struct cluster_system_config : caf::actor_system_config {
  cluster_system_config(const cluster_identity& c, std::size_t threads) {
    prepare_process();
    prepare(*this, "troupe " + build_id(), threads, c.heartbeat, c.connection_timeout);
    if (c.tls)
      prepare_tls(*this, *c.tls);
  }
};

} // namespace troupe
