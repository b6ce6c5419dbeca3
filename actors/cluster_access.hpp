// How a process reaches a running cluster to have requests computed there: as a gateway of its own.
#pragma once
#include "cluster/cluster_identity.hpp"
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

struct cluster_access {
  cluster_identity identity;
  std::string host = "127.0.0.1";    // where the others reach this process
  std::string name;                  // of this process in the cluster
  std::string model;                 // folder: configuration and vocabulary are read, no weights
  std::optional<std::uint64_t> seed; // exactness.md §6
  int ready_ms = 30000;              // until some engine must be there
};

} // namespace troupe
