// troupe coordinator, node, worker: one process of a cluster each, which troupe launch starts; by hand for other
// launchers.
#include "actors/coordinator_process.hpp"
#include "actors/node_process.hpp"
#include "actors/worker_process.hpp"
#include "cli/cluster_file.hpp"
#include "cli/interrupts.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/name_pattern.hpp"
#include "cluster/shared_memory.hpp"
#include <optional>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using std::chrono::milliseconds;

std::string address_of(const std::string& bind) {
  const auto a = resolved_address(bind);
  if (!a)
    throw config_error("", "control.bind", bind, a.failure().message, "name an address or an interface of this host");
  return *a;
}

// Until a signal comes or there is nothing left to do.
template <class Finished> void serve(interrupts& signals, const Finished& finished) {
  while (signals.count() == 0 && !finished())
    signals.wait({}, 50);
}

std::uint64_t incarnation_of(const cluster_process_options& o) {
  return o.incarnation != 0 ? o.incarnation : mint_incarnation();
}

process_identity process_of(const cluster_process_options& o, const loaded_cluster& c, const std::string& name,
                            std::size_t node) {
  const cluster_configuration& k = c.configuration;
  return {identity_of(k, c.layout, *c.state),
          name,
          k.node[node].name,
          incarnation_of(o),
          milliseconds(k.timeouts.hb_ms),
          std::chrono::seconds(k.cluster.orphan_exit_s)};
}

lease_settings lease_of(const cluster_configuration& k) {
  return {k.timeouts.lease_ms, k.timeouts.lease_renew_ms, k.timeouts.lease_margin_ms, k.timeouts.headless_ms};
}

// The votes of all node agents. One whose port is "any" is found by its record, so it has to run on this host.
leadership_setup votes_of(const loaded_cluster& c, const process_place& place, std::uint64_t incarnation) {
  leadership_setup v;
  v.self = {node_id(static_cast<std::uint32_t>(place.node)), incarnation};
  for (const process_place& a : c.layout.node_agents)
    v.voters.emplace_back(static_cast<std::uint32_t>(a.node));
  v.at = [c](node_id node) -> std::optional<endpoint> {
    for (const process_place& a : c.layout.node_agents) {
      if (a.node != node.value)
        continue;
      if (a.control_port != 0)
        return endpoint{c.configuration.node[a.node].host, static_cast<std::uint16_t>(a.control_port)};
      if (const auto r = c.state->read(name_of_node_agent(c.configuration, a)))
        return r->at;
    }
    return std::nullopt;
  };
  v.lease = lease_of(c.configuration);
  v.configuration = configuration_hash(c.configuration);
  return v;
}

// Who shares experts with this rank; nothing: nobody.
std::optional<expert_group_place> experts_of(const cluster_configuration& k, const cluster_layout& layout,
                                             const rank_place& place, const process_identity& process) {
  const worker_group_section& g = k.worker_group[place.group];
  if (g.expert_parallel <= 1)
    return std::nullopt;
  expert_group_place p;
  p.cluster = k.cluster.name;
  p.node = k.node[place.node].name;
  const bool one_host = std::ranges::all_of(layout.ranks, [&](const rank_place& r) {
    return r.group != place.group || r.ep_group != place.ep_group || r.node == place.node;
  });
  if (k.data.intra_host == host_carrier::tcp || !one_host)
    p.tcp_address = address_of(k.data.bind);
  p.incarnation = process.incarnation;
  p.first = place.rank.value - static_cast<std::uint32_t>(place.ep_rank);
  p.ranks = g.expert_parallel;
  p.rank = place.ep_rank;
  p.min_extra = k.eplb.min_extra;
  p.waves = k.data.waves;
  p.answer_limit = milliseconds(k.timeouts.step_prefill_ms);
  return p;
}

// The groups of ranks that share experts.
std::vector<expert_group_setup> expert_groups_of(const loaded_cluster& c) {
  const cluster_configuration& k = c.configuration;
  std::vector<expert_group_setup> groups;
  for (const rank_place& r : c.layout.ranks) {
    const worker_group_section& g = k.worker_group[r.group];
    if (g.expert_parallel <= 1)
      continue;
    if (r.ep_rank == 0) {
      expert_group_setup& s = groups.emplace_back();
      s.name = g.name + "." + std::to_string(r.ep_group);
      s.first = r.rank.value;
      s.window = k.eplb.window;
      s.migration.publish_interval_ms = k.eplb.publish_interval_ms;
      s.migration.copies_per_rank = k.eplb.copies_per_rank;
      s.migration.copy_timeout_ms = k.timeouts.migration_copy_ms;
      s.migration.max_sources = k.timeouts.migration_sources;
      s.migration.retry_ms = k.timeouts.request_ms;
      s.migration.slow_step = 1 + k.eplb.step_growth;
    }
    groups.back().node.push_back(static_cast<std::int32_t>(r.node));
  }
  return groups;
}

