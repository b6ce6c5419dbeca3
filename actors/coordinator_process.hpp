// A coordinator of a cluster, leading or standing by: runs until the object goes.
#pragma once
#include "actors/cluster_system.hpp"
#include "actors/group_placement.hpp"
#include "actors/leadership.hpp"
#include "actors/membership.hpp"
#include <atomic>

namespace troupe {

struct coordinator_setup {
  cluster_identity cluster;
  std::string name; // "coordinator.0"
  std::string toml; // the resolved configuration
  // The node agents that decide who leads; without any, this process does, and must be the only coordinator.
  std::optional<leadership_setup> votes;
  std::vector<expert_group_setup> groups; // of ranks that share experts
  endpoint at;                            // port 0: any
  liveness_limits limits;
  view_limits views;
  std::int64_t collect_ms = 2000;                       // membership_setup
  std::vector<std::int64_t> stuck_ms;                   // membership_setup
  std::optional<std::chrono::milliseconds> drain_limit; // membership_setup
  std::chrono::milliseconds stop_limit{10000};
};

class coordinator_process {
public:
  explicit coordinator_process(const coordinator_setup& setup); // throws config_error: port in use
  ~coordinator_process();
  coordinator_process(const coordinator_process&) = delete;
  coordinator_process& operator=(const coordinator_process&) = delete;

  std::uint16_t port() const { return port_; }
  bool shut_down() const { return shut_down_; } // the cluster was stopped: this process is the last

private:
  void stop_actors();

  cluster_system_config config_;
  bounded_system system_{config_};
  membership_actor membership_;
  std::vector<expert_group_actor> groups_;
  leadership_actor leadership_; // null without votes
  std::uint16_t port_ = 0;
  std::atomic<bool> shut_down_{false};
};

} // namespace troupe
