#include "actors/engine_directory.hpp"

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = engine_directory_actor::stateful_pointer<engine_directory_state>;

constexpr auto try_again = 500ms;
constexpr auto answer_limit = 5000ms;

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
      drop(self, who.rank, who.name + " was lost: " + text(self->system(), why));
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

engine_directory_actor::behavior_type engine_directory(self_ptr self, const gateway_actor& gateway) {
  state_of(self).gateway = gateway;
  tell_later(self, try_again, tick{});
  return {
      [=](const view& v) {
        state_of(self).last = v;
        follow(self);
      },
      [=](const tick&) {
        follow(self);
        tell_later(self, try_again, tick{});
      },
      [=](const directory_query&) {
        const auto& st = state_of(self);
        directory_report r{st.last.term, st.last.mepoch, {}, 0};
        for (const auto& [rank, e] : st.engines)
          if (e.info)
            r.engines.push_back(*e.info);
        for (const member_entry& m : st.last.members)
          if (m.who.role == member_role::worker && m.state == member_state::active) {
            const auto* e = find(self, m.who.rank, m.who.incarnation);
            r.awaited += e == nullptr || !e->info ? 1 : 0;
          }
        return r;
      },
      [=](const stop&) {
        for (const auto& [rank, e] : state_of(self).engines)
          if (e.worker)
            unwatch(self, state_of(self).watched, e.worker);
        self->quit();
      },
  };
}

} // namespace troupe