template <class Place, class Name>
const Place& place_named(const std::vector<Place>& places, const std::string& wanted, const char* flag,
                         const Name& name_of) {
  std::string known;
  for (const Place& p : places) {
    if (name_of(p) == wanted)
      return p;
    known += (known.empty() ? "" : ", ") + name_of(p);
  }
  throw config_error("command line", flag, wanted, "the configuration has none of that name", "one of: " + known);
}

} // namespace

int run_coordinator(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const process_place& place =
      place_named(c.layout.coordinators, "coordinator." + std::to_string(o.index), "--index", name_of_coordinator);
  coordinator_setup s;
  s.cluster = identity_of(c.configuration);
  s.toml = to_toml(c.configuration);
  s.at = {address_of(c.configuration.control.bind), static_cast<std::uint16_t>(place.control_port)};
  s.suspect = milliseconds(c.configuration.timeouts.suspect_ms);
  s.dead = milliseconds(c.configuration.timeouts.dead_ms);
  s.stop_limit = milliseconds(c.configuration.timeouts.stop_ms);
  s.name = name_of_coordinator(place);
  s.groups = expert_groups_of(c);
  const std::uint64_t incarnation = incarnation_of(o);
  s.votes = votes_of(c, place, incarnation);
  std::optional<own_record> record;
  coordinator_process p(s);
  record.emplace(c.state, s.name, incarnation, endpoint{s.at.host, p.port()}, s.cluster.configuration);
  spdlog::info("event=coordinator_up cluster={} at={}:{}", s.cluster.name, s.at.host, p.port());
  serve(signals, [&] { return p.shut_down(); });
  signals.release();
  return exit_ok;
}

int run_node(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  const process_place& place =
      place_named(c.layout.node_agents, o.name, "--name", [&](const process_place& p) { return k.node[p.node].name; });
  node_setup s;
  s.process = process_of(o, c, name_of_node_agent(k, place), place.node);
  s.at = {address_of(k.control.bind), static_cast<std::uint16_t>(place.control_port)};
  s.votes = {node_id(static_cast<std::uint32_t>(place.node)), lease_of(k),
             c.state->path() + "/lease." + s.process.node};
  for (const rank_place& r : c.layout.ranks)
    if (r.node == place.node)
      s.agent.workers.push_back(
          {name_of_rank(k, r), {own_path(), "worker", o.file.file, "--rank", std::to_string(r.rank.value)}});
  for (const std::string& set : o.file.set)
    for (auto& w : s.agent.workers)
      w.arguments.insert(w.arguments.end(), {"--set", set});
  s.agent.state = c.state;
  s.agent.restarts = {k.cluster.max_restarts, std::chrono::seconds(k.cluster.restart_window_s),
                      milliseconds(k.cluster.restart_backoff_ms), milliseconds(k.cluster.restart_backoff_max_ms)};
  s.agent.workers_die_too = !k.cluster.adopt;
  s.agent.stop_limit = milliseconds(k.timeouts.stop_ms);
  std::optional<own_record> record;
  const process_identity self = s.process;
  const std::string host = s.at.host;
  node_process p(std::move(s));
  record.emplace(c.state, self.name, self.incarnation, endpoint{host, p.port()}, self.cluster.configuration);
  serve(signals, [&] { return p.told_to_stop() || p.expelled(); });
  signals.release();
  if (const auto why = p.expelled()) {
    spdlog::error("event=node_expelled node={} why=\"{}\"", self.node, *why);
    return exit_internal;
  }
  return exit_ok;
}

int run_worker(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = load_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  const rank_place& place = place_named(c.layout.ranks, std::to_string(o.index), "--rank",
                                        [](const rank_place& r) { return std::to_string(r.rank.value); });
  worker_setup s;
  s.process = process_of(o, c, name_of_rank(k, place), place.node);
  s.rank = place.rank.value;
  s.at = {address_of(k.control.bind), static_cast<std::uint16_t>(place.control_port)};
  s.engine = options_of(k, k.worker_group[place.group]);
  s.engine.cp = 1; // a rank is a whole engine: contexts are not shared with other processes yet
  s.experts = experts_of(k, c.layout, place, s.process);
  reap_segments("troupe." + segment_part(k.cluster.name) + "." + segment_part(s.process.node) + ".");
  std::optional<own_record> record;
  worker_process p(s);
  record.emplace(c.state, s.process.name, s.process.incarnation, endpoint{s.at.host, p.port()},
                 s.process.cluster.configuration);
  spdlog::info("event=worker_up worker={} rank={} incarnation={} at={}:{}", s.process.name, s.rank,
               s.process.incarnation, s.at.host, p.port());
  serve(signals, [&] { return p.told_to_stop() || p.expelled(); });
  signals.release();
  if (const auto why = p.expelled()) {
    spdlog::error("event=worker_expelled worker={} why=\"{}\"", s.process.name, *why);
    return exit_internal;
  }
  return exit_ok;
}

} // namespace troupe
