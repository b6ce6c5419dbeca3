// One way for frames between two processes that wait for one another: rows for experts and what comes back, pieces of
// weights on demand. Unlike a bulk_channel it keeps nothing: no streams, no repetitions, no allocation for each frame.
// A frame is made and read in place. What carries frames: a ring in shared memory inside a host, ZeroMQ else.
#pragma once
#include "cluster/frame.hpp"
#include "cluster/shared_memory.hpp"
#include "cluster/shm_ring.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace troupe {

// One thread at a time, like the reader.
class frame_writer {
public:
  virtual ~frame_writer() = default;
  virtual std::size_t largest() const = 0; // payload, in bytes
  // Room for a payload at a multiple of 16 bytes, to be filled and then sent. Failures: "timed_out" (the pipe stayed
  // full), "closed", "peer_gone", "too_large".
  virtual result<std::span<std::byte>> reserve(std::size_t bytes, std::chrono::nanoseconds limit) = 0;
  // What was reserved, as this kind of frame and under this number, which comes back with the answer.
  virtual status send(frame_kind kind, std::uint64_t number) = 0;
};

class frame_reader {
public:
  virtual ~frame_reader() = default;
  // The oldest frame, in place until pop(). Failures: "timed_out", "closed", "peer_gone", "damaged".
  virtual result<frame_view> front(std::chrono::nanoseconds limit) = 0;
  virtual void pop() = 0;
};

// Bytes of a ring for frames of `payload` bytes, of which `frames` are on the way at most.
std::size_t frame_ring_bytes(std::size_t payload, std::size_t frames);

class ring_frame_writer final : public frame_writer {
public:
  // Into a segment that the reader's process owns, which takes one writer in its life. Failures: those of
  // shared_memory::open and ring_writer::attach, "in_use".
  static result<std::unique_ptr<ring_frame_writer>> open(const std::string& segment);

  std::size_t largest() const override { return writer_.largest() - frame_header_bytes; }
  result<std::span<std::byte>> reserve(std::size_t bytes, std::chrono::nanoseconds limit) override;
  status send(frame_kind kind, std::uint64_t number) override;

private:
  ring_frame_writer(shared_memory memory, ring_writer writer);
  shared_memory memory_; // first: the ring lies in it
  ring_writer writer_;
  std::span<std::byte> record_; // reserved
};

class ring_frame_reader final : public frame_reader {
public:
  // Makes the segment. Failures: those of shared_memory::create.
  static result<std::unique_ptr<ring_frame_reader>> create(const std::string& segment, std::size_t capacity);

  result<frame_view> front(std::chrono::nanoseconds limit) override;
  void pop() override { reader_.pop(); }

private:
  ring_frame_reader(shared_memory memory, ring_reader reader);
  shared_memory memory_;
  ring_reader reader_;
};

} // namespace troupe
