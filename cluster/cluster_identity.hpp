// What all processes of a cluster know of it, derived from its configuration.
#pragma once
#include "cluster/ask_again.hpp"
#include "cluster/configuration.hpp"
#include "cluster/connect.hpp"
#include "cluster/layout.hpp"
#include "cluster/state_dir.hpp"
#include "cluster/tls.hpp"
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct cluster_identity {
  std::string name;
  std::string configuration;          // digest
  std::vector<endpoint> coordinators; // in the order in which they are asked
  std::chrono::milliseconds heartbeat{500}, connection_timeout{2000};
  std::optional<tls_files> tls; // of this process; none: what is listened on is not to be reached from other machines
  std::string curve_file{};     // with tls: the keys for bulk bytes
  // Where coordinators are now whose port is "any": one that was started again has another. Null: always there.
  std::function<std::vector<endpoint>()> coordinators_now{};
  std::size_t unacked_messages = 256; // to one peer
  question_limits questions{};        // to a coordinator
};

// None is to be found where the configuration, or an address, says.
class no_coordinator : public config_error {
public:
  using config_error::config_error;
};

// key_name: of the node, or of a role (key_role.hpp). Without coordinators, as they themselves have it.
cluster_identity identity_of(const cluster_configuration& c, const std::string& key_name);
// Coordinators whose port is "any" are found by their records: those that run on this host.
cluster_identity identity_of(const cluster_configuration& c, const std::string& key_name, const cluster_layout& layout,
                             const state_dir& state);

// Names of processes, unique in a cluster: "decode.3", "coordinator.0", "gateway.0", "node.n0".
std::string name_of_rank(const cluster_configuration& c, const rank_place& place);
std::string name_of_coordinator(const process_place& place);
std::string name_of_gateway(const process_place& place);
std::string name_of_node_agent(const cluster_configuration& c, const process_place& place);

} // namespace troupe
