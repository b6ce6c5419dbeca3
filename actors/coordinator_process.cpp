#include "actors/coordinator_process.hpp"
#include "cluster/build_id.hpp"

namespace troupe {

using namespace std::chrono_literals;

coordinator_process::coordinator_process(const coordinator_setup& s) : config_(s.cluster, 4) {
  membership_setup m;
  m.name = s.name;
  m.term = s.votes ? 0 : 1;
  m.build = build_id();
  m.configuration = s.cluster.configuration;
  m.limits = s.limits;
  m.stuck_ms = s.stuck_ms;
  m.views = s.views;
  m.collect_ms = s.collect_ms;
  m.drain_limit = s.drain_limit;
  m.stop_limit = s.stop_limit;
  m.toml = s.toml;
  if (s.cluster.tls)
    m.authority = s.cluster.tls->authority;
  m.on_shut_down = [this] { shut_down_ = true; };
  for (expert_group_setup g : s.groups) {
    g.authority = m.authority;
    groups_.push_back(system_.spawn(group_placement, g));
    m.groups.push_back({g.first, static_cast<std::uint32_t>(g.node.size()), groups_.back()});
  }
  membership_ = system_.spawn(membership, m);
  const auto port = publish(system_, membership_, s.at);
  if (!port) {
    stop_actors();
    wait_for_actors(system_, 5s);
    throw config_error("", "control.port", std::to_string(s.at.port), port.failure().message,
                       "give another port, or stop what listens there");
  }
  port_ = *port;
  if (s.votes)
    leadership_ = system_.spawn<caf::detached>(leadership, *s.votes, membership_);
}

void coordinator_process::stop_actors() {
  if (leadership_)
    tell_from_outside(leadership_, stop{});
  tell_from_outside(membership_, stop{});
  for (const expert_group_actor& g : groups_)
    tell_from_outside(g, stop{});
}

coordinator_process::~coordinator_process() {
  stop_actors();
  if (const std::size_t left = wait_for_actors(system_, 5s))
    give_up_on_actors(left);
}

} // namespace troupe
