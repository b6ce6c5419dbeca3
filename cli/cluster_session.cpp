#include "cli/cluster_session.hpp"
#include "cli/cluster_file.hpp"
#include "cli/engine_settings.hpp"
#include "cluster/incarnation.hpp"
#include <algorithm>

namespace troupe {

namespace {

// Which of the cluster's gateways takes the requests; empty: none.
std::string gateway_of(const loaded_cluster& c, const cluster_identity& id, const std::string& wanted) {
  if (wanted == "none" || (c.layout.gateways.empty() && wanted.empty()))
    return {};
  std::vector<std::string> names;
  std::string known = "none";
  for (const process_place& p : c.layout.gateways) {
    names.push_back(name_of_gateway(p));
    known += ", " + names.back();
  }
  if (!wanted.empty()) {
    if (std::ranges::find(names, wanted) == names.end())
      throw config_error("command line", "--gateway", wanted, "the cluster has no gateway of this name",
                         "one of: " + known);
    return wanted;
  }
  coordinator_client client(id);
  const auto s = client.status();
  if (!s) // whoever asks the cluster for engines next says why
    return {};
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(s->members, [&](const member_report& m) {
      return m.known.who.name == name && m.known.who.port != 0 && m.known.state == member_state::active;
    });
  });
  return names.empty() ? "" : names[mint_incarnation() % names.size()]; // clients spread over them
}

named_cluster cluster_at(const std::string& where, const std::string& gateway) {
  const loaded_cluster c = load_running({where, {}});
  named_cluster found;
  found.ledger = c.configuration.ledger;
  cluster_access& a = found.access;
  a.identity = identity_of(c.configuration, key_name_for(c.configuration, key_role::client), c.layout, *c.state);
  a.host = c.configuration.control.bind;
  a.name = "client." + std::to_string(mint_incarnation());
  a.model = c.configuration.model.path;
  a.seed = c.configuration.model.seed;
  a.engine_wait = std::chrono::seconds(c.configuration.cluster.join_timeout_s);
  a.max_attempts = static_cast<std::uint32_t>(c.configuration.gateway.max_attempts);
  a.gateway = gateway_of(c, a.identity, gateway);
  a.engines = engine_workers_of(c);
  found.most_requests = c.configuration.gateway.queue_requests;
  for (const rank_place& r : c.layout.ranks)
    found.most_sequences += options_of(c.configuration, c.configuration.worker_group[r.group]).max_num_seqs;
  return found;
}

} // namespace

void check_engine(const engine_flags& flags) {
  if (flags.cluster.empty()) {
    if (!flags.gateway.empty())
      throw config_error("command line", "--gateway", flags.gateway, "there is no cluster whose gateway this could be",
                         "add --cluster, or leave it out");
    resolve_engine_options(flags, process_environment());
    return;
  }
  if (!flags.given.empty() || !flags.config_file.empty())
    throw config_error("command line", "--cluster", flags.cluster,
                       flags.given.empty() ? "--config has no effect on a running cluster"
                                           : "--" + flags.given.begin()->first + " has no effect on a running cluster",
                       "leave it out: engine options stand in the cluster's file");
}

std::optional<named_cluster> find_cluster(const engine_flags& flags) {
  check_engine(flags);
  return flags.cluster.empty() ? std::nullopt : std::optional(cluster_at(flags.cluster, flags.gateway));
}

std::unique_ptr<engine_session> make_session(const engine_flags& flags) {
  return make_session(flags, find_cluster(flags));
}

std::unique_ptr<engine_session> make_session(const engine_flags& flags, const std::optional<named_cluster>& cluster) {
  if (cluster) {
    auto session = std::make_unique<engine_session>(cluster->access, flags.metrics_file);
    session->most_sequences = cluster->most_sequences;
    if (!cluster->access.gateway.empty())
      session->most_requests = cluster->most_requests;
    return session;
  }
  const engine_options o = resolve_engine_options(flags, process_environment());
  auto session = std::make_unique<engine_session>(o, flags.metrics_file);
  session->most_sequences = o.max_num_seqs * o.engines;
  return session;
}

} // namespace troupe
