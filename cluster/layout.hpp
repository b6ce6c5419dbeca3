// What a configuration makes of its nodes: ranks, their groups and ports (cluster.md §1.3, §3.1, §3.13). A pure
// function of the configuration, so that every process of a cluster derives the same.
#pragma once
#include "cluster/configuration.hpp"
#include "runtime/base/ids.hpp"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

// Ranks are numbered through all groups, in the order of the file. Inside a group, consecutive ranks form an engine
// (context_parallel of them) and an expert group (expert_parallel), and consecutive engines a data-parallel group.
struct rank_place {
  rank_id rank;
  std::size_t group = 0;         // index into worker_group
  std::size_t node = 0;          // index into node
  std::optional<int> gpu;        // of the node; absent for ranks without one
  int index = 0;                 // in its group
  int engine = 0, cp_rank = 0;   // of the group; within the engine
  int dp_group = 0, dp_rank = 0; // of the group; the engine's place in it
  int ep_group = 0, ep_rank = 0; // of the group; within it
  int control_port = 0;          // 0 = any
  int data_port = 0;             // 0 = any
};

// A process that is no worker.
struct process_place {
  std::size_t index = 0; // of its kind
  std::size_t node = 0;
  int control_port = 0; // 0 = any
  int port = 0;         // of a gateway for clients, of a node agent for health; 0 = any, or none for health
};

struct group_layout {
  std::size_t first_rank = 0, ranks = 0; // into cluster_layout::ranks
  int engines = 0, data_parallel = 0, expert_groups = 0;
};

struct cluster_layout {
  std::vector<rank_place> ranks;    // place i holds rank i
  std::vector<group_layout> groups; // as worker_group
  std::vector<process_place> node_agents, coordinators, gateways;
};

// Data parallelism of a group: as it says, or expert_parallel / context_parallel, at least 1.
int data_parallel_of(const worker_group_section& group);

// True for a device whose ranks take one GPU each.
bool takes_gpus(const worker_group_section& group);

// Ranks go to the nodes of their group in order: as many as it has GPUs left, or without GPUs equal shares, the first
// ones larger. Codes: unknown_node, too_few_gpus.
result<cluster_layout> layout_of(const cluster_configuration& configuration);

} // namespace troupe
