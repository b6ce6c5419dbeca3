// troupe status: who is in the cluster and what it does.
#include "cli/cluster_file.hpp"
#include "cli/interrupts.hpp"
#include "cli/verbs.hpp"
#include "cluster/view_change.hpp"
#include <array>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> roles{"node", "worker", "gateway"};
constexpr std::array<const char*, 7> states{"joining", "warming", "active", "draining", "left", "suspect", "dead"};

std::string role_of(const member_report& m) {
  return roles.at(static_cast<std::size_t>(m.known.who.role));
}
std::string state_of(const member_report& m) {
  return states.at(static_cast<std::size_t>(m.known.state));
}

// Reasons why the cluster is less than its configuration; empty: it is whole.
std::vector<std::string> complaints(const cluster_status& s, const loaded_cluster& c) {
  std::vector<std::string> all;
  const auto active = [&](const std::string& name) {
    return std::ranges::any_of(s.members, [&](const member_report& m) {
      return m.known.who.name == name && m.known.state == member_state::active;
    });
  };
  for (const rank_place& r : c.layout.ranks)
    if (const std::string name = name_of_rank(c.configuration, r); !active(name))
      all.push_back(name + " is not active");
  for (const process_place& p : c.layout.node_agents)
    if (const std::string name = name_of_node_agent(c.configuration, p); !active(name))
      all.push_back(name + " is not active");
  for (const process_place& p : c.layout.gateways)
    if (const std::string name = name_of_gateway(p); !active(name))
      all.push_back(name + " is not active");
  for (const expert_group_report& g : s.groups)
    if (g.state.starts_with("waits"))
      all.push_back("expert group " + g.name + " " + g.state);
  for (const member_report& m : s.members)
    if (!is_over(m.known.state))
      for (const worker_end& e : m.progress.given_up)
        all.push_back("not started again: " + e.name + ": " + e.how);
  if (s.stopping)
    all.emplace_back("the cluster is being stopped");
  return all;
}

// Of a worker; null: this configuration has no such rank.
const rank_place* place_of(const member_report& m, const cluster_layout& layout) {
  const member& who = m.known.who;
  return who.role == member_role::worker && who.rank < layout.ranks.size() ? &layout.ranks[who.rank] : nullptr;
}

// unavailable: no request can be computed now.
const char* word_of(const cluster_status& s, const loaded_cluster& c, const std::vector<std::string>& why) {
  const bool serves = s.leads && std::ranges::any_of(s.members, [&](const member_report& m) {
                        const rank_place* place = place_of(m, c.layout);
                        return place != nullptr && m.known.state == member_state::active && place->cp_rank == 0 &&
                               c.configuration.worker_group[place->group].engine != engine_kind::prompt;
                      });
  return !serves ? "unavailable" : why.empty() ? "ok" : "degraded";
}

// Of a worker that has handed prompts over, or taken them.
bool hands_over(const handoff_counters& h) {
  return h.sending + h.receiving + h.sent + h.received + h.failed > 0;
}

double mean_tail_ms(const handoff_counters& h) {
  return h.sent == 0 ? 0 : h.tail_ms_sum / static_cast<double>(h.sent);
}

json json_of(const handoff_counters& h) {
  return {{"leases", {{"sending", h.sending}, {"receiving", h.receiving}}},
          {"sent", h.sent},
          {"received", h.received},
          {"failed", h.failed},
          {"expired", h.expired},
          {"sent_bytes", h.sent_bytes},
          {"received_bytes", h.received_bytes},
          {"tail_bytes_max", h.tail_bytes_max},
          {"tail_ms_mean", mean_tail_ms(h)},
          {"tail_ms_max", h.tail_ms_max}};
}

// Of a worker that has verified drafts.
bool speculates(const member_report& m) {
  return m.progress.speculation.drafts > 0;
}

bool has_reported(const spec_rank_report& r) {
  return r.round > 0;
}

double share(double part, std::uint64_t of) {
  return of == 0 ? 0 : part / static_cast<double>(of);
}

double mean_confidence(const reliability& position) {
  double sum = 0;
  for (const reliability_bin& b : position.bin)
    sum += b.confidence;
  return share(sum, position.drafts());
}

double accepted_share(const reliability& position) {
  return share(static_cast<double>(position.accepted()), position.drafts());
}

// Bins that have drafts.
json curve_of(const reliability& position) {
  json bins = json::array();
  constexpr double all = reliability::bins;
  for (std::size_t i = 0; i < reliability::bins; ++i)
    if (const reliability_bin& b = position.bin[i]; b.drafts > 0)
      bins.push_back({{"from", static_cast<double>(i) / all},
                      {"to", static_cast<double>(i + 1) / all},
                      {"drafts", b.drafts},
                      {"confidence", share(b.confidence, b.drafts)},
                      {"accepted", share(static_cast<double>(b.accepted), b.drafts)}});
  return bins;
}

