// The actor system of a process that is part of a cluster: the same settings in all of them.
#pragma once
#include "cluster/build_id.hpp"
#include "cluster/cluster_identity.hpp"
#include "cluster/connect.hpp"
#include "cluster/gateway_messages.hpp"
#include "cluster/shutdown.hpp"

namespace troupe {

struct cluster_system_config : caf::actor_system_config {
  cluster_system_config(const cluster_identity& c, std::size_t threads) {
    prepare_process<caf::id_block::troupe, caf::id_block::troupe_experts, caf::id_block::troupe_control,
                    caf::id_block::troupe_gateway>();
    prepare<caf::id_block::troupe, caf::id_block::troupe_experts, caf::id_block::troupe_control,
            caf::id_block::troupe_gateway>(*this, "troupe " + build_id(), threads, c.heartbeat, c.connection_timeout);
    if (c.tls)
      prepare_tls(*this, *c.tls);
  }
};

} // namespace troupe
