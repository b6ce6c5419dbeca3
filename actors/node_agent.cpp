#include "actors/node_agent.hpp"
#include "cluster/incarnation.hpp"
#include <algorithm>
#include <csignal>
#include <fstream>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = node_agent_actor::stateful_pointer<node_agent_state>;
using state = node_agent_state;

constexpr auto look_every = 50ms;
constexpr int usage_exit = 2; // what is wrong will be wrong again

void adopt(state& st, std::size_t i) {
  const auto r = st.setup.state->read(st.setup.workers[i].name);
  if (!r)
    return;
  if (auto p = child_process::adopt(r->pid, r->ticks)) {
    spdlog::info("event=worker_adopted worker={} pid={} incarnation={}", r->name, r->pid, r->incarnation);
    st.workers[i].process.emplace(std::move(*p));
    st.workers[i].incarnation = r->incarnation;
  }
}

// Until the worker itself says where it is reached.
void record(state& st, const std::string& name, const child_process& p, std::uint64_t incarnation) {
  try {
    if (const auto own = st.setup.state->read(name); !own || own->incarnation != incarnation)
      st.setup.state->write({name, p.pid(), start_ticks(p.pid()).value_or(0), incarnation, {}, st.setup.configuration});
  } catch (const config_error& e) {
    spdlog::error("event=no_record worker={} why=\"{}\"", name, e.what());
  }
}

std::string last_line(const std::string& file) {
  std::ifstream in(file);
  std::string last, line;
  while (std::getline(in, line))
    if (!line.empty())
      last = line;
  return last;
}

void give_up(state& st, std::size_t i, const std::string& why) {
  state::worker& w = st.workers[i];
  w.given_up = true;
  const std::string& name = st.setup.workers[i].name;
  spdlog::error("event=worker_given_up worker={} starts={}", name, w.starts.size());
  const std::string said = last_line(st.setup.state->log_file(name, w.incarnation));
  if (const auto& f = st.setup.on_given_up)
    f({name, why + (said.empty() ? "" : ": " + said)});
}

void start(self_ptr self, std::size_t i) {
  auto& st = state_of(self);
  state::worker& w = st.workers[i];
  const auto& what = st.setup.workers[i];
  const auto now = self->clock().now();
  const std::uint64_t incarnation = mint_incarnation();
  child_process::command c{what.arguments, st.setup.state->log_file(what.name, incarnation), st.setup.workers_die_too};
  c.arguments.insert(c.arguments.end(), {"--incarnation", std::to_string(incarnation)});
  w.starts.push_back(now);
  auto p = child_process::start(c);
  if (!p) {
    spdlog::error("event=worker_not_started worker={} why=\"{}\"", what.name, p.failure().message);
    return give_up(st, i, p.failure().message);
  }
  spdlog::info("event=worker_started worker={} pid={} incarnation={}", what.name, p->pid(), incarnation);
  record(st, what.name, *p, incarnation);
  w.process.emplace(std::move(*p));
  w.incarnation = incarnation;
  w.condemned.reset();
}

// Frozen or stuck workers cannot end by themselves, and hold their places until they do.
void condemn_dead(self_ptr self, const view& v) {
  auto& st = state_of(self);
  for (const member_entry& m : v.members) {
    if (m.who.role == member_role::node_agent || m.state != member_state::dead)
      continue;
    for (std::size_t i = 0; i < st.workers.size(); ++i)
      if (state::worker& w = st.workers[i]; w.incarnation == m.who.incarnation && w.process && !w.condemned) {
        spdlog::warn("event=worker_held_for_dead worker={} incarnation={}", m.who.name, w.incarnation);
        w.condemned = self->clock().now() + st.setup.grace;
      }
  }
}

// A worker has ended without being told to.
void plan_restart(self_ptr self, std::size_t i) {
  auto& st = state_of(self);
  state::worker& w = st.workers[i];
  const restart_policy& policy = st.setup.restarts;
  const auto now = self->clock().now();
  const std::string& name = st.setup.workers[i].name;
  spdlog::error("event=worker_down worker={} status=\"{}\" log={}/log", name, w.process->exit_text(),
                st.setup.state->path());
  const bool hopeless = w.process->exit_code() == usage_exit;
  const std::string how = w.process->exit_text();
  w.process.reset();
  st.setup.state->remove(name);
  while (!w.starts.empty() && now - w.starts.front() > policy.window)
    w.starts.pop_front();
  if (hopeless || std::ssize(w.starts) > policy.most)
    give_up(st, i, how);
  auto pause = policy.pause;
  for (std::size_t k = 1; k < w.starts.size() && pause < policy.longest_pause; ++k)
    pause *= 2;
  w.not_before = now + std::min(pause, policy.longest_pause);
}

void look(self_ptr self) {
  auto& st = state_of(self);
  const auto now = self->clock().now();
  bool any = false;
  for (std::size_t i = 0; i < st.workers.size(); ++i) {
    state::worker& w = st.workers[i];
    if (w.process && w.process->running()) {
      any = true;
      if ((st.kill_at && now >= *st.kill_at) || (w.condemned && now >= *w.condemned))
        w.process->signal(SIGKILL);
    } else if (st.kill_at) {
      w.process.reset();
    } else if (w.process) {
      plan_restart(self, i);
    } else if (!w.given_up && now >= w.not_before) {
      start(self, i);
    }
  }
  if (st.kill_at && !any) {
    st.setup.done->store(true);
    self->quit();
    return;
  }
  tell_later(self, look_every, tick{});
}

void stop_all(self_ptr self) {
  auto& st = state_of(self);
  if (st.kill_at)
    return;
  st.kill_at = self->clock().now() + st.setup.stop_limit;
  for (state::worker& w : st.workers)
    if (w.process)
      w.process->signal(SIGTERM);
}

} // namespace

node_agent_actor::behavior_type node_agent(self_ptr self, const node_agent_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  st.workers.resize(setup.workers.size());
  for (std::size_t i = 0; i < st.workers.size(); ++i)
    adopt(st, i);
  tell(self, node_agent_actor(self), tick{});
  return {
      [=](const view& v) { condemn_dead(self, v); },
      [=](const tick&) { look(self); },
      [=](const stop&) { stop_all(self); },
  };
}

} // namespace troupe
