// troupe coordinator, node, worker, gateway, remote: one process of a cluster each, which troupe launch starts; by hand
// with launcher manual.
#include "actors/coordinator_process.hpp"
#include "actors/gateway_process.hpp"
#include "actors/node_process.hpp"
#include "actors/worker_process.hpp"
#include "cli/batch_ledger.hpp"
#include "cli/cluster_file.hpp"
#include "cli/interrupts.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include "cluster/child_process.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/name_pattern.hpp"
#include "cluster/refused_bytes.hpp"
#include "cluster/shared_memory.hpp"
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace troupe {

namespace {

using std::chrono::milliseconds;

std::string address_of(const std::string& bind, const char* key = "control.bind") {
  const auto a = resolved_address(bind);
  if (!a)
    throw config_error("", key, bind, a.failure().message, "name an address or an interface of this host");
  return *a;
}

// Whether the process that sent the configuration on standard input (troupe remote) has let go.
bool let_go() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  char byte = 0;
  return ::poll(&in, 1, 0) > 0 && ::read(STDIN_FILENO, &byte, 1) <= 0;
}

// Until a signal comes or there is nothing left to do.
template <class Finished> void serve(interrupts& signals, const cluster_process_options& o, const Finished& finished) {
  on_refused_bytes([](const refused_bytes& r) {
    spdlog::warn("event=bytes_refused at={} why=\"{}\" others={}", r.at, r.why, r.since);
  });
  const bool held = o.file.file == "-";
  while (signals.count() == 0 && !finished() && !(held && let_go()))
    signals.wait({}, 50);
}

std::uint64_t incarnation_of(const cluster_process_options& o) {
  return o.incarnation != 0 ? o.incarnation : mint_incarnation();
}

process_identity process_of(const cluster_process_options& o, const loaded_cluster& c, const std::string& name,
                            std::size_t node) {
  const cluster_configuration& k = c.configuration;
  return {identity_of(k, k.node[node].name, c.layout, *c.state),
          name,
          k.node[node].name,
          incarnation_of(o),
          milliseconds(k.timeouts.hb_ms),
          std::chrono::seconds(k.timeouts.headless_max_s),
          std::chrono::seconds(k.cluster.orphan_exit_s),
          {}};
}

// Likewise, of a process that a node agent of this host has started.
process_identity process_of_agent(const cluster_process_options& o, const loaded_cluster& c, const std::string& name,
                                  std::size_t node) {
  process_identity p = process_of(o, c, name, node);
  const auto agent = std::ranges::find(c.layout.node_agents, node, &process_place::node);
  p.agent_there = [state = c.state, agent = name_of_node_agent(c.configuration, *agent)] {
    return state->read(agent).has_value();
  };
  return p;
}

lease_settings lease_of(const cluster_configuration& k) {
  return {k.timeouts.lease_ms, k.timeouts.lease_renew_ms, k.timeouts.lease_margin_ms};
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
  p.copy_bytes_per_s = 1e6 * k.eplb.migration_bandwidth_mb_s;
  return p;
}

// The other ranks of its engine; null: there are none.
std::shared_ptr<context_part> ranks_of(const cluster_configuration& k, const cluster_layout& layout,
                                       const rank_place& place, const process_identity& process) {
  context_place p;
  p.ranks = k.worker_group[place.group].context_parallel;
  if (p.ranks <= 1)
    return nullptr;
  p.cluster = k.cluster.name;
  p.node = k.node[place.node].name;
  p.incarnation = process.incarnation;
  p.first = place.rank.value - static_cast<std::uint32_t>(place.cp_rank);
  p.rank = place.cp_rank;
  p.limit = milliseconds(k.timeouts.step_prefill_ms);
  for (std::int32_t r = 0; r < p.ranks; ++r)
    p.nodes.push_back(layout.ranks[p.first + static_cast<std::size_t>(r)].node);
  if (p.on_several_nodes())
    p.tcp_address = address_of(k.data.bind, "data.bind");
  return std::make_shared<context_part>(p);
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

// Waits for the rank that leads the engine of this one, and says so now and then. False: told to end before.
bool joined_engine(context_part& ranks, interrupts& signals, const cluster_process_options& o,
                   const cluster_identity& cluster) {
  using clock = std::chrono::steady_clock;
  constexpr auto ask_every = milliseconds(250), say_every = milliseconds(5000);
  bool joined = false;
  auto ask = clock::now(), say = ask + say_every;
  std::optional<coordinator_client> coordinator;
  if (ranks.place().on_several_nodes())
    coordinator.emplace(cluster);
  serve(signals, o, [&] {
    const auto now = clock::now();
    if (now >= say) {
      spdlog::info("event=waiting_for_rank0 rank={} engine_of={}", ranks.place().rank, ranks.place().first);
      say = now + say_every;
    }
    if (coordinator && now < ask)
      return false;
    ask = now + ask_every;
    std::vector<member_entry> known;
    if (coordinator)
      if (const auto s = coordinator->status())
        for (const member_report& m : s->members)
          known.push_back(m.known);
    return joined = ranks.join(known);
  });
  return joined;
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

namespace {

struct held_process {
  std::string name, host;
  std::vector<std::string> arguments; // behind "troupe"
};

} // namespace

int run_coordinator(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = enter_cluster(o.file);
  const process_place& place =
      place_named(c.layout.coordinators, "coordinator." + std::to_string(o.index), "--index", name_of_coordinator);
  coordinator_setup s;
  s.cluster = identity_of(c.configuration, c.configuration.node[place.node].name);
  s.toml = to_toml(c.configuration);
  s.at = {address_of(c.configuration.control.bind), static_cast<std::uint16_t>(place.control_port)};
  const timeouts_section& t = c.configuration.timeouts;
  // A prompt's step is the longest; thrice that, and nobody is slow any more (cluster.md §3.4), who had a CPU
  // (liveness).
  s.limits = {t.suspect_ms, t.dead_ms, std::int64_t{3} * std::max(t.step_decode_ms, t.step_prefill_ms)};
  s.views.prepare_ms = t.prepare_ms;
  s.collect_ms = t.collect_ms;
  for (const rank_place& r : c.layout.ranks)
    s.stuck_ms.push_back(c.configuration.worker_group[r.group].engine == engine_kind::completion
                             ? std::int64_t{3} * t.step_decode_ms
                             : s.limits.stuck_ms);
  if (t.drain.ms)
    s.drain_limit = milliseconds(*t.drain.ms);
  s.stop_limit = milliseconds(t.stop_ms);
  s.name = name_of_coordinator(place);
  s.groups = expert_groups_of(c);
  const std::uint64_t incarnation = incarnation_of(o);
  s.votes = votes_of(c, place, incarnation);
  own_record::check_free(*c.state, s.name);
  std::optional<own_record> record;
  coordinator_process p(s);
  record.emplace(c.state, s.name, incarnation, endpoint{s.at.host, p.port()}, s.cluster.configuration);
  spdlog::info("event=coordinator_up cluster={} at={}:{}", s.cluster.name, s.at.host, p.port());
  serve(signals, o, [&] { return p.shut_down(); });
  signals.release();
  return exit_ok;
}

int run_node(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = enter_cluster(o.file);
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
          {name_of_rank(k, r), {own_path(), "worker", c.file.file, "--rank", std::to_string(r.rank.value)}});
  for (const process_place& p : c.layout.gateways)
    if (p.node == place.node)
      s.agent.workers.push_back(
          {name_of_gateway(p), {own_path(), "gateway", c.file.file, "--index", std::to_string(p.index)}});
  for (const std::string& set : c.file.set)
    for (auto& w : s.agent.workers)
      w.arguments.insert(w.arguments.end(), {"--set", set});
  s.agent.state = c.state;
  s.agent.configuration = s.process.cluster.configuration;
  s.agent.restarts = {k.cluster.max_restarts, std::chrono::seconds(k.cluster.restart_window_s),
                      milliseconds(k.cluster.restart_backoff_ms), milliseconds(k.cluster.restart_backoff_max_ms)};
  s.agent.workers_die_too = !k.cluster.adopt;
  s.agent.stop_limit = milliseconds(k.timeouts.stop_ms);
  std::optional<own_record> record;
  const process_identity self = s.process;
  const std::string host = s.at.host;
  own_record::check_free(*c.state, self.name);
  if (self.cluster.tls)
    admit_only(key_role::node); // coordinators ask for its vote, and nobody else has to do with it
  node_process p(std::move(s));
  record.emplace(c.state, self.name, self.incarnation, endpoint{host, p.port()}, self.cluster.configuration);
  serve(signals, o, [&] { return p.told_to_stop() || p.expelled(); });
  signals.release();
  if (const auto why = p.expelled()) {
    spdlog::error("event=node_expelled node={} why=\"{}\"", self.node, *why);
    return exit_internal;
  }
  return exit_ok;
}

int run_worker(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = enter_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  const rank_place& place = place_named(c.layout.ranks, std::to_string(o.index), "--rank",
                                        [](const rank_place& r) { return std::to_string(r.rank.value); });
  worker_setup s;
  s.process = process_of_agent(o, c, name_of_rank(k, place), place.node);
  if (s.process.cluster.tls)
    admit_only(key_role::client);
  s.rank = place.rank.value;
  s.at = {address_of(k.control.bind), static_cast<std::uint16_t>(place.control_port)};
  s.engine = options_of(k, k.worker_group[place.group]);
  s.kind = k.worker_group[place.group].engine;
  s.unacked_tokens = k.gateway.unacked_tokens;
  s.kv_watermark = k.gateway.kv_watermark;
  for (const rank_place& r : c.layout.ranks)
    if (k.worker_group[r.group].engine == engine_kind::prompt && r.cp_rank == 0)
      s.handoffs.senders.push_back({r.rank.value, k.node[r.node].name});
  s.handoffs.shared_memory = k.data.intra_host == host_carrier::shm;
  s.handoffs.several_nodes = k.node.size() > 1;
  s.handoffs.at = {address_of(k.data.bind), static_cast<std::uint16_t>(place.data_port)};
  s.handoffs.times = {k.timeouts.kv_lease_ms, k.timeouts.kv_renew_ms, k.timeouts.handoff_ms};
  s.handoffs.credit_bytes = static_cast<std::size_t>(k.data.kv_credit_mib) << 20;
  s.experts = experts_of(k, c.layout, place, s.process);
  s.ranks = ranks_of(k, c.layout, place, s.process);
  reap_segments(segment_prefix(k.cluster.name, s.process.node));
  own_record::check_free(*c.state, s.process.name);
  if (s.ranks && !s.ranks->leads() && !joined_engine(*s.ranks, signals, o, s.process.cluster))
    return exit_ok;
  std::optional<own_record> record;
  worker_process p(s);
  record.emplace(c.state, s.process.name, s.process.incarnation, endpoint{s.at.host, p.port()},
                 s.process.cluster.configuration);
  spdlog::info("event=worker_up worker={} rank={} incarnation={} at={}:{}", s.process.name, s.rank,
               s.process.incarnation, s.at.host, p.port());
  serve(signals, o, [&] { return p.told_to_stop() || p.expelled(); });
  signals.release();
  if (const auto why = p.expelled(); why && !p.told_to_stop()) {
    spdlog::error("event=worker_expelled worker={} why=\"{}\"", s.process.name, *why);
    return exit_internal;
  }
  return exit_ok;
}

int run_gateway(const cluster_process_options& o) {
  interrupts signals;
  const loaded_cluster c = enter_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  if (c.layout.gateways.empty())
    throw config_error(o.file.file, "gateway.count", "0", "the cluster has no gateway", "give 1 or more");
  const process_place& place =
      place_named(c.layout.gateways, "gateway." + std::to_string(o.index), "--index", name_of_gateway);
  gateway_process_setup s;
  s.process = process_of_agent(o, c, name_of_gateway(place), place.node);
  if (s.process.cluster.tls)
    admit_only(key_role::client);
  s.at = {address_of(k.gateway.bind, "gateway.bind"), static_cast<std::uint16_t>(place.port)};
  s.source = {k.model.path,
              k.model.seed,
              nullptr,
              true,
              std::chrono::seconds(k.cluster.join_timeout_s),
              static_cast<std::uint32_t>(k.gateway.max_attempts),
              s.process.cluster.unacked_messages,
              engine_workers_of(c)};
  s.limits.requests = k.gateway.queue_requests;
  s.limits.tokens = k.gateway.queue_tokens;
  own_record::check_free(*c.state, s.process.name);
  if (k.ledger.mode == ledger_mode::disk)
    s.source.ledger = open_gateway_ledger(c.state->ledger_file(s.process.name), k.ledger);
  std::optional<own_record> record;
  gateway_process p(s);
  s.source.ledger.reset(); // its keeper's alone
  record.emplace(c.state, s.process.name, s.process.incarnation, endpoint{s.at.host, p.port()},
                 s.process.cluster.configuration);
  spdlog::info("event=gateway_up gateway={} incarnation={} at={}:{}", s.process.name, s.process.incarnation, s.at.host,
               p.port());
  serve(signals, o, [&] { return p.told_to_stop() || p.expelled(); });
  signals.release();
  if (const auto why = p.expelled(); why && !p.told_to_stop()) {
    spdlog::error("event=gateway_expelled gateway={} why=\"{}\"", s.process.name, *why);
    return exit_internal;
  }
  return exit_ok;
}

// Holds a coordinator or node agent on another host: it ends when this process does.
int run_remote(const remote_options& o) {
  interrupts signals;
  const loaded_cluster c = enter_cluster(o.file);
  const cluster_configuration& k = c.configuration;
  std::vector<held_process> all;
  for (const process_place& p : c.layout.coordinators)
    all.push_back(
        {name_of_coordinator(p), k.node[p.node].host, {"coordinator", "-", "--index", std::to_string(p.index)}});
  for (const process_place& p : c.layout.node_agents)
    all.push_back({name_of_node_agent(k, p), k.node[p.node].host, {"node", "-", "--name", k.node[p.node].name}});
  const held_process& held = place_named(all, o.process, "PROCESS", [](const held_process& h) { return h.name; });
  const own_record record(c.state, "remote." + held.name, mint_incarnation(), {held.host, 0}, configuration_hash(k));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw config_error("", "ssh", "", "there is no pipe for it", "raise the limit on open files (ulimit -n)");
  child_process::command command{{"/usr/bin/env", "ssh", "-o", "BatchMode=yes", held.host, "troupe"},
                                 c.state->log_file(held.name, mint_incarnation()),
                                 true,
                                 ends[0]};
  command.arguments.insert(command.arguments.end(), held.arguments.begin(), held.arguments.end());
  auto ssh = child_process::start(command);
  ::close(ends[0]);
  if (!ssh)
    throw config_error("", "ssh", "", ssh.failure().message, "see the message");
  const std::string text = sent_configuration(to_toml(k));
  std::signal(SIGPIPE, SIG_IGN);
  const bool sent = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
  while (sent && ssh->running() && signals.count() == 0)
    signals.wait({}, 50);
  ::close(ends[1]);
  const auto last = std::chrono::steady_clock::now() + milliseconds(k.timeouts.stop_ms);
  while (ssh->running() && std::chrono::steady_clock::now() < last)
    signals.wait({}, 20);
  if (ssh->running())
    ssh->signal(SIGKILL);
  signals.release();
  const int code = ssh->exit_code().value_or(exit_internal);
  if (code != exit_ok)
    spdlog::error("event=remote_ended process={} host={} status=\"{}\" log={}/log", held.name, held.host,
                  ssh->exit_text(), c.state->path());
  return code;
}

} // namespace troupe
