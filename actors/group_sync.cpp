#include "actors/group_sync.hpp"

namespace troupe {

namespace {

using self_ptr = group_sync_actor::stateful_pointer<group_sync_state>;

// Sends what was decided. While anybody owes an intent, time passes.
void deliver(self_ptr self) {
  auto& st = state_of(self);
  for (const group_view& v : st.orders.views) {
    for (const auto& [rank, to] : st.ranks)
      tell(self, to, v);
    for (const rank_id gone : v.left)
      st.ranks.erase(gone);
  }
  for (const step_decision& d : st.orders.decisions)
    for (const auto& [rank, to] : st.ranks)
      tell(self, to, d);
  st.orders.clear();
  if (!st.group->idle() && !std::exchange(st.ticking, true))
    tell_later(self, st.setup.tick, group_tick{});
}

void lose(self_ptr self, rank_id rank) {
  auto& st = state_of(self);
  st.ranks.erase(rank);
  st.group->lost(rank, st.orders);
  deliver(self);
}

void join(self_ptr self, rank_id rank, const scheduler_actor& scheduler) {
  auto& st = state_of(self);
  if (!scheduler || !st.ranks.emplace(rank, scheduler).second)
    return;
  watch(self, st.watched, scheduler, [=](const caf::error&) { lose(self, rank); });
  st.group->join(rank, st.orders);
  deliver(self);
}

void tick(self_ptr self) {
  auto& st = state_of(self);
  st.ticking = false;
  if (st.group->idle())
    return;
  st.group->tick(st.orders);
  for (const auto& [rank, to] : st.ranks)
    tell(self, to, group_ping{});
  deliver(self);
}

} // namespace

group_sync_actor::behavior_type group_sync(self_ptr self, const group_sync_setup& setup) {
  state_of(self).setup = setup;
  state_of(self).group.emplace(setup.steps, setup.epoch);
  return {
      [=](const join_group& j) {
        join(self, rank_id{j.rank}, caf::actor_cast<scheduler_actor>(self->current_sender()));
      },
      [=](const rank_intent& i) {
        state_of(self).group->intent(i, state_of(self).orders);
        deliver(self);
      },
      [=](const group_alive& a) { state_of(self).group->heartbeat(rank_id{a.rank}, a.epoch); },
      [=](const rank_lost& l) { lose(self, rank_id{l.rank}); },
      [=](const group_tick&) { tick(self); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
