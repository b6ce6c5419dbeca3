// The index of a checkpoint (model.safetensors.index.json): which shard holds which tensor (model.md §10).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct checkpoint_index {
  std::map<std::string, std::string, std::less<>> shard_of; // tensor name as spelled -> file name in the same folder
  std::vector<std::string> repeated;                        // names that stand there twice, spelled alike
  std::optional<std::int64_t> total_size;                   // metadata.total_size: bytes of all tensors
};

// A tensor's name without the "model." that it may carry.
std::string_view canonical_name(std::string_view name);

// Throws config_error for a file that cannot be read, is not JSON, or names anything but files of its own folder.
checkpoint_index read_checkpoint_index(const std::string& path);

} // namespace troupe
