#include "actors/worker_root.hpp"
#include "actors/executor.hpp"
#include "actors/grammar_pool.hpp"
#include "actors/kv_manager.hpp"
#include "actors/placement.hpp"
#include "actors/spec_verifier.hpp"

namespace troupe {

namespace {

using self_ptr = worker_root_actor::stateful_pointer<worker_root_state>;

template <class F, class... Ts> auto spawn_executor(self_ptr self, F f, Ts&&... xs) {
  return state_of(self).setup->own_threads ? self->spawn<caf::detached>(f, std::forward<Ts>(xs)...)
                                           : self->spawn(f, std::forward<Ts>(xs)...);
}

// An engine that lost a part answers nothing any more: its scheduler ends what is alive, the gateway sends it no more.
void engine_lost(self_ptr self, std::uint32_t rank, const std::string& why) {
  auto& st = state_of(self);
  if (st.told > 0)
    return;
  tell(self, st.parts.engines[rank].scheduler, rank_lost{rank, why});
  if (st.parts.front)
    tell(self, st.parts.front, rank_lost{rank, why});
  if (const auto& f = st.setup->on_engine_lost)
    f(why);
}

void stop_group(self_ptr self, std::size_t which) {
  auto& parts = state_of(self).parts;
  if (which == worker_root_state::front)
    tell(self, parts.front, stop{});
  for (const engine_handles& e : parts.engines) {
    if (which == worker_root_state::schedulers)
      tell(self, e.scheduler, stop{});
    if (which != worker_root_state::workers)
      continue;
    tell(self, e.kv, stop{});
    tell(self, e.verifier, stop{});
    tell(self, e.executor, stop{});
  }
  if (which == worker_root_state::workers) {
    tell(self, parts.placement, stop{});
    if (parts.group_sync)
      tell(self, parts.group_sync, stop{});
    if (parts.grammars)
      tell(self, parts.grammars, stop{});
  }
  if (which == worker_root_state::followers) {
    for (const context_ranks& c : state_of(self).setup->context)
      c.team->meeting->end("the process ends"); // rank 0 is gone: nobody may wait for it
    for (const engine_handles& e : parts.engines)
      for (const auto& f : e.followers)
        tell(self, f, stop{});
  }
  if (which == worker_root_state::experts)
    for (const auto& e : parts.experts)
      tell(self, e, stop{});
}

// Tells the next groups to stop as soon as those before have ended; without any left the root ends.
void go_on_stopping(self_ptr self) {
  auto& st = state_of(self);
  while (st.told < worker_root_state::groups && (st.told == 0 || st.left[st.told - 1] == 0)) {
    if (st.left[st.told] > 0)
      stop_group(self, st.told);
    ++st.told;
  }
  if (st.told < worker_root_state::groups || st.left[worker_root_state::experts] > 0)
    return;
  // a detached actor's thread lasts as long as a handle to it
  if (st.setup->exchange)
    st.setup->exchange->members.clear();
  for (const context_ranks& c : st.setup->context)
    c.team->followers.clear();
  self->quit();
}

template <class Handle, class F>
void supervise(self_ptr self, const Handle& child, worker_root_state::group g, F on_end) {
  auto& st = state_of(self);
  ++st.left[g];
  watch(self, st.watched, child, [=](const caf::error& why) {
    --state_of(self).left[g];
    if (state_of(self).told > 0)
      go_on_stopping(self);
    else
      on_end(text(self->system(), why));
  });
}

// The executors of an engine's other ranks; before its own, which sends them steps.
std::vector<executor_actor> start_followers(self_ptr self, std::uint32_t rank) {
  auto& st = state_of(self);
  std::vector<executor_actor> out;
  if (st.setup->context.empty())
    return out;
  const context_ranks& c = st.setup->context[rank];
  for (std::size_t i = 0; i < c.engines.size(); ++i)
    out.push_back(spawn_executor(self, executor, rank, c.engines[i], st.parts.placement, c.cores[i]));
  c.team->followers = out;
  return out;
}

// Engines that share experts wait for one another: they are one group with one verifier. Others are groups of their
// own. Where they are in several processes, each has a verifier for all of them, and one is used (verifier_finder).
std::uint32_t first_of_group(const process_setup& p, std::uint32_t rank) {
  return p.experts.empty() ? rank : 0;
}

spec_verifier_actor start_verifier(self_ptr self, std::uint32_t first);

void tell_verifier(self_ptr self, const engine_handles& e) {
  const spec_verifier_actor& elsewhere = state_of(self).elsewhere;
  tell(self, e.scheduler, new_verifier{elsewhere ? elsewhere : e.verifier});
}

constexpr int most_restarts = 3; // of an actor whose state can be learned again: a fault that comes back at once ends

// Its group decides by itself meanwhile.
void verifier_ended(self_ptr self, std::uint32_t first) {
  auto& st = state_of(self);
  if (++st.verifier_restarts[first] > most_restarts)
    return;
  const spec_verifier_actor next = start_verifier(self, first);
  for (std::uint32_t rank = first; rank < st.parts.engines.size(); ++rank)
    if (first_of_group(*st.setup, rank) == first) {
      st.parts.engines[rank].verifier = next;
      tell_verifier(self, st.parts.engines[rank]);
    }
}

spec_verifier_actor start_verifier(self_ptr self, std::uint32_t first) {
  const process_setup& p = *state_of(self).setup;
  group_settings g = p.speculation;
  g.ranks = p.part ? p.part->place().ranks : p.experts.empty() ? 1 : static_cast<std::int32_t>(p.engines.size());
  const spec_verifier_actor v = self->spawn(spec_verifier, g);
  supervise(self, v, worker_root_state::workers, [=](const std::string&) { verifier_ended(self, first); });
  return v;
}

spec_verifier_actor verifier_for(self_ptr self, std::uint32_t rank) {
  auto& st = state_of(self);
  st.verifier_restarts.resize(st.setup->engines.size());
  const std::uint32_t first = first_of_group(*st.setup, rank);
  return first == rank ? start_verifier(self, rank) : st.parts.engines[first].verifier;
}

engine_handles start_engine(self_ptr self, std::uint32_t rank) {
  auto& st = state_of(self);
  const process_setup& p = *st.setup;
  engine_handles e;
  e.kv = self->spawn(kv_manager, p.kv);
  e.followers = start_followers(self, rank);
  const int core = rank < p.engine_cores.size() ? p.engine_cores[rank] : -1;
  e.executor = spawn_executor(self, executor, rank, p.engines[rank], st.parts.placement, core);
  scheduler_setup s;
  s.rank = rank;
  s.limits = p.limits;
  s.step_curve = p.speculation.curve;
  s.drafting = p.speculation.drafting;
  s.untimed_sizes = p.speculation.untimed_sizes;
  s.kv = e.kv;
  s.executor = e.executor;
  s.group_rank = p.part ? static_cast<std::uint32_t>(p.part->place().rank) : rank - first_of_group(p, rank);
  s.verifier = e.verifier = verifier_for(self, rank);
  s.alone = !p.part && (p.experts.empty() || p.engines.size() == 1);
  s.step_limit = p.step_limit;
  s.mask_threads = p.mask_threads;
  s.handoffs = p.handoffs;
  e.scheduler = self->spawn(scheduler, s);
  return e;
}

// The coordinator of the engines' steps. Lost too often, the engines decide alone again.
void start_group_sync(self_ptr self) {
  auto& st = state_of(self);
  constexpr std::uint32_t epochs = 1u << 24; // of one coordinator
  const int start = st.group_sync_starts++;
  const std::uint32_t epoch = static_cast<std::uint32_t>(start) * epochs;
  st.parts.group_sync = group_sync_actor();
  if (start <= most_restarts) {
    const step_group_settings& steps = *st.setup->group_sync;
    const auto tick = std::max(std::chrono::milliseconds(1), st.setup->step_limit / (2 * steps.deadline_ticks));
    st.parts.group_sync = self->spawn(group_sync, group_sync_setup{steps, epoch, tick});
    supervise(self, st.parts.group_sync, worker_root_state::workers,
              [=](const std::string&) { start_group_sync(self); });
  }
  for (const engine_handles& e : st.parts.engines)
    tell(self, e.scheduler, enter_group{st.parts.group_sync, epoch});
}

// What compiles constraints. Lost too often, requests for them are refused.
void start_grammar_pool(self_ptr self) {
  auto& st = state_of(self);
  st.parts.grammars = grammar_pool_actor();
  if (st.setup->grammars.vocabulary && st.grammar_pool_starts++ <= most_restarts) {
    st.parts.grammars = self->spawn(grammar_pool, st.setup->grammars, st.setup->own_threads);
    supervise(self, st.parts.grammars, worker_root_state::workers,
              [=](const std::string&) { start_grammar_pool(self); });
  }
  for (const engine_handles& e : st.parts.engines)
    tell(self, e.scheduler, new_grammar_pool{st.parts.grammars});
}

// A rank that ends takes its group with it: the others must not wait for it.
void rank_ended(self_ptr self, std::uint32_t rank, const std::string& why) {
  const auto& context = state_of(self).setup->context;
  if (!context.empty())
    context[rank].team->meeting->end(why);
  engine_lost(self, rank, why);
}

void supervise_engine(self_ptr self, std::uint32_t rank) {
  using state = worker_root_state;
  const engine_handles e = state_of(self).parts.engines[rank];
  supervise(self, e.kv, state::workers,
            [=](const std::string& why) { engine_lost(self, rank, "KV manager ended: " + why); });
  supervise(self, e.executor, state::workers,
            [=](const std::string& why) { rank_ended(self, rank, "executor ended: " + why); });
  for (std::size_t i = 0; i < e.followers.size(); ++i)
    supervise(self, e.followers[i], state::followers, [=](const std::string& why) {
      rank_ended(self, rank, "executor of context-parallel rank " + std::to_string(i + 1) + " ended: " + why);
    });
  supervise(self, e.scheduler, state::schedulers,
            [=](const std::string& why) { engine_lost(self, rank, "scheduler ended: " + why); });
}

void start_experts(self_ptr self) {
  auto& st = state_of(self);
  for (std::size_t i = 0; i < st.setup->experts.size(); ++i) {
    st.parts.experts.push_back(spawn_executor(self, expert_executor, st.setup->experts[i]));
    supervise(self, st.parts.experts.back(), worker_root_state::experts, [=](const std::string& why) {
      state_of(self).setup->exchange->broken.store(true);
      for (std::uint32_t rank = 0; rank < state_of(self).parts.engines.size(); ++rank)
        engine_lost(self, rank, "expert executor " + std::to_string(i) + " ended: " + why);
    });
  }
  if (st.setup->exchange)
    st.setup->exchange->members = st.parts.experts;
}

// Requests that it had not seen end here, the others with their sessions; new ones are refused.
void front_lost(self_ptr self, const std::string& why) {
  const process_setup& p = *state_of(self).setup;
  if (!p.live)
    return;
  const error failure{"engine_lost", "the gateway ended: " + why};
  for (const auto& r : p.live->close(failure))
    end_unserved(*r, resolve_seed(*r, p.front.seed, p.front.random_bits), finish_reason::error, failure);
}

void start_gateway(self_ptr self) {
  auto& st = state_of(self);
  gateway_setup front = st.setup->front;
  front.limits = st.setup->limits;
  front.kv = st.setup->kv;
  for (const engine_handles& e : st.parts.engines)
    front.schedulers.push_back(e.scheduler);
  st.parts.front = self->spawn(gateway, front);
  supervise(self, st.parts.front, worker_root_state::front, [=](const std::string& why) { front_lost(self, why); });
}

const started& start_all(self_ptr self) {
  auto& st = state_of(self);
  if (!st.parts.engines.empty())
    return st.parts;
  const auto ranks = static_cast<std::int32_t>(std::max<std::size_t>(st.setup->experts.size(), 1));
  st.parts.placement = self->spawn(placement, st.setup->layers, st.setup->routed_experts, ranks);
  supervise(self, st.parts.placement, worker_root_state::workers, [](const std::string&) {});
  start_experts(self);
  for (std::uint32_t rank = 0; rank < st.setup->engines.size(); ++rank) {
    st.parts.engines.push_back(start_engine(self, rank));
    supervise_engine(self, rank);
  }
  if (st.setup->group_sync)
    start_group_sync(self);
  start_grammar_pool(self);
  if (st.setup->front.vocabulary)
    start_gateway(self);
  return st.parts;
}

// Of engine 0: between processes every worker is one engine.
engine_info info_of(const worker_root_state& st) {
  engine_info i;
  i.rank = st.setup->rank;
  if (!st.parts.engines.empty()) {
    i.scheduler = st.parts.engines.front().scheduler;
    i.kv = st.parts.engines.front().kv;
    i.verifier = st.parts.engines.front().verifier;
  }
  i.limits = st.setup->limits;
  i.numerics_id = st.setup->kv.numerics_id;
  i.model = st.setup->model;
  i.kind = st.setup->kind;
  i.handoffs = st.setup->handoffs_at;
  return i;
}

} // namespace

worker_root_actor::behavior_type worker_root(self_ptr self, std::shared_ptr<const process_setup> setup) {
  state_of(self).setup = std::move(setup);
  return {
      [=](const start&) { return start_all(self); },
      [=](const engine_query&) { return info_of(state_of(self)); },
      [=](const group_verifier& g) {
        state_of(self).elsewhere = g.verifier;
        for (const engine_handles& e : state_of(self).parts.engines)
          tell_verifier(self, e);
      },
      [=](const stop&) { go_on_stopping(self); },
  };
}

} // namespace troupe
