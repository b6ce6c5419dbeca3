#include "actors/leadership.hpp"
#include "actors/steady_ms.hpp"
#include <algorithm>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = leadership_actor::stateful_pointer<leadership_state>;

constexpr auto look_every = 100ms;
constexpr auto reach_limit = 100ms;
constexpr std::int64_t reach_again_ms = 300;

void reach_voters(self_ptr self) {
  auto& st = state_of(self);
  for (std::size_t i = 0; i < st.links.size(); ++i) {
    leadership_state::link& l = st.links[i];
    if (l.voter || steady_ms() < l.not_before)
      continue;
    l.not_before = steady_ms() + reach_again_ms;
    const auto at = st.setup.at(l.node);
    if (!at)
      continue;
    const auto found = connect<voter_actor>(self->system(), *at, reach_limit);
    if (!found)
      continue;
    l.voter = *found;
    watch(self, st.watched, l.voter, [=](const caf::error&) { state_of(self).links[i].voter = voter_actor(); });
  }
}

void tell_outcome(self_ptr self) {
  auto& st = state_of(self);
  lease_held now{};
  if (st.candidate->leads(steady_ms()))
    now = {st.candidate->term(), st.candidate->known().mepoch, st.candidate->leads_until()};
  if (now.term == st.told.term && now.until_ms == st.told.until_ms)
    return;
  st.told = now;
  tell(self, st.membership, now);
}

void take(self_ptr self, const lease_answer& a) {
  state_of(self).candidate->reply(
      {a.granted, a.term, a.round, node_id(a.voter), a.remaining_ms, {a.mepoch, a.configuration}}, steady_ms());
  tell_outcome(self);
}

void send(self_ptr self, const lease_candidate::requests& requests) {
  auto& st = state_of(self);
  for (const auto& [to, r] : requests)
    for (const leadership_state::link& l : st.links)
      if (l.node == to && l.voter)
        ask(self, l.voter, std::chrono::milliseconds(st.setup.lease.renew_ms),
            lease_ask{r.term, r.round, r.candidate.node.value, r.candidate.incarnation, r.lease_ms, st.mepoch,
                      st.setup.configuration})
            .then([=](const lease_answer& a) { take(self, a); }, [](const caf::error&) {});
}

// Votes are asked for once enough voters are there to give a majority: at the start of a cluster they come one by one.
void look(self_ptr self) {
  auto& st = state_of(self);
  reach_voters(self);
  const auto reached = std::ranges::count_if(st.links, [](const auto& l) { return bool(l.voter); });
  if (st.told.term != 0 || static_cast<std::size_t>(reached) > st.links.size() / 2) {
    lease_candidate::requests requests;
    st.candidate->tick(steady_ms(), requests);
    send(self, requests);
  }
  tell_outcome(self);
  tell_later(self, look_every, tick{});
}

// Gives the votes back, so that the next leader need not wait for the end of the lease.
void end_lease(self_ptr self) {
  auto& st = state_of(self);
  if (st.told.term == 0)
    return;
  for (const leadership_state::link& l : st.links)
    if (l.voter)
      tell_from_outside(l.voter, lease_ask{st.told.term, 0, st.setup.self.node.value, st.setup.self.incarnation, 0,
                                           st.mepoch, st.setup.configuration});
}

} // namespace

leadership_actor::behavior_type leadership(self_ptr self, const leadership_setup& setup,
                                           const membership_actor& membership) {
  auto& st = state_of(self);
  st.setup = setup;
  st.membership = membership;
  for (const node_id n : setup.voters)
    st.links.push_back({n, {}, 0});
  st.candidate.emplace(setup.self, setup.voters, setup.lease, setup.self.incarnation, steady_ms());
  tell(self, leadership_actor(self), tick{});
  return {
      [=](const epoch_note& n) { state_of(self).mepoch = n.mepoch; },
      [=](const lease_end&) {
        end_lease(self);
        self->quit();
      },
      [=](const tick&) { look(self); },
      [=](const stop&) {
        end_lease(self);
        self->quit();
      },
  };
}

} // namespace troupe