json json_of(const spec_report& r) {
  json positions = json::array();
  for (const reliability& p : r.positions)
    positions.push_back(
        {{"drafts", p.drafts()},
         {"confidence", mean_confidence(p)},
         {"accepted", accepted_share(p)},
         {"calibration_error", p.error()},
         {"suggested_temperature", positions.size() < r.temperatures.size() ? r.temperatures[positions.size()] : 1},
         {"curve", curve_of(p)}});
  json engines = json::array(); // that have this verifier
  for (std::size_t i = 0; i < r.ranks.size(); ++i)
    if (const spec_rank_report& e = r.ranks[i]; has_reported(e))
      engines.push_back({{"rank", i}, {"rounds", e.round}, {"sequences", e.sequences}, {"rows", e.total_q}});
  return {{"drafts", r.drafts},         {"accepted", r.accepted}, {"tokens_per_step", r.tokens_per_step},
          {"not_finite", r.not_finite}, {"useless", r.useless},   {"budgets", r.decisions},
          {"late_loads", r.late},       {"engines", engines},     {"positions", positions}};
}

json groups_of(const cluster_status& s) {
  json groups = json::array();
  for (const expert_group_report& g : s.groups)
    groups.push_back({{"name", g.name},
                      {"first_rank", g.first},
                      {"ranks", g.ranks},
                      {"state", g.state},
                      {"pver", g.pver},
                      {"layers", g.layers},
                      {"experts", g.experts},
                      {"slots_per_rank", g.slots_per_rank},
                      {"balancedness", g.balancedness},
                      {"steps_seen", g.steps_seen},
                      {"moved", g.moved},
                      {"failed", g.failed},
                      {"recovered", g.recovered}});
  return groups;
}

json json_of(const cluster_status& s, const loaded_cluster& c, const std::vector<std::string>& why) {
  json members = json::array();
  for (const member_report& m : s.members) {
    const rank_place* place = place_of(m, c.layout);
    members.push_back({{"name", m.known.who.name},
                       {"role", role_of(m)},
                       {"state", state_of(m)},
                       {"node", m.known.who.node},
                       {"rank", m.known.who.role == member_role::worker ? json(m.known.who.rank) : json()},
                       {"engine", place ? json(place->engine) : json()},
                       {"cp_rank", place ? json(place->cp_rank) : json()},
                       {"incarnation", m.known.who.incarnation},
                       {"at", to_string(endpoint{m.known.who.host, m.known.who.port})},
                       {"silent_ms", m.silent_ms},
                       {"steps", m.progress.steps},
                       {"running", m.progress.running},
                       {"waiting", m.progress.waiting},
                       {"paused", m.progress.paused},
                       {"free_blocks", m.progress.free_blocks},
                       {"waits_for", m.progress.waits_for.empty() ? json() : json(m.progress.waits_for)},
                       {"view", m.progress.mepoch},
                       {"refused", m.progress.refused},
                       {"handoffs", hands_over(m.progress.handoffs) ? json_of(m.progress.handoffs) : json()},
                       {"speculation", speculates(m) ? json_of(m.progress.speculation) : json()}});
  }
  return {{"status", word_of(s, c, why)}, {"reasons", why},
          {"leader", s.leader},           {"term", s.term},
          {"mepoch", s.mepoch},           {"refused", s.refused},
          {"uptime_ms", s.uptime_ms},     {"configuration", s.configuration},
          {"members", members},           {"expert_groups", groups_of(s)}};
}

// Engines whose ranks are several processes.
std::string engines_text(const loaded_cluster& c) {
  std::string out;
  for (const rank_place& r : c.layout.ranks) {
    const worker_group_section& g = c.configuration.worker_group[r.group];
    if (g.context_parallel > 1 && r.cp_rank == 0)
      out += fmt::format("engine {} of {}: ranks {} to {} compute prompts together, {} takes requests\n", r.engine,
                         g.name, r.rank.value, r.rank.value + static_cast<std::uint32_t>(g.context_parallel) - 1,
                         name_of_rank(c.configuration, r));
  }
  return out;
}

