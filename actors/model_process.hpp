// From options to everything that a process of engines runs: checkpoint, vocabulary, devices, weights, caches. No
// actors here; what is wrong with the options or the files leaves as config_error.
#pragma once
#include "actors/context_part.hpp"
#include "actors/llm.hpp"
#include "actors/worker_root.hpp"
#include "runtime/model/checkpoint.hpp"
#include <memory>
#include <string>
#include <vector>

namespace troupe {

struct model_process {
  std::shared_ptr<const checkpoint> source;
  std::shared_ptr<const tokenizer> vocabulary;
  std::shared_ptr<process_setup> setup;
  std::shared_ptr<step_engine> follower; // of a rank whose engine another process leads; the setup has none then
  std::string numerics_id;               // of all its devices
  std::string description;               // for people
};

// group: the engine, which is the only one, shares experts with other processes; null: with none. ranks: this process
// is one of its options.cp context-parallel ranks, which leads or has joined the others; null: all are in here.
model_process make_model_process(const engine_options& options, const expert_group_place* group = nullptr,
                                 const std::shared_ptr<context_part>& ranks = nullptr);

// Cores of each engine and each expert executor: disjoint lists of the sizes asked for, or all empty (nobody is pinned)
// unless together they take every core that this process may use.
struct core_plan {
  std::vector<std::vector<int>> engines, experts;
};
core_plan share_cores(const std::vector<int>& allowed, int threads, int engines, int experts);

// KV blocks of one engine with the dummy: what `sequences` full-length sequences need, within `budget` bytes, but never
// too few for one of them.
std::int32_t kv_blocks_for(std::int32_t max_model_len, std::int32_t sequences, std::int64_t block_bytes,
                           std::int64_t budget);

} // namespace troupe
