#include "cli/cluster_session.hpp"
#include "cli/cluster_file.hpp"
#include "cli/engine_settings.hpp"
#include "cluster/incarnation.hpp"
#include <filesystem>

namespace troupe {

namespace {

// The configuration as the coordinator there gives it.
loaded_cluster load_from(const endpoint& coordinator) {
  coordinator_client client({.name = {}, .configuration = {}, .coordinators = {coordinator}, .tls = {}});
  const auto text = client.configuration();
  if (!text)
    throw config_error("command line", "--cluster", to_string(coordinator), text.failure().message,
                       "give the address and port that troupe launch printed; with security.mode mutual the cluster's "
                       "file");
  return load_cluster_text(text->toml);
}

named_cluster cluster_at(const std::string& where) {
  const auto at = parse_endpoint(where);
  const bool is_file = std::filesystem::exists(where);
  if (!is_file && !at)
    throw config_error("command line", "--cluster", where, "is neither a file nor an address with a port",
                       "give the cluster's file, or what troupe launch printed");
  const loaded_cluster c = is_file ? load_cluster({where, {}}) : load_from(*at);
  named_cluster found;
  found.ledger = c.configuration.ledger;
  cluster_access& a = found.access;
  a.identity = identity_of(c.configuration, client_key_name, c.layout, *c.state);
  a.host = c.configuration.control.bind;
  a.name = "client." + std::to_string(mint_incarnation());
  a.model = c.configuration.model.path;
  a.seed = c.configuration.model.seed;
  for (const rank_place& r : c.layout.ranks)
    found.most_sequences += options_of(c.configuration, c.configuration.worker_group[r.group]).max_num_seqs;
  return found;
}

} // namespace

void check_engine(const engine_flags& flags) {
  if (flags.cluster.empty()) {
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
  return flags.cluster.empty() ? std::nullopt : std::optional(cluster_at(flags.cluster));
}

std::unique_ptr<engine_session> make_session(const engine_flags& flags) {
  return make_session(flags, find_cluster(flags));
}

std::unique_ptr<engine_session> make_session(const engine_flags& flags, const std::optional<named_cluster>& cluster) {
  if (cluster) {
    auto session = std::make_unique<engine_session>(cluster->access, flags.metrics_file);
    session->most_sequences = cluster->most_sequences;
    return session;
  }
  const engine_options o = resolve_engine_options(flags, process_environment());
  auto session = std::make_unique<engine_session>(o, flags.metrics_file);
  session->most_sequences = o.max_num_seqs * o.engines;
  return session;
}

} // namespace troupe
