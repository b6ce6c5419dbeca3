// The agent of one host in a cluster: runs until the object goes, and its workers with it.
#pragma once
#include "actors/cluster_system.hpp"
#include "actors/member.hpp"
#include "actors/node_agent.hpp"
#include "actors/voter.hpp"
#include <atomic>
#include <mutex>
#include <optional>

namespace troupe {

struct node_setup {
  process_identity process;
  endpoint at{"127.0.0.1", 0}; // port 0: any
  voter_setup votes;
  node_agent_setup agent;
};

class node_process {
public:
  explicit node_process(node_setup setup); // throws config_error: port in use, votes that cannot be read
  ~node_process();                         // ends the workers
  node_process(const node_process&) = delete;
  node_process& operator=(const node_process&) = delete;

  std::uint16_t port() const { return port_; }
  bool told_to_stop() const { return told_to_stop_; }
  // Why the cluster goes on without this process, once it does.
  std::optional<std::string> expelled() const;

private:
  cluster_system_config config_;
  bounded_system system_{config_};
  voter_actor voter_;
  std::uint16_t port_ = 0;
  node_agent_actor agent_;
  member_actor member_;
  mutable std::mutex mutex_;
  std::optional<std::string> expelled_;
  std::vector<worker_end> given_up_;
  std::chrono::milliseconds stop_limit_;
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false); // all workers have ended
  std::atomic<bool> told_to_stop_{false};
};

} // namespace troupe
