// One way for bulk bytes from one process to another, whatever carries them: a ring in shared memory inside a host
// (ring_sender, ring_receiver), ZeroMQ between hosts (bulk_link.hpp). Frames belong to streams; a stream arrives
// exactly once and in order, or it fails. There is one channel for each pair of processes, direction and class of
// traffic, so that large transfers do not stand in the way of small ones.
#pragma once
#include "cluster/frame.hpp"
#include "cluster/shared_memory.hpp"
#include "cluster/shm_ring.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

enum class traffic_class : std::uint8_t { a2a, kv, weight };
const char* name_of(traffic_class c); // "a2a", "kv", "weight"

// Bytes and what keeps them alive. Copies share them.
struct payload_bytes {
  byte_span bytes;
  std::shared_ptr<const void> owner;
};
payload_bytes own(std::vector<std::uint8_t> bytes);

struct bulk_frame {
  frame_kind kind = frame_kind::kv_chunk; // one that carries_bulk()
  bool last = false;                      // of its stream
  std::uint64_t mepoch = 0;               // the same for all frames of a stream
  std::uint64_t stream = 0;               // chosen by the sender; never used again on this channel
  std::uint64_t step_or_offset = 0;
  std::uint32_t src = 0, dst = 0; // ranks
  std::string meta;               // see encode_meta()
  payload_bytes payload;
  std::uint64_t seq = 0;      // from 0 in each stream; set by the channel
  std::uint32_t body_crc = 0; // set by the channel
};

// A frame, or the end of a stream that will not be completed (then only frame.stream and frame.mepoch count).
struct bulk_arrival {
  bulk_frame frame;
  std::optional<error> failure;
};

// Any thread may call; frames of one stream are sent by one thread, or their order is anybody's.
class bulk_sender {
public:
  virtual ~bulk_sender() = default;

  // Takes the frame over, waiting at most `limit` while the stream has all the credit that it may have on the way.
  // Failures: "no_credit" (the limit passed, nothing was taken), "too_large", "bad_options" (kind, or a frame behind
  // the last), "peer_gone", "closed", "stale_epoch", and those of a stream that has failed: "stream_failed",
  // "peer_silent", "stream_refused".
  virtual status send(bulk_frame frame, std::chrono::milliseconds limit) = 0;
  // Returns once all that was sent of the stream has arrived (over a ring: was taken). Failures: "timed_out", as above.
  virtual status wait_delivered(std::uint64_t stream, std::chrono::milliseconds limit) = 0;
  // Gives a stream up before its last frame: it fails on both sides with "closed".
  virtual void abandon(std::uint64_t stream) = 0;
  // The membership has moved on: streams of older ones fail with "stale_epoch".
  virtual void set_mepoch(std::uint64_t mepoch) = 0;
};

// One thread at a time.
class bulk_receiver {
public:
  virtual ~bulk_receiver() = default;

  // The next frame of any stream. Taking it gives its credit back. Failures: "timed_out", "peer_gone", "closed",
  // "damaged" (something came of which not even the stream can be told).
  virtual result<bulk_arrival> receive(std::chrono::milliseconds limit) = 0;
  // Frames of older memberships are dropped and counted from now on.
  virtual void set_mepoch(std::uint64_t mepoch) = 0;
  virtual std::uint64_t stale_frames() const = 0;
};

// Ranks of a channel and its class of traffic give the segment's name: troupe.<cluster>.<node>.<from>-<to>.<class>.
result<std::string> channel_segment(const std::string& cluster, const std::string& node, std::uint32_t from,
                                    std::uint32_t to, traffic_class c);

// A segment for one channel; its owner (the node agent) keeps it. `capacity` bounds what is on the way, all streams
// together; at least 16 MiB let frames of full size through.
result<shared_memory> make_ring_channel(const std::string& name, std::size_t capacity);

class ring_sender final : public bulk_sender {
public:
  static result<std::unique_ptr<ring_sender>> attach(const std::string& name, std::uint32_t src, std::uint32_t dst);

  status send(bulk_frame frame, std::chrono::milliseconds limit) override;
  status wait_delivered(std::uint64_t stream, std::chrono::milliseconds limit) override;
  void abandon(std::uint64_t stream) override;
  void set_mepoch(std::uint64_t mepoch) override;

private:
  ring_sender(shared_memory memory, ring_writer writer, std::uint32_t src, std::uint32_t dst);

  struct open_stream {
    std::uint64_t next = 0, mepoch = 0;
    std::uint64_t end = 0; // position of the ring behind its newest frame
    bool abandoned = false;
  };
  frame_header header_of(const bulk_frame& frame, std::uint64_t seq) const;

  std::mutex guard_;
  shared_memory memory_;
  ring_writer writer_;
  std::uint32_t src_, dst_;
  std::uint64_t mepoch_ = 0;
  std::unordered_map<std::uint64_t, open_stream> streams_; // until their last frame
};

// Nothing is sent again inside a host: memory that changes between the two check sums is broken, and its stream fails.
// One ring carries all streams in order, so its room stands for their credit.
class ring_receiver final : public bulk_receiver {
public:
  static result<std::unique_ptr<ring_receiver>> attach(const std::string& name);

  result<bulk_arrival> receive(std::chrono::milliseconds limit) override;
  void set_mepoch(std::uint64_t mepoch) override;
  std::uint64_t stale_frames() const override { return stale_; }

private:
  ring_receiver(shared_memory memory, ring_reader reader);
  result<std::optional<bulk_arrival>> take(byte_span record);

  struct open_stream {
    std::uint64_t next = 0, mepoch = 0;
    bool failed = false; // reported; the rest of it is dropped
  };
  shared_memory memory_;
  ring_reader reader_;
  std::uint64_t mepoch_ = 0, stale_ = 0;
  std::unordered_map<std::uint64_t, open_stream> streams_; // until their last frame
};

} // namespace troupe
