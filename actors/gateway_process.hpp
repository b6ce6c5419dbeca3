// A gateway of a cluster as a process of its own: client processes have their requests computed through it. Runs until
// the object goes.
#pragma once
#include "actors/cluster_system.hpp"
#include "actors/gateway_entry.hpp"
#include "actors/member.hpp"
#include <atomic>
#include <mutex>
#include <optional>

namespace troupe {

struct gateway_process_setup {
  process_identity process;
  endpoint at{"127.0.0.1", 0}; // for clients; port 0: any
  gateway_source source;
  gateway_limits limits;
};

class gateway_process {
public:
  explicit gateway_process(const gateway_process_setup& setup); // throws config_error: port in use, no such model
  ~gateway_process(); // with a ledger its requests stay open in it; else they end
  gateway_process(const gateway_process&) = delete;
  gateway_process& operator=(const gateway_process&) = delete;

  std::uint16_t port() const { return port_; }
  bool told_to_stop() const { return *told_to_stop_; } // at once: its requests have ended, or are to
  // Why this process can do nothing more in the cluster, once that is so.
  std::optional<std::string> expelled() const;

private:
  void expel(const std::string& why);
  void end();

  cluster_system_config config_;
  bounded_system system_{config_};
  gateway_parts parts_;
  metrics_teller_actor metrics_;
  gateway_door_actor entry_;
  member_actor member_;
  std::uint16_t port_ = 0;
  const std::shared_ptr<std::atomic<std::uint64_t>> live_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  const std::shared_ptr<std::atomic<bool>> told_to_stop_ = std::make_shared<std::atomic<bool>>(false);
  mutable std::mutex mutex_;
  std::optional<std::string> expelled_;
};

} // namespace troupe