std::string handoffs_text(const cluster_status& s) {
  const auto hands = [](const member_report& m) { return hands_over(m.progress.handoffs); };
  if (std::ranges::none_of(s.members, hands))
    return {};
  std::string out = fmt::format("{:<16} {:>8} {:>8} {:>8} {:>8} {:>12} {:>22} {:>22}\n", "prompts", "leases", "sent",
                                "received", "failed", "bytes", "tail ms, mean and most", "most bytes of a tail");
  for (const member_report& m : s.members)
    if (hands(m)) {
      const handoff_counters& h = m.progress.handoffs;
      out += fmt::format("{:<16} {:>8} {:>8} {:>8} {:>8} {:>12}", m.known.who.name, h.sending + h.receiving, h.sent,
                         h.received, h.failed, h.sent_bytes + h.received_bytes);
      if (h.sent > 0)
        out += fmt::format(" {:>22} {:>22}", fmt::format("{:.2f} {:.2f}", mean_tail_ms(h), h.tail_ms_max),
                           h.tail_bytes_max);
      out += "\n";
    }
  return out;
}

std::string speculation_text(const cluster_status& s) {
  if (std::ranges::none_of(s.members, speculates))
    return {};
  std::string out = fmt::format("{:<16} {:>10} {:>10} {:>11} {:>10}  {}\n", "drafts", "verified", "accepted",
                                "tokens/step", "not finite", "accepted/confidence by position");
  for (const member_report& m : s.members)
    if (speculates(m)) {
      const spec_report& r = m.progress.speculation;
      out += fmt::format("{:<16} {:>10} {:>10} {:>11.2f} {:>10} ", m.known.who.name, r.drafts, r.accepted,
                         r.tokens_per_step, r.not_finite);
      for (const reliability& p : r.positions)
        out += fmt::format(" {:.2f}/{:.2f}", accepted_share(p), mean_confidence(p));
      if (const auto engines = std::ranges::count_if(r.ranks, has_reported); engines > 1)
        out += fmt::format("  of {} engines", engines);
      out += r.useless ? "  none of the newest was right\n" : "\n";
    }
  return out;
}

std::string text_of(const cluster_status& s, const loaded_cluster& c, const std::vector<std::string>& why) {
  std::string out = fmt::format("{}: {}", c.configuration.cluster.name, word_of(s, c, why));
  if (s.leads)
    out += fmt::format(", led by {} in term {}, membership epoch {}, up {:.1f} s", s.leader, s.term,
                       s.mepoch - epochs_before(s.term), static_cast<double>(s.uptime_ms) / 1000);
  out += "\n";
  for (const std::string& w : why)
    out += "  " + w + "\n";
  if (!s.leads)
    return out;
  out += fmt::format("{:<16} {:<8} {:<8} {:>5} {:>8} {:>8} {:>8} {:>12} {:>9}\n", "name", "role", "state", "rank",
                     "steps", "running", "waiting", "free blocks", "waits for");
  for (const member_report& m : s.members) {
    const bool worker = m.known.who.role == member_role::worker;
    out += fmt::format("{:<16} {:<8} {:<8}", m.known.who.name, role_of(m), state_of(m));
    if (worker)
      out += fmt::format(" {:>5} {:>8} {:>8} {:>8} {:>12} {:>9}", m.known.who.rank, m.progress.steps,
                         m.progress.running, m.progress.waiting, m.progress.free_blocks,
                         m.progress.waits_for.empty() ? "-" : m.progress.waits_for);
    out += "\n";
  }
  out += engines_text(c);
  for (const expert_group_report& g : s.groups)
    out += fmt::format("expert group {}: ranks {} to {}, {}, pver {}, {} experts in {} slots of {} layers, "
                       "balancedness {:.3f} over {} steps, {} moved\n",
                       g.name, g.first, g.first + static_cast<std::uint32_t>(g.ranks) - 1, g.state, g.pver, g.experts,
                       g.ranks * g.slots_per_rank, g.layers, g.balancedness, g.steps_seen, g.moved);
  return out + speculation_text(s) + handoffs_text(s);
}

} // namespace

int run_status(const status_options& o) {
  interrupts signals;
  const loaded_cluster c = load_running(o.file);
  coordinator_client client(
      identity_of(c.configuration, key_name_for(c.configuration, key_role::observer), c.layout, *c.state));
  for (;;) {
    const auto heard = client.status();
    const cluster_status s = heard ? *heard : cluster_status{};
    const auto why = heard ? complaints(s, c) : std::vector{heard.failure().message};
    if (o.watch && !o.json && ::isatty(STDOUT_FILENO) == 1)
      std::cout << "\033[H\033[J";
    std::cout << (o.json ? json_of(s, c, why).dump() + "\n" : text_of(s, c, why)) << std::flush;
    if (!o.watch)
      return !heard ? exit_no_leader : why.empty() ? exit_ok : exit_degraded;
    signals.wait({}, 1000);
    if (signals.count() > 0)
      return exit_ok;
  }
}

} // namespace troupe
