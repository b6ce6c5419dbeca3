#include "cluster/cluster_identity.hpp"
#include "cluster/name_pattern.hpp"
#include <algorithm>

namespace troupe {

std::string name_of_rank(const cluster_configuration& c, const rank_place& place) {
  return c.worker_group[place.group].name + "." + std::to_string(place.index);
}

std::string name_of_coordinator(const process_place& place) {
  return "coordinator." + std::to_string(place.index);
}

std::string name_of_gateway(const process_place& place) {
  return "gateway." + std::to_string(place.index);
}

std::string name_of_node_agent(const cluster_configuration& c, const process_place& place) {
  return "node." + c.node[place.node].name;
}

cluster_identity identity_of(const cluster_configuration& c, const std::string& key_name) {
  cluster_identity id{c.cluster.name,
                      configuration_hash(c),
                      {},
                      std::chrono::milliseconds(c.control.heartbeat_ms),
                      std::chrono::milliseconds(c.control.connection_timeout_ms),
                      {}};
  id.unacked_messages = static_cast<std::size_t>(c.control.unacked_messages);
  id.questions = {std::chrono::milliseconds(c.timeouts.request_ms), c.timeouts.request_tries};
  if (c.security.mode == security_mode::mutual) {
    id.tls = tls_files{with_node(c.security.ca, key_name), with_node(c.security.cert, key_name),
                       with_node(c.security.key, key_name)};
    id.curve_file = with_node(c.security.curve_dir, key_name) + "/" + key_name + ".curve";
  }
  return id;
}

namespace {

std::vector<endpoint> coordinators_of(const cluster_configuration& c, const cluster_layout& layout,
                                      const state_dir& state) {
  std::vector<endpoint> all;
  for (const process_place& p : layout.coordinators) {
    if (p.control_port != 0)
      all.push_back({c.node[p.node].host, static_cast<std::uint16_t>(p.control_port)});
    else if (const auto r = state.read(name_of_coordinator(p)))
      all.push_back(r->at);
  }
  return all;
}

} // namespace

cluster_identity identity_of(const cluster_configuration& c, const std::string& key_name, const cluster_layout& layout,
                             const state_dir& state) {
  cluster_identity id = identity_of(c, key_name);
  id.coordinators = coordinators_of(c, layout, state);
  if (std::ranges::any_of(layout.coordinators, [](const process_place& p) { return p.control_port == 0; }))
    id.coordinators_now = [c, layout, state] { return coordinators_of(c, layout, state); };
  if (id.coordinators.empty())
    throw no_coordinator("", "control.port", "0", "no coordinator of " + c.cluster.name + " runs on this host",
                         "start it first (troupe launch), or give the ports of coordinators");
  return id;
}

} // namespace troupe
