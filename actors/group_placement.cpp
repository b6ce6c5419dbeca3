#include "actors/group_placement.hpp"
#include "actors/steady_ms.hpp"
#include "cluster/messages.hpp"
#include "cluster/orders.hpp"
#include <algorithm>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = expert_group_actor::stateful_pointer<group_placement_state>;
using state = group_placement_state;

constexpr auto report_every = 200ms; // to membership

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}
std::int32_t rank_count(const state& st) {
  return static_cast<std::int32_t>(st.ranks.size());
}

// ---- orders

void carry_out(self_ptr self, const migration_orders& orders) {
  auto& st = state_of(self);
  const auto to = [&](std::int32_t rank, auto message) {
    if (const auto& process = st.ranks[index(rank)].process)
      tell(self, process, std::move(message));
  };
  for (const std::int32_t rank : orders.queries)
    to(rank, rank_slots_query{});
  for (const auto& p : orders.publishes)
    to(p.rank, publish_slots{pack(*p.placement), st.named});
  for (const auto& c : orders.copies) {
    copy_slot m{c.order.mig, c.order.layer, c.order.slot, c.order.expert, c.order.source, c.order.floor, {}};
    const sha256_digest& digest = st.digests[index(c.order.layer) * index(st.experts) + index(c.order.expert)];
    if (digest != sha256_digest{})
      m.digest.assign(digest.begin(), digest.end());
    to(c.rank, std::move(m));
  }
  for (const auto& s : orders.settles)
    to(s.rank, settle_slots{s.order.floor, s.order.as_of, s.order.migs_below});
}

// An event of the migration; what it orders goes out.
template <class F> void with_core(self_ptr self, F&& event) {
  auto& st = state_of(self);
  if (!st.core)
    return;
  migration_orders orders;
  event(*st.core, steady_ms(), orders);
  carry_out(self, orders);
}

// ---- processes that come and go

bool alive(const state::rank& r) {
  return r.incarnation != 0 && r.reported == r.incarnation && r.process;
}

void answer(state::wish& w, ack_code code, const error& why) {
  w.answer.deliver(ack{0, code, note_of(why)});
}

// The placement is nobody's until it is taken up again.
void let_go(self_ptr self, const std::string& why) {
  auto& st = state_of(self);
  if (!std::exchange(st.core, std::nullopt))
    return;
  spdlog::warn("event=placement_waits group={} why=\"{}\"", st.setup.name, why);
  for (state::wish& w : std::exchange(st.wishes, {}))
    answer(w, ack_code::busy, {"busy", why + "; try again when the group is complete"});
  st.moving = false;
}

// Whether the ranks that live have slots for all experts.
bool suffices(const state& st) {
  const auto live = std::ranges::count_if(st.ranks, alive);
  return st.slots_per_rank > 0 && live * st.slots_per_rank >= st.experts;
}

void take_up(self_ptr self) {
  auto& st = state_of(self);
  const bool complete = std::ranges::all_of(st.ranks, alive);
  std::vector<std::uint64_t> there;
  for (const state::rank& r : st.ranks)
    there.push_back(alive(r) ? r.incarnation : 0);
  if (!complete || (st.core && st.taken_up == there))
    return;
  if (st.core)
    let_go(self, "a process of the group was started anew");
  expert_ranks group{st.slots_per_rank, std::vector<bool>(st.ranks.size(), true), st.setup.node};
  st.taken_up = st.named = there;
  migration_orders orders;
  st.core.emplace(migration::take_over(st.setup.migration, std::move(group), steady_ms(), orders));
  spdlog::info("event=placement_taken_up group={}", st.setup.name);
  carry_out(self, orders);
}

void lose(self_ptr self, std::int32_t rank) {
  auto& st = state_of(self);
  st.ranks[index(rank)].process = expert_rank_actor();
  if (!st.core)
    return;
  if (!suffices(st))
    return let_go(self, "rank " + std::to_string(st.setup.first + index(rank)) + " was lost");
  spdlog::warn("event=rank_lost group={} rank={}", st.setup.name, st.setup.first + index(rank));
  st.taken_up[index(rank)] = 0;
  with_core(self, [&](migration& m, std::int64_t now, migration_orders& out) { m.died(rank, now, out); });
}

// Nobody of the group is left: the next ranks may run another model.
void forget_model(state& st) {
  st.layers = st.experts = st.slots_per_rank = 0;
  st.digests.clear();
  st.window = load_window(0, 0, 1);
}

