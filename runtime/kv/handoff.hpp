// The cache of a prompt on its way from the engine that has computed it to the one that goes on, as two state machines
// without sockets, threads or clocks (cluster.md §3.7). Times are milliseconds of any clock that only goes on.
//
// Rules. An image is one string of bytes: the KV blocks in order, then the state slot. It travels in chunks, as soon as
// they are there; the commit behind the last one carries its length and digest, and nothing is used before they are
// right. Both sides hold a lease, renewed by whatever passes; where nothing is to be said for a while the sender says
// so. What has ended stays ended: every later event is refused, and every end may be asked for again.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/base/sha256.hpp"
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// What must be equal at both ends.
struct image_shape {
  std::int64_t block_bytes = 0, slot_bytes = 0;
  std::int32_t positions = 0; // of the prompt that are in it
  std::string settings;       // numerics id, model, roundings, replay mode
  std::int32_t blocks() const { return (positions + 127) / 128; }
  std::int64_t bytes() const { return blocks() * block_bytes + slot_bytes; }
  friend bool operator==(const image_shape&, const image_shape&) = default;
};

struct handoff_times {
  std::int64_t lease_ms = 30000, renew_ms = 10000; // renew well below lease
  std::int64_t total_ms = 60000;                   // between the end of the prompt and the commit
};

inline constexpr std::size_t image_chunk_bytes = std::size_t{1} << 20;

enum class chunk_kind : std::uint8_t { data, renewal, commit };

// What passes between the two.
struct image_chunk {
  chunk_kind kind = chunk_kind::data;
  std::int64_t offset = 0; // of a commit: bytes of the image
  std::span<const std::uint8_t> bytes;
  std::shared_ptr<const void> owner; // keeps bytes
  sha256_digest digest{};            // of its bytes, made at each end; of a commit: of all those before it
  std::int32_t cached = 0;           // of a commit: prompt tokens from the sender's prefix cache
};

class outgoing_handoff {
public:
  outgoing_handoff(const image_shape& shape, const handoff_times& times, std::int64_t now);

  // More of the image; `last`: that was all of it. A length that is not the shape's fails the handoff.
  void add(std::shared_ptr<const std::vector<std::uint8_t>> bytes, bool last, std::int32_t cached, std::int64_t now);
  // What is to be sent now. Then sent(), or end() if it could not be.
  std::optional<image_chunk> next(std::int64_t now);
  void sent(const image_chunk& chunk, std::int64_t now);
  // Everything that was sent has been taken.
  void delivered(std::int64_t now);
  // Gives it up, by whichever side. Idempotent; what waits is freed.
  void end(const error& why);
  // Ends it when its lease or its time has passed.
  void tick(std::int64_t now);

  const image_shape& shape() const { return shape_; }
  bool over() const { return over_; } // in whichever way
  const std::optional<error>& failure() const { return failure_; }
  bool committed() const { return committed_; }                 // the commit was sent
  std::int64_t waiting_bytes() const { return added_ - sent_; } // added, not sent
  std::int64_t sent_bytes() const { return sent_; }
  std::int64_t bytes_at_end() const { return bytes_at_end_; } // that waited when the prompt was through
  std::optional<std::int64_t> finished_at() const { return finished_at_; }

private:
  image_shape shape_;
  handoff_times times_;
  std::deque<std::shared_ptr<const std::vector<std::uint8_t>>> pieces_; // not all sent
  std::int64_t first_ = 0;                                              // bytes of the image before pieces_
  std::int64_t added_ = 0, sent_ = 0, bytes_at_end_ = 0;
  sha256 digest_; // of what was sent
  std::int32_t cached_ = 0;
  bool complete_ = false, committed_ = false, over_ = false;
  std::int64_t spoken_, moved_; // last time that something was sent, that something went on
  std::optional<std::int64_t> finished_at_;
  std::optional<error> failure_;
};

class incoming_handoff {
public:
  incoming_handoff(const image_shape& shape, const handoff_times& times, std::int64_t now);

  // Whether its sender means the same cache; asked with each of its chunks that says so.
  void check(const image_shape& theirs);
  // Anything of the sender. A chunk that came before is dropped; one that is out of order, too long, or a commit that
  // does not fit ends the handoff.
  void take(const image_chunk& chunk, std::int64_t now);
  void end(const error& why); // idempotent
  void tick(std::int64_t now);

  bool over() const { return over_; }
  bool whole() const { return image_ != nullptr && over_ && !failure_; }
  const std::optional<error>& failure() const { return failure_; }
  std::int64_t received_bytes() const { return received_; }
  std::int32_t cached() const { return cached_; }
  // Of a whole one, once.
  std::shared_ptr<const std::vector<std::uint8_t>> take_image();

private:
  image_shape shape_;
  handoff_times times_;
  std::shared_ptr<std::vector<std::uint8_t>> image_; // made with the first byte; null once it is taken or given up
  std::int64_t received_ = 0;
  sha256 digest_;
  std::int32_t cached_ = 0;
  bool over_ = false;
  std::int64_t heard_;
  std::optional<error> failure_;
};

// Counts of one engine, both sides; since its start, but for the first two.
struct handoff_counters {
  std::uint64_t sending = 0, receiving = 0; // now: the leases that it holds
  std::uint64_t sent = 0, received = 0, failed = 0, expired = 0;
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  std::uint64_t tail_bytes_max = 0;        // of an image that waited when its prompt was through
  double tail_ms_sum = 0, tail_ms_max = 0; // from there until all of it had been taken
};

} // namespace troupe
