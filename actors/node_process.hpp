// The agent of one host in a cluster: runs until the object goes, and its workers with it.
#pragma once
#include "actors/cluster_system.hpp"
#include "actors/member.hpp"
#include "actors/node_agent.hpp"
#include <atomic>

namespace troupe {

struct node_setup {
  cluster_identity cluster;
  std::string name, node; // "node.n0", "n0"
  std::string host = "127.0.0.1";
  std::uint64_t incarnation = 0;
  node_agent_setup agent;
  std::chrono::milliseconds beat{200}, orphan_limit{60000};
};

class node_process {
public:
  explicit node_process(node_setup setup);
  ~node_process(); // ends the workers
  node_process(const node_process&) = delete;
  node_process& operator=(const node_process&) = delete;

  bool told_to_stop() const { return told_to_stop_; }

private:
  cluster_system_config config_;
  caf::actor_system system_{config_};
  node_agent_actor agent_;
  member_actor member_;
  std::chrono::milliseconds stop_limit_;
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false); // all workers have ended
  std::atomic<bool> told_to_stop_{false};
};

} // namespace troupe