void follow(self_ptr self, const group_members& m) {
  auto& st = state_of(self);
  if (m.incarnations.size() != st.ranks.size())
    return;
  st.membership = caf::actor_cast<membership_actor>(self->current_sender());
  for (std::int32_t r = 0; r < rank_count(st); ++r) {
    state::rank& rank = st.ranks[index(r)];
    const std::uint64_t before = std::exchange(rank.incarnation, m.incarnations[index(r)]);
    if (before != 0 && before != rank.incarnation)
      lose(self, r);
  }
  if (std::ranges::all_of(m.incarnations, [](std::uint64_t i) { return i == 0; }))
    forget_model(st);
  take_up(self);
}

// ---- what ranks say

// F: void(layer, expert, digest that is known of it, digest that this rank says); for every expert that it serves.
template <class F> void for_digests(state& st, const slot_report& r, F&& f) {
  for (std::size_t i = 0; i < r.slots.size(); ++i) {
    const expert_slot& s = r.slots[i];
    const std::size_t layer = i / index(st.slots_per_rank);
    if (serves(s) && s.expert >= 0 && s.expert < st.experts)
      f(layer, s.expert, st.digests[layer * index(st.experts) + index(s.expert)], s.digest);
  }
}

// Why a rank does not belong to the group; empty: it does. Every byte of an expert counts here: what a join compares is
// a sample of them.
std::string difference(state& st, const slot_report& r) {
  if (const expert_placement& p = *r.placement;
      p.layers != st.layers || p.experts != st.experts || p.slots_per_rank != st.slots_per_rank)
    return "it has other numbers of layers, experts or slots than the ranks before it";
  std::string why;
  for_digests(st, r,
              [&](std::size_t layer, std::int32_t expert, const sha256_digest& known, const sha256_digest& said) {
                if (why.empty() && known != sha256_digest{} && known != said)
                  why = "expert " + std::to_string(expert) + " of layer " + std::to_string(layer) + " has digest " +
                        to_hex(said) + " there, " + to_hex(known) + " on the ranks before it";
              });
  return why.empty() ? why : why + ": give all hosts the same model folder";
}

void hear(self_ptr self, const rank_slots& message) {
  auto& st = state_of(self);
  const auto report = unpack(message);
  if (!report || report->rank >= rank_count(st) || report->placement->ranks > rank_count(st))
    return;
  const expert_placement& p = *report->placement;
  if (st.slots_per_rank == 0) {
    st.layers = p.layers;
    st.experts = p.experts;
    st.slots_per_rank = p.slots_per_rank;
    st.digests.assign(index(p.layers) * index(p.experts), {});
    st.window = load_window(p.layers, p.experts, st.setup.window);
  }
  const auto from = caf::actor_cast<expert_rank_actor>(self->current_sender());
  if (const std::string why = difference(st, *report); !why.empty()) {
    spdlog::error("event=rank_refused group={} rank={} incarnation={} why=\"{}\"", st.setup.name,
                  st.setup.first + index(report->rank), message.incarnation, why);
    tell(self, from, refuse_rank{why});
    return;
  }
  for_digests(st, *report,
              [](std::size_t, std::int32_t, sha256_digest& known, const sha256_digest& said) { known = said; });
  state::rank& rank = st.ranks[index(report->rank)];
  rank.reported = message.incarnation;
  rank.process = from;
  if (st.core && st.taken_up[index(report->rank)] == message.incarnation)
    with_core(self, [&](migration& m, std::int64_t now, migration_orders& out) { m.reported(*report, now, out); });
  else
    take_up(self);
}

// Of the process that the versions name; F: void(migration&, now, orders).
template <class Answer, class F> void hear_answer(self_ptr self, const Answer& a, F&& event) {
  auto& st = state_of(self);
  if (a.rank < 0 || a.rank >= rank_count(st) || !st.core || st.taken_up[index(a.rank)] != a.incarnation)
    return;
  with_core(self, event);
}

// ---- moves that somebody asks for

std::int32_t expert_in(const expert_placement& p, std::int32_t layer, std::int32_t slot) {
  return p.expert_of[index(layer) * index(p.slots()) + index(slot)];
}

std::int32_t copies_of(const expert_placement& p, std::int32_t layer, std::int32_t expert) {
  std::int32_t n = 0;
  for (std::int32_t s = 0; s < p.slots(); ++s)
    n += expert_in(p, layer, s) == expert;
  return n;
}

struct refusal {
  ack_code code = ack_code::ok;
  error why;
};

