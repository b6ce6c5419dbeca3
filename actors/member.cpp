#include "actors/member.hpp"
#include "cluster/build_id.hpp"
#include "cluster/certificates.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/record_bytes.hpp"
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using self_ptr = member_actor::stateful_pointer<cluster_member_state>;

constexpr std::size_t most_told = 1024; // processes of each kind, in a join

void expel(self_ptr self, const std::string& why) {
  if (const auto& f = state_of(self).setup.on_expelled)
    f(why);
}

void be_alone(self_ptr self) {
  auto& st = state_of(self);
  if (st.coordinator)
    unwatch(self, st.watched, st.coordinator);
  st.coordinator = membership_actor();
  st.alone_since = st.orphaned_since = self->clock().now();
}

// The cluster holds this process for dead.
void be_dead(self_ptr self, const std::string& why) {
  auto& st = state_of(self);
  if (!st.setup.comes_back)
    return expel(self, why);
  st.setup.who.incarnation = st.progress.incarnation = mint_incarnation();
  be_alone(self);
}

// Not that of a former leader, which may not know it yet.
bool from_coordinator(self_ptr self) {
  auto& st = state_of(self);
  const bool is = st.coordinator && self->current_sender() == caf::actor_cast<caf::strong_actor_ptr>(st.coordinator);
  st.refused += is ? 0 : 1;
  return is;
}

// It works under another view now.
void follow_view(self_ptr self) {
  auto& st = state_of(self);
  const view& v = st.views.committed();
  const member& me = st.setup.who;
  for (const member_entry& e : v.members)
    if (is_over(e.state) && !is_client(e.who)) // clients are many, and none comes back
      st.ended.note(e.who.incarnation, false, 0);
  for (const member_entry& e : v.members)
    if (e.who.name == me.name) {
      if (e.who.incarnation == me.incarnation && e.state == member_state::dead)
        return be_dead(self, "the cluster holds it for dead");
      if (e.who.incarnation != me.incarnation && !st.setup.comes_back)
        return expel(self, "another process of that name has taken its place");
    }
  if (st.setup.on_view)
    st.setup.on_view(v);
}

ack prepare(self_ptr self, const view& next) {
  auto& st = state_of(self);
  const ack_code code = st.views.prepare(next);
  if (code == ack_code::ok && st.views.prepared() == next.mepoch && st.setup.on_prepare)
    st.setup.on_prepare(next);
  return {next.mepoch, code, {}};
}

// Of the first view that named this process; 0: none has.
std::uint64_t since(const cluster_member_state& st) {
  for (const member_entry& e : st.views.committed().members)
    if (e.who.incarnation == st.setup.who.incarnation)
      return e.since;
  return 0;
}

void take_answer(self_ptr self, const membership_actor& from, const joined& j) {
  auto& st = state_of(self);
  st.joining = false;
  if (j.code == ack_code::wrong_state)
    return; // it stands by: the next beat asks another
  if (j.code == ack_code::stale_epoch)
    return be_dead(self, j.why);
  if (j.code != ack_code::ok) {
    st.joining = true; // for good: it asks no more
    return expel(self, j.why);
  }
  st.coordinator = from;
  if (std::exchange(st.parked, false))
    tell(self, st.setup.scheduler, hold_steps{false});
  watch(self, st.watched, from, [=](const caf::error&) { be_alone(self); });
  st.views.follow(j.term);
  if (const auto& f = st.setup.on_coordinator)
    f(from);
}

void find_coordinator(self_ptr self) {
  auto& st = state_of(self);
  if (st.joining)
    return;
  if (const auto& now = st.setup.coordinators_now)
    if (auto there = now(); !there.empty())
      st.setup.coordinators = std::move(there);
  const endpoint& at = st.setup.coordinators[st.next++ % st.setup.coordinators.size()];
  const auto found = connect<membership_actor>(self->system(), at, st.setup.control_limit / 4);
  if (!found)
    return;
  const membership_actor to = *found;
  st.joining = true;
  join wish{st.setup.who, !st.setup.able || st.setup.able(false)};
  wish.since = since(st);
  if (!is_client(wish.who)) { // whom nobody believes
    wish.over = st.ended.newest(most_told);
    for (const member_entry& e : st.views.committed().members)
      if (!is_over(e.state) && !is_client(e.who) && wish.there.size() < most_told)
        wish.there.push_back(e.who.incarnation);
  }
  if (st.setup.keys) {
    if (const auto p = prove(*st.setup.keys, words_of(wish.who)))
      wish.certificate = p->certificate, wish.signature = p->signature;
    else
      spdlog::error("event=join_not_signed why=\"{}\"", p.failure().message);
  }
  ask(self, to, st.setup.control_limit, wish)
      .then([=](const joined& j) { take_answer(self, to, j); },
            [=](const caf::error&) { state_of(self).joining = false; });
}

// Nobody leads. What an engine computes now others may compute too, as soon as somebody does: it goes on for a while
// only. Its requests wait, with their caches.
void park(self_ptr self) {
  auto& st = state_of(self);
  if (!st.setup.scheduler || self->clock().now() - st.alone_since <= st.setup.headless_limit ||
      std::exchange(st.parked, true))
    return;
  spdlog::warn("event=parked member={} headless_ms={}", st.setup.who.name, st.setup.headless_limit.count());
  tell(self, st.setup.scheduler, hold_steps{true});
}

