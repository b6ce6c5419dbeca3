// A checkpoint's completeness, fault by fault: what `troupe check-model` prints. Unlike opening a checkpoint, it goes
// on after the first fault, and with index_only it needs no data.
#pragma once
#include "runtime/model/config.hpp"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct check_request {
  std::string folder;
  // Only names in the index, and headers of those shards that are there (a header is enough, the data may be absent or
  // cut off). Else every shard must be there in full, and scales and unquantised tensors must be finite.
  bool index_only = false;
};

// Faults of one kind: "missing", "repeated", ...
struct fault_list {
  std::string kind;
  std::vector<std::string> names; // each with what is wrong where the kind does not say it
};

struct checkpoint_check {
  model_config config;
  std::string index_file;                      // or the single file
  std::int64_t tensors = 0, ignored = 0;       // named; of them not read by this program
  std::int64_t shards = 0, shards_present = 0; // named; readable
  std::int64_t bytes = 0;                      // of all tensors that the configuration demands
  std::optional<std::int64_t> total_size;      // as the index says
  std::vector<fault_list> faults;              // kinds without a fault are left out
  std::int64_t fault_count() const;
};

// Throws config_error if config.json or the index cannot be understood. progress(done, total) counts shards; false ends
// the work early (the result then covers what was seen).
checkpoint_check check_checkpoint(const check_request& request,
                                  const std::function<bool(std::int64_t done, std::int64_t total)>& progress);

} // namespace troupe
