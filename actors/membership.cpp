#include "actors/membership.hpp"
#include "actors/member.hpp"
#include "actors/steady_ms.hpp"
#include "cluster/orders.hpp"
#include <algorithm>
#include <spdlog/spdlog.h>
#include <tuple>

namespace troupe {

namespace {

using self_ptr = membership_actor::stateful_pointer<membership_state>;

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
  st.views.lead(0);
  st.awaited.clear();
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
  st.views.lead(l.term);
  st.views.raise(l.mepoch);
  st.collect_until_ms = steady_ms() + st.setup.collect_ms;
  st.began = self->clock().now();
  spdlog::info("event=leads coordinator={} term={}", st.setup.name, st.term);
}

membership_state::entry* find(membership_state& st, std::uint64_t incarnation) {
  for (auto& [name, e] : st.members)
    if (e.known.who.incarnation == incarnation)
      return &e;
  return nullptr;
}

// ---- views

// Those that work with one another agree on every view. Node agents and clients only hear of it, so do silent ones, for
// whom nobody waits.
bool prepares(const membership_state::entry& e) {
  return e.process && !gone(e) && e.known.state != member_state::suspect &&
         e.known.who.role != member_role::node_agent && !is_client(e.known.who);
}

void carry_out(self_ptr self, const view_leader<view>::orders& orders);

void propose(self_ptr self) {
  auto& st = state_of(self);
  const bool collects = !st.awaited.empty() && steady_ms() < st.collect_until_ms;
  if (!st.views.wants() || collects || st.stop_at) // nobody works by another view of what ends
    return;
  view next{st.term, st.views.next(), {}};
  view_leader<view>::members asked, others;
  for (auto& [name, e] : st.members) {
    if (e.known.since == 0 || e.known.since > std::max(st.views.committed().mepoch, epochs_before(st.term)))
      e.known.since = next.mepoch;
    next.members.push_back(e.known);
    if (e.process)
      (prepares(e) ? asked : others).insert(e.known.who.incarnation);
  }
  view_leader<view>::orders out;
  st.views.propose(std::move(next), std::move(asked), std::move(others), steady_ms(), out);
  carry_out(self, out);
}

void ask_to_prepare(self_ptr self, const member_actor& process, std::uint64_t who) {
  auto& st = state_of(self);
  ask(self, process, std::chrono::milliseconds(st.setup.views.prepare_ms), prep_view{st.views.proposed()})
      .then(
          [=, mepoch = st.views.proposed().mepoch](const ack& a) {
            if (!leads(self))
              return;
            view_leader<view>::orders out;
            if (a.code == ack_code::ok)
              state_of(self).views.prepared(who, mepoch, out);
            carry_out(self, out);
          },
          [](const caf::error&) {}); // it is asked again, or held for dead
}

void carry_out(self_ptr self, const view_leader<view>::orders& orders) {
  auto& st = state_of(self);
  for (const view_order& o : orders) {
    const auto* e = find(st, o.to);
    if (e == nullptr || !e->process)
      continue;
    switch (o.what) {
    case view_order::kind::prepare:
      ask_to_prepare(self, e->process, o.to);
      break;
    case view_order::kind::commit:
      tell(self, e->process, cmit_view{o.mepoch});
      break;
    case view_order::kind::abort:
      tell(self, e->process, abrt_view{o.mepoch});
      break;
    case view_order::kind::whole:
      tell(self, e->process, st.views.committed());
      break;
    }
  }
  if (std::exchange(st.told, st.views.committed().mepoch) != st.views.committed().mepoch) {
    if (st.leadership)
      tell(self, st.leadership, epoch_note{st.told});
    for (const member_entry& m : st.views.committed().members) // it has heard of its end
      if (auto* e = find(st, m.who.incarnation); e != nullptr && m.state == member_state::dead)
        e->process = member_actor();
  }
  propose(self);
}

void announce(self_ptr self) {
  state_of(self).views.changed();
  tell_groups(self);
  propose(self);
}

// What others say in its name is not heard.
bool from_itself(self_ptr self, const membership_state::entry& e) {
  return e.process && self->current_sender() == caf::actor_cast<caf::strong_actor_ptr>(e.process);
}

void set_state(self_ptr self, membership_state::entry& e, member_state to) {
  if (std::exchange(e.known.state, to) == to)
    return;
  auto& st = state_of(self);
  if (is_over(to))
    st.ended.note(e.known.who.incarnation, is_client(e.known.who), steady_ms());
  if (to == member_state::left) // it ends at this moment: CAF 0.17 does not get over messages to a system that ends
    e.process = member_actor();
  view_leader<view>::orders out;
  if (!prepares(e))
    st.views.lost(e.known.who.incarnation, out);
  st.views.changed();
  tell_groups(self);
  carry_out(self, out);
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

std::pair<ack_code, std::string> unproven(const membership_state& st, const join& j) {
  if (st.setup.authority.empty())
    return {ack_code::ok, {}};
  const proof p{j.certificate, j.signature};
  if (is_client(j.who)) {
    const status s = check_role(st.setup.authority, key_role::client, p, words_of(j.who));
    return s ? std::pair(ack_code::ok, std::string()) : std::pair(ack_code::unknown, s.failure().message);
  }
  const status s = check_proof(st.setup.authority, j.who.node, p, words_of(j.who));
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
                   st.views.last(),
                   static_cast<std::uint64_t>(uptime.count()),
                   st.setup.configuration,
                   st.drain_since.has_value(),
                   {},
                   {},
                   0};
  s.refused = st.refused;
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

ack take_stop(self_ptr self, const stop_cluster& s) {
  if (const status may = check_order(state_of(self).setup.authority, s); !may) {
    spdlog::warn("event=stop_refused why=\"{}\"", may.failure().message);
    return {0, ack_code::unknown, note_of(may.failure())};
  }
  shut_all_down(self, s.now);
  return {};
}

// Clients, which nobody can reach, end when they like.
void end_when_all_are_gone(self_ptr self) {
  auto& st = state_of(self);
  const bool all_gone =
      std::ranges::all_of(st.members, [](const auto& m) { return gone(m.second) || m.second.known.who.port == 0; });
  if (st.stop_at && (all_gone || self->clock().now() >= *st.stop_at) && st.setup.on_shut_down)
    std::exchange(st.setup.on_shut_down, nullptr)();
}

// Who is over stays so under every leader; views begin when those have joined that were there under the last one.
void hear_of_others(self_ptr self, const join& j) {
  auto& st = state_of(self);
  st.awaited.erase(j.who.incarnation);
  if (is_client(j.who))
    return;
  for (const std::uint64_t who : j.over) {
    st.awaited.erase(who);
    st.ended.note(who, false, steady_ms());
    if (auto* e = find(st, who); e != nullptr && !gone(*e)) {
      spdlog::warn("event=held_for_dead member={} why=\"{} has heard so\"", e->known.who.name, j.who.name);
      set_state(self, *e, member_state::dead);
    }
  }
  if (steady_ms() < st.collect_until_ms)
    for (const std::uint64_t who : j.there)
      if (!st.ended.knows(who) && find(st, who) == nullptr)
        st.awaited.insert(who);
}

joined take_in(self_ptr self, const join& j) {
  auto& st = state_of(self);
  if (st.stop_at || (st.drain_since && j.who.role == member_role::gateway))
    return {ack_code::busy, "the cluster is being stopped", 0};
  auto [code, why] = unproven(st, j);
  if (code == ack_code::ok)
    std::tie(code, why) = refusal(st, j.who);
  if (code != ack_code::ok) {
    spdlog::warn("event=join_refused member={} node={} incarnation={} why=\"{}\"", j.who.name, j.who.node,
                 j.who.incarnation, why);
    st.refused += code == ack_code::stale_epoch ? 1 : 0;
    return {code, why, 0};
  }
  if (!leads(self))
    return {ack_code::wrong_state, st.setup.name + " stands by", 0};
  membership_state::entry& e = st.members[j.who.name];
  e.known = {j.who, j.able ? member_state::active : member_state::warming, j.since};
  e.process = caf::actor_cast<member_actor>(self->current_sender());
  e.alive = liveness(steady_ms());
  watch(self, st.watched, e.process, [=, incarnation = j.who.incarnation](const caf::error&) {
    if (!leads(self))
      return;
    if (auto* m = find(state_of(self), incarnation); m != nullptr && !gone(*m))
      set_state(self, *m, member_state::dead);
  });
  hear_of_others(self, j);
  announce(self);
  return {ack_code::ok, {}, st.term};
}

void hear(self_ptr self, const hb& h) {
  auto& st = state_of(self);
  if (!leads(self))
    return;
  auto* e = find(st, h.incarnation);
  if (e == nullptr && self->current_sender()) // it is to say again who it is, and hears then whether it is over
    tell(self, caf::actor_cast<member_actor>(self->current_sender()), stand_by{});
  if (e == nullptr || gone(*e) || !from_itself(self, *e)) {
    ++st.refused;
    return;
  }
  // A slow gateway is no fault of the worker, nor what waits for those that wait for it.
  const bool has_work = h.running > h.paused || (h.waiting > 0 && h.paused == 0);
  e->alive.hear(h.steps, has_work, h.able, steady_ms(), h.starved_ms);
  e->progress = h;
  if (e->known.state == member_state::suspect || e->known.state == member_state::active ||
      e->known.state == member_state::warming)
    set_state(self, *e, h.able ? member_state::active : member_state::warming);
  view_leader<view>::orders out;
  st.views.heard(h.incarnation, h.mepoch, h.prepared, out);
  carry_out(self, out);
}

// How long a step may take depends on what an engine is for; the first one of any may take as long as a prompt's.
liveness_limits limits_of(const membership_state& st, const membership_state::entry& e) {
  liveness_limits l = st.setup.limits;
  l.first_step_ms = l.stuck_ms;
  if (e.known.who.role == member_role::worker && e.known.who.rank < st.setup.stuck_ms.size())
    l.stuck_ms = st.setup.stuck_ms[e.known.who.rank];
  return l;
}

// A view that was asked for is waited for so long; who lives and does not prepare it has no more part in anything.
void look_at_views(self_ptr self) {
  view_leader<view>::orders out;
  const auto late = state_of(self).views.tick(steady_ms(), out);
  for (const std::uint64_t who : late)
    if (auto* e = find(state_of(self), who); e != nullptr && !gone(*e)) {
      spdlog::error("event=held_for_dead member={} why=\"it has not prepared the next view\"", e->known.who.name);
      set_state(self, *e, member_state::dead);
    }
  carry_out(self, out);
}

void look_for_silent(self_ptr self) {
  auto& st = state_of(self);
  const std::int64_t now = steady_ms();
  if (leads(self))
    look_at_views(self);
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
  st.views = view_leader<view>(setup.views);
  st.views.lead(setup.term);
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
      [=](const stop_cluster& s) { return take_stop(self, s); },
      [=](const tick&) { look_for_silent(self); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