void be_headless(self_ptr self) {
  auto& st = state_of(self);
  const auto now = self->clock().now();
  if (!st.setup.agent_there || st.setup.agent_there())
    st.orphaned_since = now;
  if (now - st.orphaned_since > st.setup.orphan_limit)
    return expel(self, "neither a coordinator nor its node agent was there for " +
                           std::to_string(st.setup.orphan_limit.count()) + " ms");
  park(self);
  if (!st.stopping) // else nobody comes
    find_coordinator(self);
}

void note_progress(self_ptr self) {
  auto& st = state_of(self);
  if (!st.setup.scheduler || std::exchange(st.asked, true))
    return;
  ask(self, st.setup.scheduler, st.setup.control_limit, scheduler_query{})
      .then(
          [=](const scheduler_report& r) {
            auto& s = state_of(self);
            s.asked = false;
            s.progress.steps = r.steps;
            s.progress.running = r.running;
            s.progress.waiting = r.waiting;
            s.progress.paused = r.paused;
            s.progress.free_blocks = r.free_blocks;
            s.progress.waits_for = r.waits_for;
            s.progress.handoffs = r.handoffs;
          },
          [=](const caf::error&) {
            state_of(self).asked = false;
            state_of(self).progress.paused =
                0; // what waited for a reader then is no excuse for what does not answer now
          });
}

// Not with each beat: its report takes a verifier milliseconds in which it decides nothing.
void note_speculation(self_ptr self) {
  constexpr auto every = std::chrono::seconds(2);
  auto& st = state_of(self);
  if (!st.setup.engine || st.reviewed == st.progress.steps || self->clock().now() < st.review_at)
    return;
  if (st.progress.running == 0) // else the verifier has not heard of the last steps yet
    st.reviewed = st.progress.steps;
  st.review_at = self->clock().now() + every;
  const auto limit = st.setup.control_limit;
  ask(self, st.setup.engine, limit, engine_query{})
      .then(
          [=](const engine_info& i) {
            ask(self, i.verifier, limit, spec_query{})
                .then(
                    [=](const spec_report& r) {
                      auto& known = state_of(self).progress.speculation = r;
                      for (spec_rank_report& rank : known.ranks)
                        rank.times.clear();
                    },
                    [](const caf::error&) {});
          },
          [](const caf::error&) {});
}

void beat(self_ptr self) {
  auto& st = state_of(self);
  note_progress(self);
  note_speculation(self);
  if (st.setup.steps)
    st.progress.steps = st.setup.steps();
  if (st.setup.who.role == member_role::worker)
    st.progress.starved_ms = st.waits.total_ms();
  if (st.setup.live)
    st.progress.drained = st.stopping && st.setup.live() == 0;
  if (st.setup.given_up)
    st.progress.given_up = st.setup.given_up();
  if (st.coordinator) {
    st.progress.able = !st.setup.able || st.setup.able(true);
    st.progress.mepoch = st.views.committed().mepoch;
    st.progress.prepared = st.views.prepared();
    st.progress.refused = st.refused + st.views.refused() + (st.setup.refused ? st.setup.refused() : 0);
    tell(self, st.coordinator, st.progress);
  } else {
    be_headless(self);
  }
  tell_later(self, st.setup.beat, tick{});
}

} // namespace

std::string words_of(const member& who) {
  return "troupe join\n" + to_bytes(who);
}

member_setup member_setup_of(const process_identity& p, member_role role, std::uint32_t rank, const endpoint& at) {
  member_setup m;
  m.who = {role,    p.name,  p.node,           rank,       p.incarnation,
           at.host, at.port, protocol_version, build_id(), p.cluster.configuration};
  m.coordinators = p.cluster.coordinators;
  m.keys = p.cluster.tls;
  m.coordinators_now = p.cluster.coordinators_now;
  m.agent_there = p.agent_there;
  m.beat = p.beat;
  m.headless_limit = p.headless_limit;
  m.orphan_limit = p.orphan_limit;
  m.control_limit = p.cluster.questions.each;
  return m;
}

member_actor::behavior_type cluster_member(self_ptr self, const member_setup& setup) {
  state_of(self).setup = setup;
  state_of(self).progress.incarnation = setup.who.incarnation;
  state_of(self).alone_since = state_of(self).orphaned_since = self->clock().now();
  tell(self, member_actor(self), tick{});
  return {
      [=](const view& v) {
        if (state_of(self).views.take(v))
          follow_view(self);
      },
      [=](const prep_view& p) { return prepare(self, p.next); },
      [=](const cmit_view& c) {
        if (state_of(self).views.commit(c.mepoch))
          follow_view(self);
      },
      [=](const abrt_view& a) { state_of(self).views.abort(a.mepoch); },
      [=](const stand_by&) {
        if (from_coordinator(self))
          be_alone(self);
      },
      [=](const tick&) { beat(self); },
      [=](const shut_down& s) {
        if (!from_coordinator(self))
          return;
        state_of(self).stopping = true;
        if (const auto& f = state_of(self).setup.on_stop)
          f(s.now);
      },
      [=](const stop&) {
        auto& st = state_of(self);
        if (st.coordinator)
          tell(self, st.coordinator, leave{st.setup.who.incarnation});
        self->quit();
      },
  };
}

} // namespace troupe
