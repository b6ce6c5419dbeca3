// Writes a checkpoint in the released layout (model.md §10) with generated weights.
#pragma once
#include "runtime/model/expected_tensors.hpp"
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe {

struct model_config;

// Tensors of one shard; a weight and its scale stand in the same one.
struct shard_plan {
  std::string file; // model-00001-of-00004.safetensors
  std::vector<expected_tensor> tensors;
  std::uint64_t bytes = 0; // of the tensors
};

// Shards of about shard_bytes; one larger tensor makes a larger shard.
std::vector<shard_plan> plan_shards(const model_config& config, std::uint64_t shard_bytes);

// The text of model.safetensors.index.json.
std::string index_text(const std::vector<shard_plan>& shards);

struct checkpoint_recipe {
  std::string folder;      // made if absent; must be empty
  std::string config_text; // config.json as it is written; legal
  std::string config_file; // its name in errors
  std::string tokenizer;   // tokenizer.json to copy
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = std::uint64_t{1} << 32;
  bool index_only = false; // everything but the shards
};

struct made_checkpoint {
  std::int64_t tensors = 0, shards = 0;
  std::uint64_t bytes = 0; // of all tensors
};

// progress(done, total) in bytes hears how far it is; false ends the work. The index is written last, so that nothing
// loads before everything is there; on failure and on false all that was written is removed. Throws config_error if the
// folder is not empty or the disk has too little space (bytes needed and available are named) or fails.
// The result has tensors = 0 if progress ended the work.
made_checkpoint make_checkpoint(const checkpoint_recipe& recipe,
                                const std::function<bool(std::uint64_t done, std::uint64_t total)>& progress);

// Throws config_error unless `available` bytes hold `needed`.
void expect_space(const std::string& folder, std::uint64_t needed, std::uint64_t available);

} // namespace troupe
