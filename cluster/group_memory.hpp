// What the model adds to a configuration: redundant experts and the memory of a rank (cluster.md §1.5, §3.13).
#pragma once
#include "cluster/configuration.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/memory_plan.hpp"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

// The model's configuration as far as it is to be had on this machine.
struct cluster_model {
  std::optional<model_config> config;
  std::string folder; // that it is from
  // Reads <model.path>/config.json and checks the checkpoint's index and the headers of its shards; where that folder
  // is not there, <model.config>/config.json. Faults and what could not be checked go to the reading.
  static cluster_model find(configuration_reading& reading);
};

struct group_memory {
  int extra_experts = 0; // redundant ones of each layer; 0 in a group whose ranks hold all experts each
  int expert_slots = 0;  // of each layer on a rank
  memory_plan rank;      // of one rank
  std::int64_t kv_bytes(int kv_blocks) const { return kv_blocks * rank.block_bytes; }
};

// In the order of worker_group. Faults of the reading for groups that the model cannot have, or whose ranks do not fit
// into the memory that their nodes are said to have.
std::vector<group_memory> memory_of_groups(configuration_reading& reading, const model_config& model);

} // namespace troupe
