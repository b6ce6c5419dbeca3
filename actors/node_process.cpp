#include "actors/node_process.hpp"
#include <thread>

namespace troupe {

using namespace std::chrono_literals;

node_process::node_process(node_setup s) : config_(s.process.cluster, 2), stop_limit_(s.agent.stop_limit) {
  voter_ = system_.spawn<caf::detached>(voter, s.votes, kept_votes(s.votes));
  const auto port = publish(system_, voter_, s.at);
  if (!port) {
    tell_from_outside(voter_, stop{});
    wait_for_actors(system_, 5s);
    throw config_error("", "control.port", std::to_string(s.at.port), port.failure().message,
                       "give another port, or stop what listens there");
  }
  port_ = *port;
  s.agent.done = done_;
  s.agent.on_given_up = [this](const worker_end& e) {
    const std::lock_guard lock(mutex_);
    given_up_.push_back(e);
  };
  agent_ = system_.spawn(node_agent, s.agent);
  member_setup m = member_setup_of(s.process, member_role::node_agent, 0, {s.at.host, port_});
  m.on_expelled = [this](const std::string& why) {
    const std::lock_guard lock(mutex_);
    expelled_ = why;
  };
  m.on_view = [to = agent_](const view& v) { tell_from_outside(to, v); };
  m.given_up = [this] {
    const std::lock_guard lock(mutex_);
    return given_up_;
  };
  m.comes_back = true; // a host that was away for long has the same workers
  m.on_stop = [this](bool) { told_to_stop_ = true; };
  member_ = system_.spawn<caf::detached>(cluster_member, m);
}

std::optional<std::string> node_process::expelled() const {
  const std::lock_guard lock(mutex_);
  return expelled_;
}

node_process::~node_process() {
  tell_from_outside(agent_, stop{});
  const auto last = std::chrono::steady_clock::now() + stop_limit_ + 5s;
  while (!done_->load() && std::chrono::steady_clock::now() < last) // while workers end, the node is still there
    std::this_thread::sleep_for(5ms);
  tell_from_outside(member_, stop{});
  unpublish(system_, voter_, port_);
  tell_from_outside(voter_, stop{});
  if (const std::size_t left = wait_for_actors(system_, 5s))
    give_up_on_actors(left);
}

} // namespace troupe
