// TLS between the actor systems of a cluster (cluster.md §3.12): both sides show a certificate of the cluster's own
// authority, or there is no connection. The only place that knows CAF's OpenSSL module.
#pragma once
#include "cluster/caf.hpp"
#include "cluster/key_role.hpp"
#include <cstdint>
#include <set>
#include <string>

namespace troupe {

struct tls_files { // PEM
  std::string authority, certificate, key;
};

// Has the system speak TLS with what it publishes and connects to.
void prepare_tls(caf::actor_system_config& config, const tls_files& files);
// Of this process, for good: with keys of lesser roles nobody connects to it.
void admit_only(key_role least);
bool speaks_tls(const caf::actor_system& system);

// types: of the actor, as CAF names them.
caf::expected<caf::strong_actor_ptr> tls_remote_actor(caf::actor_system& system, const std::set<std::string>& types,
                                                      const std::string& host, std::uint16_t port);
caf::expected<std::uint16_t> tls_publish(caf::actor_system& system, std::set<std::string> types,
                                         const caf::strong_actor_ptr& actor, std::uint16_t port,
                                         const std::string& host, bool reuse);

} // namespace troupe
