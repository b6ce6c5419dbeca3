// Chunks of a prompt's cache (runtime/kv/handoff.hpp) as frames of a bulk channel: one stream for each handoff, under
// its id.
#pragma once
#include "cluster/bulk_channel.hpp"
#include "runtime/kv/handoff.hpp"
#include <cstdint>
#include <optional>

namespace troupe {

// shape: goes with the first frame, so that the receiver can tell that both mean the same cache.
bulk_frame frame_of(std::uint64_t handoff, const image_chunk& chunk, const std::optional<image_shape>& shape);

struct arrived_chunk {
  image_chunk chunk;
  std::optional<image_shape> shape;
};
// Failure: "bad_meta".
result<arrived_chunk> chunk_of(const bulk_frame& frame);

} // namespace troupe