// The slot of the group that a wish overwrites, or why there is none.
std::variant<std::int32_t, refusal> slot_for(const state& st, const migrate& m) {
  const expert_placement& p = st.core->newest() ? *st.core->newest() : expert_placement{};
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  const auto refuse = [](ack_code code, const char* name, std::string why) {
    return refusal{code, {name, std::move(why)}};
  };
  const std::int32_t rank = static_cast<std::int32_t>(m.rank) - static_cast<std::int32_t>(st.setup.first);
  const std::int32_t each = st.slots_per_rank, first = rank * each;
  if (m.layer < 0 || m.layer >= st.layers)
    return refuse(ack_code::unknown, "unknown",
                  "layer " + text(m.layer) + ": there are " + text(st.layers) + " layers");
  if (m.expert < 0 || m.expert >= st.experts)
    return refuse(ack_code::unknown, "unknown",
                  "expert " + text(m.expert) + ": a layer has " + text(st.experts) + " experts");
  if (m.slot >= each)
    return refuse(ack_code::unknown, "unknown", "slot " + text(m.slot) + ": a rank has " + text(each) + " slots");
  const auto busy = [&](std::int32_t slot) {
    return std::ranges::any_of(st.wishes,
                               [&](const state::wish& w) { return w.what.layer == m.layer && w.slot == slot; });
  };
  const auto held = [&](std::int32_t slot) { return expert_in(p, m.layer, slot); };
  if (m.slot >= 0) {
    const std::int32_t slot = first + m.slot, there = held(slot);
    if (busy(slot))
      return refuse(ack_code::busy, "busy",
                    "slot " + text(m.slot) + " of rank " + text(m.rank) + " is being written; try again");
    if (there == m.expert)
      return refuse(ack_code::wrong_state, "wrong_state",
                    "slot " + text(m.slot) + " of rank " + text(m.rank) + " holds expert " + text(m.expert) +
                        " already");
    if (there >= 0 && copies_of(p, m.layer, there) < 2)
      return refuse(ack_code::wrong_state, "wrong_state",
                    "slot " + text(m.slot) + " of rank " + text(m.rank) + " holds the last copy of expert " +
                        text(there) + "; copy it elsewhere first, or name another slot");
    return slot;
  }
  std::int32_t best = -1, most = 0;
  for (std::int32_t slot = first; slot < first + each; ++slot) {
    const std::int32_t there = held(slot);
    if (there == m.expert)
      return refuse(ack_code::wrong_state, "wrong_state",
                    "rank " + text(m.rank) + " holds expert " + text(m.expert) + " in slot " + text(slot - first) +
                        " already");
    const std::int32_t copies = there < 0 ? st.experts + 1 : copies_of(p, m.layer, there);
    if (copies >= 2 && copies > most && !busy(slot))
      best = slot, most = copies;
  }
  if (best < 0)
    return refuse(ack_code::no_space, "no_space",
                  "rank " + text(m.rank) + " has no redundant slot in layer " + text(m.layer) +
                      ": each holds the last copy of an expert, or is being written; raise eplb.min_extra");
  return best;
}

// Begins the next wish, ends the one that is done.
void serve_wishes(self_ptr self) {
  auto& st = state_of(self);
  while (st.core && st.core->newest() && st.core->idle() && !st.wishes.empty()) {
    state::wish& w = st.wishes.front();
    if (std::exchange(st.moving, false)) {
      const std::string what = "expert " + std::to_string(w.what.expert) + " of layer " + std::to_string(w.what.layer);
      if (expert_in(*st.core->newest(), w.what.layer, w.slot) == w.what.expert)
        answer(w, ack_code::ok,
               {"moved", what + " is in slot " + std::to_string(w.slot % st.slots_per_rank) + " of rank " +
                             std::to_string(w.what.rank) + ", version " + std::to_string(st.core->newest()->version)});
      else
        answer(w, ack_code::digest_mismatch,
               {"failed", what + " could not be copied: no source gave the right bytes; see the logs of rank " +
                              std::to_string(w.what.rank)});
      st.wishes.pop_front();
      continue;
    }
    w.slot = -1; // not in its own way
    const auto slot = slot_for(st, w.what);
    if (const auto* no = std::get_if<refusal>(&slot)) {
      answer(w, no->code, no->why);
      st.wishes.pop_front();
      continue;
    }
    w.slot = std::get<std::int32_t>(slot);
    expert_placement wanted = *st.core->newest();
    wanted.expert_of[index(w.what.layer) * index(wanted.slots()) + index(w.slot)] = w.what.expert;
    st.moving = true;
    with_core(self, [&](migration& m, std::int64_t now, migration_orders& out) { m.start(wanted, now, out); });
    break;
  }
}

caf::typed_response_promise<ack> take_wish(self_ptr self, const migrate& m) {
  auto& st = state_of(self);
  state::wish w{m, -1, self->make_response_promise<ack>()};
  const auto promise = w.answer;
  if (const status may = check_order(st.setup.authority, m); !may) {
    spdlog::warn("event=migration_refused group={} why=\"{}\"", st.setup.name, may.failure().message);
    answer(w, ack_code::unknown, may.failure());
    return promise;
  }
  if (!st.core || !st.core->newest()) {
    answer(w, ack_code::busy, {"busy", "the expert group " + st.setup.name + " is not complete; see troupe status"});
    return promise;
  }
  const auto slot = slot_for(st, m);
  if (const auto* no = std::get_if<refusal>(&slot)) {
    answer(w, no->code, no->why);
    return promise;
  }
  w.slot = std::get<std::int32_t>(slot);
  st.wishes.push_back(std::move(w));
  serve_wishes(self);
  return promise;
}

