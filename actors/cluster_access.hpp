// How a process reaches a running cluster to have requests computed there: through one of the cluster's gateways, or as
// a gateway of its own.
#pragma once
#include "cluster/cluster_identity.hpp"
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct request_ledger; // actors/request_ledger.hpp

// Codes of the ends of requests that the cluster did not compute: it was stopped, or had no engine for too long.
inline constexpr const char *cluster_stopped = "cluster_stopped", *engine_missing = "engine_missing";

struct cluster_access {
  cluster_identity identity;
  std::string host = "127.0.0.1";                // where the others reach this process
  std::string name;                              // of this process in the cluster
  std::string model;                             // folder: configuration and vocabulary are read, no weights
  std::optional<std::uint64_t> seed;             // exactness.md §6
  int ready_ms = 30000;                          // until some engine must be there, and the gateway
  std::chrono::milliseconds engine_wait{300000}; // gateway_setup
  std::uint32_t max_attempts = 8;                // likewise
  std::string gateway{}; // of the cluster, by name: "gateway.0"; empty: this process is one of its own
  // The workers of each engine of the cluster that gives out tokens, by name (engine_directory.hpp).
  std::vector<std::vector<std::string>> engines{};
  // As a gateway of its own: where this process keeps what its requests have, so that another one goes on with them
  // (cluster.md §3.5). Null: in memory.
  std::shared_ptr<request_ledger> ledger{};
};

} // namespace troupe
