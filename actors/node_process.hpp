// The agent of one host in a cluster: runs until the object goes, and its workers with it.
#pragma once
#include "actors/cluster_system.hpp"
#include "actors/member.hpp"
#include "actors/node_agent.hpp"
#include <atomic>

namespace troupe {

struct node_setup {
  process_identity process;
  std::string host = "127.0.0.1";
  node_agent_setup agent;
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
