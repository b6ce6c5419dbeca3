#include "actors/membership.hpp"
#include "actors/member.hpp"
#include "actors/steady_ms.hpp"
#include "cluster/certificates.hpp"
#include <algorithm>
#include <spdlog/spdlog.h>
#include <tuple>

namespace troupe {

namespace {

using self_ptr = membership_actor::stateful_pointer<membership_state>;

view view_of(const membership_state& st) {
  view v{st.term, st.mepoch, {}};
  for (const auto& [name, e] : st.members)
    v.members.push_back(e.known);
  return v;
}

bool gone(const membership_state::entry& e) {
  return is_over(e.known.state);
}

// Every group's coordinator hears which processes its ranks are.
void tell_groups(self_ptr self) {
  auto& st = state_of(self);
  for (const membership_setup::expert_group& g : st.setup.groups) {
    group_members m{std::vector<std::uint64_t>(g.ranks)};
    for (const auto& [name, e] : st.members)
      if (e.known.who.role == member_role::worker && !gone(e) && e.known.who.rank - g.first < g.ranks)
        m.incarnations[e.known.who.rank - g.first] = e.known.who.incarnation;
    tell(self, g.coordinator, std::move(m));
  }
}

// Its processes are another leader's from now on.
void step_down(self_ptr self) {
  auto& st = state_of(self);
  spdlog::warn("event=stands_by coordinator={} term={}", st.setup.name, st.term);
  for (auto& [name, e] : std::exchange(st.members, {}))
    if (e.process) {
      unwatch(self, st.watched, e.process);
      tell(self, e.process, stand_by{});
    }
  st.term = 0;
  tell_groups(self);
}

// Asked before everything that a leader does.
bool leads(self_ptr self) {
  auto& st = state_of(self);
  if (st.term != 0 && !st.stop_at && steady_ms() >= st.leads_until_ms) // a cluster that is being stopped has no other
    step_down(self);
  return st.term != 0;
}

void take_lease(self_ptr self, const lease_held& l) {
  auto& st = state_of(self);
  if (st.setup.term != 0)
    return;
  if (st.leadership == nullptr)
    st.leadership = caf::actor_cast<leadership_actor>(self->current_sender());
  if (leads(self) && l.term != st.term)
    step_down(self);
  st.leads_until_ms = l.until_ms;
  if (std::exchange(st.term, l.term) == l.term)
    return;
  st.mepoch = std::max(st.mepoch, l.mepoch);
  st.began = self->clock().now();
  spdlog::info("event=leads coordinator={} term={}", st.setup.name, st.term);
}

void announce(self_ptr self) {
  auto& st = state_of(self);
  ++st.mepoch;
  if (st.leadership)
    tell(self, st.leadership, epoch_note{st.mepoch});
  const view v = view_of(st);
  for (const auto& [name, e] : st.members)
    if (e.process)
      tell(self, e.process, v);
  tell_groups(self);
}

// What others say in its name is not heard.
bool from_itself(self_ptr self, const membership_state::entry& e) {
  return e.process && self->current_sender() == caf::actor_cast<caf::strong_actor_ptr>(e.process);
}

void set_state(self_ptr self, membership_state::entry& e, member_state to) {
  if (std::exchange(e.known.state, to) == to)
    return;
  if (is_over(to))
    state_of(self).ended.note(e.known.who.incarnation, is_client(e.known.who), steady_ms());
  if (to == member_state::left) // it ends at this moment: CAF 0.17 does not get over messages to a system that ends
    e.process = member_actor();
  announce(self);
  if (to == member_state::dead)
    e.process = member_actor();
}

membership_state::entry* find(membership_state& st, std::uint64_t incarnation) {
  for (auto& [name, e] : st.members)
    if (e.known.who.incarnation == incarnation)
      return &e;
  return nullptr;
}

// What a process has that others of the cluster have, but not the same; empty: nothing.
std::string other_model(const member& who, const member& there) {
  const std::string at = who.name + (who.node.empty() ? "" : " on node " + who.node),
                    there_at = there.name + " on node " + there.node;
  const auto differ = [&](const char* what, const std::string& own, const std::string& other, const char* remedy) {
    return at + " has other " + what + " (" + own + ") than " + there_at + " (" + other + "); " + remedy;
  };
  const model_identity &own = who.model, &other = there.model;
  if (!own.texts.empty() && own.texts != other.texts)
    return differ("config.json or tokenizer.json", own.texts, other.texts, "give all hosts the same model folder");
  if (!own.weights.empty() && own.weights != other.weights)
    return differ("weights", own.weights, other.weights, "give all hosts the same model folder");
  if (!own.numerics.empty() && own.numerics != other.numerics)
    return differ("numerics", own.numerics, other.numerics,
                  "give all worker groups the same device, roundings and yoco");
  if (!own.self_test.empty() && !other.self_test.empty() && own.self_test != other.self_test)
    return differ("results in its self-test", own.self_test, other.self_test,
                  "one of the two computes wrong: look at the hardware and libraries of its host");
  return {};
}

// Why a process is not taken in.
std::pair<ack_code, std::string> refusal(const membership_state& st, const member& who) {
  if (who.protocol != protocol_version)
    return {ack_code::version_mismatch, who.name + " speaks protocol " + std::to_string(who.protocol) +
                                            ", the cluster " + std::to_string(protocol_version) +
                                            "; run the same build everywhere"};
  if (who.build != st.setup.build)
    return {ack_code::version_mismatch, who.name + " is build " + who.build + ", the cluster is " + st.setup.build +
                                            "; run the same build everywhere"};
  if (who.configuration != st.setup.configuration)
    return {ack_code::digest_mismatch, who.name + " was started with configuration " + who.configuration +
                                           ", the cluster runs " + st.setup.configuration +
                                           "; start it with the cluster's file"};
  if (st.ended.knows(who.incarnation))
    return {ack_code::stale_epoch,
            who.name + " of incarnation " + std::to_string(who.incarnation) + " is held for dead; start it anew"};
  for (const auto& [name, e] : st.members)
    if (e.known.who.role == member_role::worker && !gone(e))
      if (const std::string why = other_model(who, e.known.who); !why.empty())
        return {ack_code::digest_mismatch, why};
  const auto at = st.members.find(who.name);
  if (at != st.members.end() && at->second.known.who.incarnation != who.incarnation && !gone(at->second))
    return {ack_code::busy, "another process is " + who.name + " already; stop it first"};
  return {ack_code::ok, {}};
}

// Clients, which TLS lets in, cannot be anything else.
std::pair<ack_code, std::string> unproven(const membership_state& st, const join& j) {
  if (st.setup.authority.empty() || is_client(j.who))
    return {ack_code::ok, {}};
  const status s = check_proof(st.setup.authority, j.who.node, {j.certificate, j.signature}, words_of(j.who));
  return s ? std::pair(ack_code::ok, std::string())
           : std::pair(ack_code::unknown, j.who.name + " is not taken for a process of node " + j.who.node + ": " +
                                              s.failure().message + "; give it the keys of its node (troupe keygen)");
}

cluster_status status_of(self_ptr self) {
  const auto& st = state_of(self);
  const auto uptime = std::chrono::duration_cast<std::chrono::milliseconds>(self->clock().now() - st.began);
  const bool led = st.term != 0;
  cluster_status s{led,
                   led ? st.setup.name : "",
                   st.term,
                   st.mepoch,
                   static_cast<std::uint64_t>(uptime.count()),
                   st.setup.configuration,
                   st.drain_since.has_value(),
                   {},
                   {}};
  if (led)
    s.groups = st.groups;
  for (const auto& [name, e] : st.members)
    s.members.push_back({e.known, e.progress, static_cast<std::uint64_t>(e.alive.silent_ms(steady_ms()))});
  return s;
}

void tell_to_end(self_ptr self, member_role role, bool now) {
  for (const auto& [name, e] : state_of(self).members)
    if (e.process && e.known.who.role == role)
      tell(self, e.process, shut_down{now});
}

// Gateways first, so that no request finds its worker gone; node agents wait for their workers.
void end_when_drained(self_ptr self) {
  auto& st = state_of(self);
  const bool drained = std::ranges::all_of(st.members, [](const auto& m) {
    return gone(m.second) || m.second.known.who.role != member_role::gateway || m.second.progress.drained;
  });
  const auto now = self->clock().now();
  if (!st.drain_since || st.stop_at ||
      (!drained && (!st.setup.drain_limit || now < *st.drain_since + *st.setup.drain_limit)))
    return;
  st.stop_at = now + st.setup.stop_limit;
  if (st.leadership) // nobody leads what is being stopped
    tell(self, st.leadership, lease_end{});
  for (const member_role role : {member_role::gateway, member_role::worker, member_role::node_agent})
    tell_to_end(self, role, true);
}

// What runs ends first, unless it is to be `now`, then everything.
void shut_all_down(self_ptr self, bool now) {
  auto& st = state_of(self);
  if (now)
    st.setup.drain_limit = std::chrono::milliseconds(0);
  if (!st.drain_since) {
    st.drain_since = self->clock().now();
    tell_to_end(self, member_role::gateway, false);
  }
  end_when_drained(self);
}

// Clients, which nobody can reach, end when they like.
void end_when_all_are_gone(self_ptr self) {
  auto& st = state_of(self);
  const bool all_gone =
      std::ranges::all_of(st.members, [](const auto& m) { return gone(m.second) || m.second.known.who.port == 0; });
  if (st.stop_at && (all_gone || self->clock().now() >= *st.stop_at) && st.setup.on_shut_down)
    std::exchange(st.setup.on_shut_down, nullptr)();
}

joined take_in(self_ptr self, const join& j) {
  auto& st = state_of(self);
  if (st.stop_at || (st.drain_since && j.who.role == member_role::gateway))
    return {ack_code::busy, "the cluster is being stopped", {}};
  auto [code, why] = unproven(st, j);
  if (code == ack_code::ok)
    std::tie(code, why) = refusal(st, j.who);
  if (code != ack_code::ok) {
    spdlog::warn("event=join_refused member={} node={} incarnation={} why=\"{}\"", j.who.name, j.who.node,
                 j.who.incarnation, why);
    return {code, why, {}};
  }
  if (!leads(self))
    return {ack_code::wrong_state, st.setup.name + " stands by", {}};
  membership_state::entry& e = st.members[j.who.name];
  e.known = {j.who, j.able ? member_state::active : member_state::warming};
  e.process = caf::actor_cast<member_actor>(self->current_sender());
  e.alive = liveness(steady_ms());
  watch(self, st.watched, e.process, [=, incarnation = j.who.incarnation](const caf::error&) {
    if (!leads(self))
      return;
    if (auto* m = find(state_of(self), incarnation); m != nullptr && !gone(*m))
      set_state(self, *m, member_state::dead);
  });
  announce(self);
  return {ack_code::ok, {}, view_of(st)};
}

void hear(self_ptr self, const hb& h) {
  auto& st = state_of(self);
  auto* e = find(st, h.incarnation);
  if (!leads(self) || e == nullptr || gone(*e) || !from_itself(self, *e))
    return;
  const bool has_work = h.running + h.waiting > 0 && h.paused == 0; // a slow gateway is no fault of the worker
  e->alive.hear(h.steps, has_work, h.able, steady_ms());
  e->progress = h;
  if (e->known.state == member_state::suspect || e->known.state == member_state::active ||
      e->known.state == member_state::warming)
    set_state(self, *e, h.able ? member_state::active : member_state::warming);
}

// How long a step may take depends on what an engine is for.
liveness_limits limits_of(const membership_state& st, const membership_state::entry& e) {
  liveness_limits l = st.setup.limits;
  if (e.known.who.role == member_role::worker && e.known.who.rank < st.setup.stuck_ms.size())
    l.stuck_ms = st.setup.stuck_ms[e.known.who.rank];
  return l;
}

void look_for_silent(self_ptr self) {
  auto& st = state_of(self);
  const std::int64_t now = steady_ms();
  leads(self);
  for (auto& [name, e] : st.members) {
    if (gone(e))
      continue;
    switch (e.alive.judge(limits_of(st, e), now)) {
    case liveness::verdict::well:
      break;
    case liveness::verdict::suspect:
      set_state(self, e, member_state::suspect);
      break;
    case liveness::verdict::dead:
      spdlog::error("event=held_for_dead member={} silent_ms={}", name, e.alive.silent_ms(now));
      set_state(self, e, member_state::dead);
      break;
    case liveness::verdict::stuck:
      spdlog::error("event=held_for_dead member={} without_a_step_ms={} steps={}", name, e.alive.still_ms(now),
                    e.progress.steps);
      set_state(self, e, member_state::dead);
      break;
    }
  }
  for (const std::uint64_t who : st.ended.take_forgotten(now))
    std::erase_if(st.members, [&](const auto& m) { return m.second.known.who.incarnation == who; });
  end_when_drained(self);
  end_when_all_are_gone(self);
  tell_later(self, st.setup.tick, tick{});
}

} // namespace

membership_actor::behavior_type membership(self_ptr self, const membership_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  st.began = self->clock().now();
  st.term = setup.term;
  if (setup.term != 0)
    st.leads_until_ms = std::numeric_limits<std::int64_t>::max();
  tell_later(self, setup.tick, tick{});
  return {
      [=](const join& j) { return take_in(self, j); },
      [=](const leave& l) {
        if (auto* e = find(state_of(self), l.incarnation); e != nullptr && (gone(*e) || from_itself(self, *e)))
          set_state(self, *e, member_state::left);
      },
      [=](const hb& h) { hear(self, h); },
      [=](const lease_held& l) { take_lease(self, l); },
      [=](const status_query&) { return status_of(self); },
      [=](const configuration_query&) {
        return configuration_text{state_of(self).setup.toml, state_of(self).setup.configuration};
      },
      [=](const expert_group_query& q) {
        expert_group_info i;
        if (leads(self))
          for (const auto& g : state_of(self).setup.groups)
            if (q.rank - g.first < g.ranks)
              i.group = g.coordinator;
        return i;
      },
      [=](const expert_group_report& r) {
        auto& known = state_of(self).groups;
        const auto at = std::ranges::find(known, r.first, &expert_group_report::first);
        (at == known.end() ? known.emplace_back() : *at) = r;
      },
      [=](const shut_down& s) { shut_all_down(self, s.now); },
      [=](const tick&) { look_for_silent(self); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
