// Where a process stands in an engine whose context-parallel ranks are processes.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct context_place {
  std::string cluster, node;     // names of shared memory are made of them
  std::uint64_t incarnation = 0; // of this process
  std::uint32_t first = 0;       // rank in the cluster of the engine's rank 0
  std::int32_t ranks = 2, rank = 0;
  std::chrono::milliseconds limit{30000}; // of every wait for another rank
  // Where each rank runs, as numbers of nodes. Empty: all share memory with this one, as if the numbers were equal.
  std::vector<std::size_t> nodes{};
  std::string tcp_address{}; // of this process, in digits, for ranks on other nodes

  bool on_several_nodes() const {
    return std::ranges::any_of(nodes, [this](std::size_t n) { return n != nodes.front(); });
  }
};

} // namespace troupe
