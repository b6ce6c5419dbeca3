#include "actors/engine_directory.hpp"
#include <algorithm>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = engine_directory_actor::stateful_pointer<engine_directory_state>;

constexpr auto try_again = 500ms;
constexpr auto answer_limit = 5000ms;
// Ranks that share experts may go on without one of them, which takes them a moment.
constexpr auto sure_after = 3000ms;

void drop(self_ptr self, std::uint32_t rank, const std::string& why) {
  auto& st = state_of(self);
  const auto at = st.engines.find(rank);
  if (at == st.engines.end())
    return;
  const bool offered = at->second.info.has_value();
  if (at->second.worker)
    unwatch(self, st.watched, at->second.worker);
  st.engines.erase(at);
  if (offered)
    tell(self, st.gateway, rank_lost{rank, why});
}

void say_given_up(self_ptr self, const std::string& why) {
  auto& st = state_of(self);
  if (why.empty())
    st.hopeless_since.reset();
  if (std::exchange(st.given_up, why) != why)
    tell(self, st.gateway, engines_given_up{why});
}

bool gives_out_tokens(const engine_directory_state& st) {
  return std::ranges::any_of(st.engines, [](const auto& at) {
    const auto& info = at.second.info;
    return info && info->kind != engine_kind::prompt;
  });
}

// What no request can be computed without and is not started again; empty: some engine may come.
std::string missing_for_good(const engine_workers& configured, const cluster_status& s) {
  std::map<std::string, std::string> given_up; // how it ended, by name
  for (const member_report& m : s.members)
    if (!is_over(m.known.state))
      for (const worker_end& e : m.progress.given_up)
        given_up.emplace(e.name, e.how);
  std::string all;
  for (const auto& workers : configured) {
    const auto gone = std::ranges::find_if(workers, [&](const std::string& w) { return given_up.contains(w); });
    if (gone == workers.end())
      return {};
    all += (all.empty() ? "" : "; ") + *gone + " is not started again (" + given_up.at(*gone) + ")";
  }
  return all;
}

void judge(self_ptr self, const cluster_status& s) {
  auto& st = state_of(self);
  const std::string missing = s.leads && !gives_out_tokens(st) ? missing_for_good(st.configured, s) : "";
  if (missing.empty())
    return say_given_up(self, {});
  const auto now = self->clock().now();
  if (!st.hopeless_since)
    st.hopeless_since = now;
  if (now - *st.hopeless_since >= sure_after)
    say_given_up(self, "no engine is left that could take the request: " + missing +
                           "; mend that, then troupe stop and troupe launch");
}

void look_for_hope(self_ptr self) {
  auto& st = state_of(self);
  if (!st.coordinator || gives_out_tokens(st) || std::exchange(st.asked, true))
    return;
  ask(self, st.coordinator, answer_limit, status_query{})
      .then(
          [=](const cluster_status& s) {
            state_of(self).asked = false;
            judge(self, s);
          },
          [=](const caf::error&) { state_of(self).asked = false; });
}

const char* word_for(member_state s) {
  switch (s) {
  case member_state::joining:
  case member_state::warming:
    return "is not ready";
  case member_state::active:
    return "is there";
  case member_state::draining:
    return "takes nothing new";
  case member_state::suspect:
    return "is silent";
  case member_state::left:
  case member_state::dead:
    return "has ended";
  }
  return "";
}

// What requests wait for, for people; empty: for nothing.
std::string waits_for(const engine_directory_state& st) {
  if (gives_out_tokens(st))
    return {};
  if (!st.given_up.empty())
    return st.given_up;
  if (st.last.mepoch == 0)
    return "no coordinator has answered yet";
  std::string workers;
  for (const member_entry& m : st.last.members)
    if (m.who.role == member_role::worker)
      workers += (workers.empty() ? "" : ", ") + m.who.name + " " + word_for(m.state);
  return "no engine that gives out tokens is connected (" + (workers.empty() ? "no worker has come yet" : workers) +
         ")";
}

