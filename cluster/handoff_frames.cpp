#include "cluster/handoff_frames.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::int64_t most_block_bytes = std::int64_t{1} << 32;
constexpr std::int32_t most_positions = 1 << 28;

struct chunk_meta {
  std::uint8_t kind = 0;
  std::string digest; // of a commit
  std::int32_t cached = 0;
  std::int64_t block_bytes = 0, slot_bytes = 0; // 0: without a shape
  std::int32_t positions = 0;
  std::string settings;

  template <class Archive> void serialize(Archive& ar) {
    ar(kind, at_most<32>(digest), cached, block_bytes, slot_bytes, positions, at_most<4096>(settings));
  }
};

} // namespace

bulk_frame frame_of(std::uint64_t handoff, const image_chunk& chunk, const std::optional<image_shape>& shape) {
  chunk_meta m;
  m.kind = static_cast<std::uint8_t>(chunk.kind);
  if (chunk.kind == chunk_kind::commit)
    m.digest.assign(chunk.digest.begin(), chunk.digest.end());
  m.cached = chunk.cached;
  if (shape) {
    m.block_bytes = shape->block_bytes;
    m.slot_bytes = shape->slot_bytes;
    m.positions = shape->positions;
    m.settings = shape->settings.substr(0, 4096);
  }
  bulk_frame f{.last = chunk.kind == chunk_kind::commit,
               .stream = handoff,
               .step_or_offset = static_cast<std::uint64_t>(chunk.offset),
               .meta = encode_meta(std::move(m)).value(), // a few hundred bytes
               .payload = {chunk.bytes, chunk.owner}};
  return f;
}

result<arrived_chunk> chunk_of(const bulk_frame& frame) {
  auto m = decode_meta<chunk_meta>(bytes_of(frame.meta));
  if (!m)
    return m.failure();
  if (m->kind > static_cast<std::uint8_t>(chunk_kind::commit) || frame.step_or_offset > std::uint64_t{1} << 62 ||
      m->block_bytes < 0 || m->block_bytes > most_block_bytes || m->slot_bytes < 0 ||
      m->slot_bytes > most_block_bytes || m->positions < 0 || m->positions > most_positions)
    return error{"bad_meta", "stream " + std::to_string(frame.stream) + ": a chunk of no known kind or place"};
  arrived_chunk a;
  a.chunk.kind = static_cast<chunk_kind>(m->kind);
  a.chunk.offset = static_cast<std::int64_t>(frame.step_or_offset);
  a.chunk.bytes = frame.payload.bytes;
  a.chunk.owner = frame.payload.owner;
  a.chunk.cached = m->cached;
  if (m->digest.size() == a.chunk.digest.size())
    std::copy(m->digest.begin(), m->digest.end(), a.chunk.digest.begin());
  if (m->block_bytes > 0)
    a.shape = image_shape{m->block_bytes, m->slot_bytes, m->positions, std::move(m->settings)};
  return a;
}

} // namespace troupe
