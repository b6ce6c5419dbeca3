#include "actors/grammar_pool.hpp"
#include <algorithm>

namespace troupe {

namespace {

using self_ptr = grammar_pool_actor::stateful_pointer<grammar_pool_state>;
using state = grammar_pool_state;

void start_jobs(self_ptr self);

std::string shown_seconds(double s) {
  std::string text = std::to_string(s);
  while (text.ends_with('0'))
    text.pop_back();
  return text.ends_with('.') ? text + '0' : text;
}

void answer(self_ptr self, const state::waiter_key& key, const constraint_cache::entry& compiled) {
  auto& st = state_of(self);
  const auto at = st.waiters.find(key);
  if (at == st.waiters.end())
    return;
  grammar_done d;
  d.number = key.second;
  if (compiled)
    d.grammar = *compiled;
  else if (compiled.failure().code == "so_timeout") // a compiler's: not kept, since it may be quicker another time
    d.failure = {"so_too_complex", "compiling it takes more than " + shown_seconds(st.settings.compile_seconds) +
                                       " s of processor time; simplify it"};
  else
    d.failure = compiled.failure();
  tell(self, at->second.scheduler, std::move(d));
  st.waiters.erase(at);
}

// One reminder at a time, for the first who has waited too long.
void remind(self_ptr self) {
  auto& st = state_of(self);
  if (st.waiters.empty() || std::exchange(st.ticking, true))
    return;
  const auto first =
      std::ranges::min_element(st.waiters, {}, [](const auto& w) { return w.second.deadline; })->second.deadline;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(first - self->clock().now());
  tell_later(self, std::max(std::chrono::milliseconds(1), left + std::chrono::milliseconds(1)), grammar_tick{});
}

// Takes a job off the books; what still compiles it gives up.
state::job remove_job(state& st, std::uint64_t number) {
  state::job j = std::move(st.jobs.at(number));
  st.jobs.erase(number);
  st.by_key.erase(j.key);
  return j;
}

void leave(self_ptr self, const state::waiter_key& key) {
  auto& st = state_of(self);
  const auto at = st.waiters.find(key);
  if (at == st.waiters.end())
    return;
  const std::uint64_t job = at->second.job;
  st.waiters.erase(at);
  std::erase(st.jobs.at(job).waiters, key);
  if (!st.jobs.at(job).waiters.empty())
    return;
  remove_job(st, job).given_up->store(true, std::memory_order_relaxed);
  ++st.counts.given_up;
}

void tick(self_ptr self) {
  auto& st = state_of(self);
  st.ticking = false;
  const auto now = self->clock().now();
  std::vector<state::waiter_key> late;
  for (const auto& [key, w] : st.waiters)
    if (w.deadline <= now)
      late.push_back(key);
  for (const state::waiter_key& key : late) {
    tell(self, st.waiters.at(key).scheduler,
         grammar_done{key.second,
                      nullptr,
                      {"so_timeout", "the constraint was not compiled within " +
                                         std::to_string(st.settings.time_limit.count()) +
                                         " ms, waiting for other constraints included (so_timeout); try again later"}});
    leave(self, key);
  }
  start_jobs(self);
  remind(self);
}

void finish_job(self_ptr self, std::uint64_t number, const constraint_cache::entry& compiled, double seconds) {
  auto& st = state_of(self);
  if (!st.jobs.contains(number))
    return; // given up
  ++(compiled ? st.counts.compiled : st.counts.refused);
  st.counts.compile_time.observe(seconds);
  const state::job j = remove_job(st, number);
  st.cache->insert(j.key, compiled);
  for (const state::waiter_key& w : j.waiters)
    answer(self, w, compiled);
}

// A compiler has answered.
void take_done(self_ptr self, const grammar_done& d) {
  auto& st = state_of(self);
  for (state::compiler& c : st.compilers)
    if (c.job == d.number)
      c.job = 0;
  if (d.grammar)
    finish_job(self, d.number, d.grammar, d.seconds);
  else
    finish_job(self, d.number, d.failure, d.seconds);
  start_jobs(self);
}

// What it worked on is tried once more, by another: it need not be the cause.
void compiler_ended(self_ptr self, const caf::actor_addr& who) {
  auto& st = state_of(self);
  const auto at = std::ranges::find_if(st.compilers, [&](const auto& c) { return c.actor.address() == who; });
  if (at == st.compilers.end())
    return;
  const std::uint64_t number = at->job;
  st.compilers.erase(at);
  if (st.stopping) {
    if (st.compilers.empty())
      self->quit();
    return;
  }
  ++st.counts.lost;
  if (const auto j = st.jobs.find(number); j != st.jobs.end()) {
    if (std::exchange(j->second.tried, true))
      finish_job(self, number, error{"so_internal", "what compiled it ended twice; this is a fault of the engine"}, 0);
    else
      st.queue.push_front(number);
  }
  start_jobs(self);
}

state::compiler* free_compiler(self_ptr self) {
  auto& st = state_of(self);
  for (state::compiler& c : st.compilers)
    if (c.job == 0)
      return &c;
  if (std::ssize(st.compilers) >= st.settings.compilers)
    return nullptr;
  const grammar_pool_actor pool{self};
  const grammar_compiler_actor made = st.own_threads ? self->spawn<caf::detached>(grammar_compiler, st.settings, pool)
                                                     : self->spawn(grammar_compiler, st.settings, pool);
  watch(self, st.watched, made, [self, who = made.address()](const caf::error&) { compiler_ended(self, who); });
  st.compilers.push_back({made});
  return &st.compilers.back();
}

void start_jobs(self_ptr self) {
  auto& st = state_of(self);
  while (!st.queue.empty() && !st.stopping) {
    const std::uint64_t number = st.queue.front();
    if (!st.jobs.contains(number)) {
      st.queue.pop_front();
      continue;
    }
    state::compiler* c = free_compiler(self);
    if (c == nullptr)
      return;
    st.queue.pop_front();
    const state::job& j = st.jobs.at(number);
    c->job = number;
    tell(self, c->actor, grammar_job{number, j.what, j.given_up});
  }
}

void want(self_ptr self, const grammar_wanted& w) {
  auto& st = state_of(self);
  const auto scheduler = caf::actor_cast<scheduler_actor>(self->current_sender());
  const state::waiter_key who{scheduler->id(), w.number};
  std::string key = constraint_key(*w.what, w.salt);
  st.waiters[who] = {scheduler, 0, self->clock().now() + st.settings.time_limit};
  if (const auto known = st.cache->find(key)) {
    ++st.counts.hits;
    return answer(self, who, *known);
  }
  const auto [at, is_new] = st.by_key.try_emplace(key, st.last_job + 1);
  if (is_new) {
    st.jobs.emplace(++st.last_job, state::job{.key = std::move(key), .what = w.what});
    st.queue.push_back(st.last_job);
  }
  st.waiters[who].job = at->second;
  st.jobs.at(at->second).waiters.push_back(who);
  remind(self);
  start_jobs(self);
}

void stop_all(self_ptr self) {
  auto& st = state_of(self);
  st.stopping = true;
  for (auto& [number, j] : st.jobs)
    j.given_up->store(true, std::memory_order_relaxed);
  for (const state::compiler& c : st.compilers)
    tell(self, c.actor, stop{});
  if (st.compilers.empty())
    self->quit();
}

grammar_report report_of(const state& st) {
  grammar_report r = st.counts;
  r.waiting = st.waiters.size();
  for (const state::compiler& c : st.compilers)
    r.running += c.job != 0 ? 1 : 0;
  for (const std::uint64_t number : st.queue)
    r.queued += st.jobs.contains(number) ? 1 : 0;
  r.kept = st.cache->size();
  r.kept_bytes = st.cache->bytes();
  return r;
}

} // namespace

grammar_pool_actor::behavior_type grammar_pool(self_ptr self, const grammar_settings& settings, bool own_threads) {
  auto& st = state_of(self);
  st.settings = settings;
  st.cache.emplace(settings.cache_bytes);
  st.own_threads = own_threads;
  return {
      [=](const grammar_wanted& w) { want(self, w); },
      [=](const grammar_unwanted& u) {
        leave(self, {self->current_sender()->id(), u.number});
      },
      [=](const grammar_done& d) { take_done(self, d); },
      [=](const grammar_tick&) { tick(self); },
      [=](const grammar_query&) { return report_of(state_of(self)); },
      [=](const stop&) { stop_all(self); },
  };
}

} // namespace troupe