// The engine, if it still is the one that this process knows.
engine_directory_state::engine* find(self_ptr self, std::uint32_t rank, std::uint64_t incarnation) {
  auto& engines = state_of(self).engines;
  const auto at = engines.find(rank);
  return at == engines.end() || at->second.incarnation != incarnation ? nullptr : &at->second;
}

void offer(self_ptr self, std::uint32_t rank, std::uint64_t incarnation, const engine_info& i) {
  engine_directory_state::engine* e = find(self, rank, incarnation);
  if (e == nullptr || !i.scheduler) // a rank of an engine that another process leads takes no requests
    return;
  e->info = i;
  e->info->rank = rank;
  say_given_up(self, {});
  tell(self, state_of(self).gateway, engine_joined{*e->info});
}

void reach(self_ptr self, const member& who) {
  auto& st = state_of(self);
  const auto found = connect<worker_root_actor>(self->system(), {who.host, who.port});
  if (!found)
    return; // the next tick tries again
  engine_directory_state::engine& e = st.engines[who.rank];
  e = {who.incarnation, *found, {}};
  watch(self, st.watched, e.worker, [=](const caf::error& why) {
    if (find(self, who.rank, who.incarnation) != nullptr)
      drop(self, who.rank, // which of the news that it leaves comes first is open: this or a view
           why ? who.name + " was lost: " + text(self->system(), why) : who.name + " has ended");
  });
  ask(self, e.worker, answer_limit, engine_query{})
      .then([=](const engine_info& i) { offer(self, who.rank, who.incarnation, i); },
            [=](const caf::error&) {
              if (find(self, who.rank, who.incarnation) != nullptr)
                drop(self, who.rank, who.name + " does not answer");
            });
}

// Brings the connections in line with the last view.
void follow(self_ptr self) {
  auto& st = state_of(self);
  for (const member_entry& m : st.last.members) {
    if (m.who.role != member_role::worker)
      continue;
    const auto at = st.engines.find(m.who.rank);
    const bool known = at != st.engines.end() && at->second.incarnation == m.who.incarnation;
    if (m.state == member_state::active && !known) {
      drop(self, m.who.rank, m.who.name + " was started anew");
      reach(self, m.who);
    }
    const char* why = m.state == member_state::dead      ? " is held for dead"
                      : m.state == member_state::left    ? " has left"
                      : m.state == member_state::warming ? " takes no steps at the moment"
                                                         : nullptr;
    if (why != nullptr && known)
      drop(self, m.who.rank, m.who.name + why);
  }
}

} // namespace

engine_directory_actor::behavior_type engine_directory(self_ptr self, const gateway_actor& gateway,
                                                       const engine_workers& configured) {
  state_of(self).gateway = gateway;
  state_of(self).configured = configured;
  tell_later(self, try_again, tick{});
  return {
      [=](const view& v) {
        state_of(self).last = v;
        follow(self);
      },
      [=](const coordinator_found& c) { state_of(self).coordinator = c.membership; },
      [=](const tick&) {
        follow(self);
        look_for_hope(self);
        tell_later(self, try_again, tick{});
      },
      [=](const directory_query&) {
        const auto& st = state_of(self);
        directory_report r;
        r.term = st.last.term;
        r.mepoch = st.last.mepoch;
        for (const auto& [rank, e] : st.engines)
          if (e.info)
            r.engines.push_back(*e.info);
        for (const member_entry& m : st.last.members)
          if (m.who.role == member_role::worker && m.state == member_state::active) {
            const auto* e = find(self, m.who.rank, m.who.incarnation);
            r.awaited += e == nullptr || !e->info ? 1 : 0;
          }
        r.waits_for = waits_for(st);
        r.given_up = !st.given_up.empty();
        return r;
      },
      [=](const awaited_query& q) { q.told(waits_for(state_of(self))); },
      [=](const stop&) {
        for (const auto& [rank, e] : state_of(self).engines)
          if (e.worker)
            unwatch(self, state_of(self).watched, e.worker);
        self->quit();
      },
  };
}

} // namespace troupe