// ---- reports

void add_load(state& st, const load& l) {
  const std::vector<std::uint32_t> counts = unpack_u32(l.counts);
  const std::size_t one = index(st.layers) * index(st.experts);
  if (one == 0 || counts.size() != one * l.steps)
    return;
  for (std::size_t s = 0; s < l.steps; ++s)
    st.window.add(std::span(counts).subspan(s * one, one));
}

std::string state_text(const state& st) {
  for (std::size_t r = 0; r < st.ranks.size(); ++r)
    if (!alive(st.ranks[r]) && !(st.core && st.core->newest() && st.core->covers()))
      return "waits for rank " + std::to_string(st.setup.first + r);
  if (!st.core || !st.core->newest() || !st.core->covers())
    return "waits for experts";
  return st.core->idle() ? "serving" : "moving";
}

expert_group_report report_of(const state& st) {
  expert_group_report r;
  r.name = st.setup.name;
  r.first = st.setup.first;
  r.ranks = rank_count(st);
  r.layers = st.layers;
  r.experts = st.experts;
  r.slots_per_rank = st.slots_per_rank;
  r.steps_seen = st.window.steps_ever();
  r.state = state_text(st);
  if (st.core && st.core->newest()) {
    const migration_totals& t = st.core->totals();
    r.pver = st.core->newest()->version;
    r.versions = t.versions;
    r.moved = t.moved;
    r.failed = t.failed;
    r.recovered = t.recovered;
    r.balancedness = st.window.balancedness(*st.core->newest());
  }
  return r;
}

slot_table table_of(const state& st) {
  slot_table t;
  if (!st.core || !st.core->newest())
    return t;
  const expert_placement& p = *st.core->newest();
  t.pver = p.version;
  t.ranks = p.ranks;
  t.layers = p.layers;
  t.experts = p.experts;
  t.slots_per_rank = p.slots_per_rank;
  t.expert_of = p.expert_of;
  t.steps_seen = st.window.steps_ever();
  t.rows = st.window.sums();
  t.balancedness = st.window.balancedness(p);
  return t;
}

void pass_time(self_ptr self) {
  auto& st = state_of(self);
  with_core(self, [](migration& m, std::int64_t now, migration_orders& out) { m.tick(now, out); });
  serve_wishes(self);
  if (const auto now = state::clock::now(); st.membership && now - st.reported_at >= report_every) {
    st.reported_at = now;
    tell(self, st.membership, report_of(st));
  }
  tell_later(self, st.setup.tick, group_clock{});
}

} // namespace

expert_group_actor::behavior_type group_placement(self_ptr self, const expert_group_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  st.ranks.resize(setup.node.size());
  tell_later(self, setup.tick, group_clock{});
  return {
      [=](const rank_slots& r) {
        hear(self, r);
        serve_wishes(self);
      },
      [=](const slots_published& p) {
        hear_answer(self, p, [&](migration& m, std::int64_t now, migration_orders& out) {
          m.published(p.rank, p.version, p.quiesced, now, out);
        });
      },
      [=](const slots_quiesced& q) {
        hear_answer(self, q, [&](migration& m, std::int64_t now, migration_orders& out) {
          m.quiesced(q.rank, q.version, now, out);
        });
      },
      [=](const slot_copied& c) {
        if (!c.failure.empty())
          spdlog::warn("event=copy_failed group={} rank={} why=\"{}\"", state_of(self).setup.name,
                       state_of(self).setup.first + index(c.rank), c.failure);
        hear_answer(self, c, [&](migration& m, std::int64_t now, migration_orders& out) {
          if (c.failure.empty())
            m.copied(c.rank, c.mig, now, out);
          else
            m.copy_failed(c.rank, c.mig, now, out);
        });
      },
      [=](const slots_settled& s) {
        hear_answer(self, s, [&](migration& m, std::int64_t now, migration_orders& out) {
          m.settled(s.rank, s.as_of, now, out);
        });
        serve_wishes(self);
      },
      [=](const load& l) { add_load(state_of(self), l); },
      [=](const group_members& m) { follow(self, m); },
      [=](const migrate& m) { return take_wish(self, m); },
      [=](const slots&) { return table_of(state_of(self)); },
      [=](const group_clock&) { pass_time(self); },
      [=](const stop&) {
        let_go(self, "the coordinator ends");
        self->quit();
      },
  };
}

} // namespace troupe
