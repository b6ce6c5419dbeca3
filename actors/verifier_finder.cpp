#include "actors/verifier_finder.hpp"

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = verifier_finder_actor::stateful_pointer<verifier_finder_state>;

constexpr auto try_again = 500ms;
constexpr auto answer_limit = 5000ms;

void forget(self_ptr self) {
  auto& st = state_of(self);
  st.incarnation = 0;
  if (!st.verifier)
    return;
  unwatch(self, st.watched, st.verifier);
  st.verifier = spec_verifier_actor();
  tell(self, st.setup.own, group_verifier{});
}

// The process has answered; it has no verifier if another one leads its engine.
void use(self_ptr self, const spec_verifier_actor& v) {
  auto& st = state_of(self);
  if (!v)
    return forget(self);
  st.verifier = v;
  watch(self, st.watched, v, [=](const caf::error&) {
    if (state_of(self).verifier == v)
      forget(self);
  });
  tell(self, st.setup.own, group_verifier{v});
}

void follow(self_ptr self) {
  auto& st = state_of(self);
  const std::uint64_t wanted = st.before.empty() ? 0 : st.before.begin()->second.incarnation;
  if (wanted == st.incarnation)
    return;
  forget(self);
  if (wanted == 0)
    return;
  const member& who = st.before.begin()->second;
  const auto found = connect<worker_root_actor>(self->system(), {who.host, who.port});
  if (!found)
    return; // the next tick tries again
  st.incarnation = wanted;
  const auto still = [=] { return state_of(self).incarnation == wanted; };
  ask(self, *found, answer_limit, engine_query{})
      .then(
          [=](const engine_info& i) {
            if (still())
              use(self, i.verifier);
          },
          [=](const caf::error&) {
            if (still())
              forget(self);
          });
}

// A view that does not name a rank says nothing of it: a new leader hears of its members one by one.
void take_view(self_ptr self, const view& v) {
  auto& st = state_of(self);
  for (const member_entry& e : v.members) {
    if (e.who.role != member_role::worker || e.who.rank < st.setup.first || e.who.rank >= st.setup.rank)
      continue;
    if (!is_over(e.state))
      st.before[e.who.rank] = e.who;
    else if (const auto at = st.before.find(e.who.rank);
             at != st.before.end() && at->second.incarnation == e.who.incarnation)
      st.before.erase(at);
  }
  follow(self);
}

} // namespace

verifier_finder_actor::behavior_type verifier_finder(self_ptr self, const verifier_finder_setup& setup) {
  state_of(self).setup = setup;
  tell_later(self, try_again, tick{});
  return {
      [=](const view& v) { take_view(self, v); },
      [=](const tick&) {
        follow(self);
        tell_later(self, try_again, tick{});
      },
      [=](const stop&) {
        auto& st = state_of(self);
        if (st.verifier)
          unwatch(self, st.watched, st.verifier);
        self->quit();
      },
  };
}

} // namespace troupe
