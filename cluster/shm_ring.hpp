// Records from one process to another through shared memory: one writer, one reader, no copy but the writer's into the
// ring. Records begin at multiples of 64 bytes and lie in one piece. Either side may die at any moment: what was
// published stays readable, and the other side is told instead of waiting for ever.
//
// Memory orders: a record is written with plain stores, then `head` is stored; the reader loads `head`, reads, then
// stores `tail`, which the writer loads before it writes there again. Both are sequentially consistent, which includes
// the release and acquire that the records need and is what wake_word asks for.
#pragma once
#include "cluster/shared_memory.hpp"
#include "cluster/wake_word.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

namespace troupe {

namespace detail {
struct ring_control {
  std::uint64_t capacity = 0;                     // bytes of records, a multiple of 64
  alignas(64) std::atomic<std::uint64_t> head{0}; // bytes ever written; the writer's
  alignas(64) std::atomic<std::uint64_t> tail{0}; // bytes ever read; the reader's
  wake_word filled, freed;
  alignas(64) shared_end writer;
  alignas(64) shared_end reader;
};
} // namespace detail

// Bytes of memory that a ring of `capacity` bytes of records takes.
std::size_t ring_bytes(std::size_t capacity);
// Makes an empty ring of all of `memory`, which is aligned to 64 bytes and holds zeros. Once, by the segment's owner,
// before either side attaches.
void make_ring(std::span<std::byte> memory);

// How long a side looks before it sleeps. Worth more than nothing only while a core is free for the other side.
using spin_time = std::chrono::nanoseconds;

// Failures of both sides: "timed_out" (the limit passed; nothing was changed), "closed" (the other side left in order),
// "peer_gone" (it died), "too_large", "damaged" (the ring holds what no writer writes).
class ring_writer {
public:
  // Takes the writer's end. Failures: "in_use" (another living process has it), "damaged" (this is no ring).
  static result<ring_writer> attach(std::span<std::byte> memory);
  ring_writer(ring_writer&& other) noexcept;
  ring_writer& operator=(ring_writer&& other) noexcept;
  ~ring_writer(); // leaves in order

  // Largest record: half of the ring, so that one always fits in one piece.
  std::size_t largest() const;

  // Room for one record of `bytes`, to be filled and then published. The next reserve() without publish() discards it.
  result<std::span<std::byte>> reserve(std::size_t bytes, std::chrono::nanoseconds limit, spin_time spin = {});
  void publish();
  // One record of these parts.
  status write(std::initializer_list<std::span<const std::uint8_t>> parts, std::chrono::nanoseconds limit,
               spin_time spin = {});

  // Bytes ever published; wait_read(position()) returns when the reader is done with all that was written so far.
  std::uint64_t position() const { return head_; }
  status wait_read(std::uint64_t position, std::chrono::nanoseconds limit);

  const shared_end& reader() const { return control_->reader; }
  void beat() { control_->writer.beat(); }

private:
  explicit ring_writer(detail::ring_control* control);
  std::byte* at(std::uint64_t position) const;
  template <class Condition> status wait(Condition&& condition, std::chrono::nanoseconds limit, spin_time spin);

  detail::ring_control* control_ = nullptr;
  std::uint64_t head_ = 0;     // as published
  std::uint64_t reserved_ = 0; // bytes behind head_ that publish() will add
  std::uint64_t tail_ = 0;     // as last seen
};

class ring_reader {
public:
  static result<ring_reader> attach(std::span<std::byte> memory); // as ring_writer::attach
  ring_reader(ring_reader&& other) noexcept;
  ring_reader& operator=(ring_reader&& other) noexcept;
  ~ring_reader();

  // The oldest record; it stays there, in place, until pop(). What a dead or closed writer published comes first.
  result<std::span<const std::byte>> front(std::chrono::nanoseconds limit, spin_time spin = {});
  void pop();

  const shared_end& writer() const { return control_->writer; }
  void beat() { control_->reader.beat(); }

private:
  explicit ring_reader(detail::ring_control* control);
  status wait(std::chrono::nanoseconds limit, spin_time spin);

  detail::ring_control* control_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t front_ = 0; // bytes that pop() will add
  std::uint64_t head_ = 0;  // as last seen
};

} // namespace troupe
