#include "cluster/shm_ring.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <cstring>
#include <new>

namespace troupe {

namespace {

using detail::ring_control;

constexpr std::size_t line = 64;

// In front of every record. A record that would not fit in one piece before the end of the ring is preceded by a skip,
// which fills what is left there.
struct record_head {
  std::uint32_t bytes;
  std::uint32_t kind;
};
constexpr std::uint32_t record_kind = 0x6472'6f63, skip_kind = 0x7069'6b73;
constexpr std::size_t head_bytes = 16;

std::size_t rounded(std::size_t bytes) {
  return (bytes + line - 1) / line * line;
}
std::size_t control_bytes() {
  return rounded(sizeof(ring_control));
}
std::byte* records_of(ring_control* control) {
  return reinterpret_cast<std::byte*>(control) + control_bytes();
}

// A sleeper looks that often whether the other side still lives; nobody wakes it when that dies.
constexpr std::chrono::milliseconds look_every{20};

// Waits on `word` in slices. `end`: the other side.
template <class Condition>
status wait_for(wake_word& word, const shared_end& end, shared_end& own, Condition&& condition,
                std::chrono::nanoseconds limit, spin_time spin) {
  const auto start = std::chrono::steady_clock::now();
  const auto there_or_left = [&] { return condition() || end.left(); };
  for (;;) {
    const auto left = limit - (std::chrono::steady_clock::now() - start);
    const bool woken = word.wait(there_or_left, std::min<std::chrono::nanoseconds>(left, look_every), spin);
    own.beat();
    const bool dead = !woken && end.died();
    if (!woken && !dead && left > look_every) {
      spin = {};
      continue;
    }
    if (condition()) // what was published before the other side left still counts
      return nothing{};
    if (end.left()) // who has left may be dead a moment later
      return error{"closed", "the other side of the ring has left"};
    if (dead)
      return error{"peer_gone", "process " + std::to_string(end.pid()) + " at the other side of the ring is dead"};
    return error{"timed_out", "nothing came through the ring in time"};
  }
}

error too_large(std::size_t bytes, std::size_t largest) {
  return error{"too_large", "a record of " + std::to_string(bytes) + " bytes; this ring takes " +
                                std::to_string(largest) + " at most"};
}

result<ring_control*> control_of(std::span<std::byte> memory) {
  const bool large_enough =
      memory.size() >= control_bytes() + 4 * line && reinterpret_cast<std::uintptr_t>(memory.data()) % line == 0;
  auto* control = large_enough ? reinterpret_cast<ring_control*>(memory.data()) : nullptr;
  if (control == nullptr || control->capacity != (memory.size() - control_bytes()) / line * line)
    return error{"damaged", "this memory of " + std::to_string(memory.size()) + " bytes holds no ring"};
  return control;
}

} // namespace

std::size_t ring_bytes(std::size_t capacity) {
  return control_bytes() + rounded(std::max(capacity, 4 * line));
}

void make_ring(std::span<std::byte> memory) {
  TROUPE_CHECK(memory.size() >= control_bytes() + 4 * line, "a ring has room for records");
  TROUPE_CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % line == 0, "a ring begins at a multiple of 64");
  auto* control = new (memory.data()) ring_control;
  control->capacity = (memory.size() - control_bytes()) / line * line;
}

// ---- writer

ring_writer::ring_writer(ring_control* control)
    : control_(control), head_(control->head.load(std::memory_order_seq_cst)),
      tail_(control->tail.load(std::memory_order_seq_cst)) {}

result<ring_writer> ring_writer::attach(std::span<std::byte> memory) {
  const auto control = control_of(memory);
  if (!control)
    return control.failure();
  if (const auto taken = (*control)->writer.take(); !taken)
    return taken.failure();
  return ring_writer(*control);
}

ring_writer::ring_writer(ring_writer&& other) noexcept
    : control_(std::exchange(other.control_, nullptr)), head_(other.head_), reserved_(other.reserved_),
      tail_(other.tail_) {}

ring_writer& ring_writer::operator=(ring_writer&& other) noexcept {
  std::swap(control_, other.control_);
  std::swap(head_, other.head_);
  std::swap(reserved_, other.reserved_);
  std::swap(tail_, other.tail_);
  return *this;
}

ring_writer::~ring_writer() {
  if (control_ == nullptr)
    return;
  control_->writer.leave();
  control_->filled.wake();
}

std::size_t ring_writer::largest() const {
  return control_->capacity / 2 / line * line - head_bytes;
}

std::byte* ring_writer::at(std::uint64_t position) const {
  return records_of(control_) + position % control_->capacity;
}

template <class Condition>
status ring_writer::wait(Condition&& condition, std::chrono::nanoseconds limit, spin_time spin) {
  return wait_for(control_->freed, control_->reader, control_->writer, condition, limit, spin);
}

result<std::span<std::byte>> ring_writer::reserve(std::size_t bytes, std::chrono::nanoseconds limit, spin_time spin) {
  if (bytes > largest())
    return too_large(bytes, largest());
  const std::size_t record = rounded(head_bytes + bytes);
  const std::size_t to_end = control_->capacity - head_ % control_->capacity;
  const std::size_t skipped = record > to_end ? to_end : 0;
  const auto fits = [&] {
    tail_ = control_->tail.load(std::memory_order_seq_cst);
    return control_->capacity - (head_ - tail_) >= skipped + record;
  };
  if (control_->capacity - (head_ - tail_) < skipped + record) // by the tail that is known
    if (const auto free = wait(fits, limit, spin); !free)
      return free.failure();
  if (control_->reader.left())
    return error{"closed", "the reader of the ring has left"};
  if (skipped > 0) {
    const record_head skip{static_cast<std::uint32_t>(skipped), skip_kind};
    std::memcpy(at(head_), &skip, sizeof skip);
  }
  const record_head head{static_cast<std::uint32_t>(bytes), record_kind};
  std::memcpy(at(head_ + skipped), &head, sizeof head);
  reserved_ = skipped + record;
  return std::span(at(head_ + skipped) + head_bytes, bytes);
}

void ring_writer::publish() {
  TROUPE_CHECK(reserved_ > 0, "a record is reserved before it is published");
  head_ += std::exchange(reserved_, 0);
  control_->writer.beat();
  control_->head.store(head_, std::memory_order_seq_cst);
  control_->filled.wake();
}

status ring_writer::write(std::initializer_list<std::span<const std::uint8_t>> parts, std::chrono::nanoseconds limit,
                          spin_time spin) {
  std::size_t bytes = 0;
  for (const auto part : parts)
    bytes += part.size();
  const auto room = reserve(bytes, limit, spin);
  if (!room)
    return room.failure();
  std::byte* to = room->data();
  for (const auto part : parts)
    if (!part.empty()) {
      std::memcpy(to, part.data(), part.size());
      to += part.size();
    }
  publish();
  return nothing{};
}

status ring_writer::wait_read(std::uint64_t position, std::chrono::nanoseconds limit) {
  return wait([&] { return control_->tail.load(std::memory_order_seq_cst) >= position; }, limit, {});
}

// ---- reader

ring_reader::ring_reader(ring_control* control)
    : control_(control), tail_(control->tail.load(std::memory_order_seq_cst)), head_(tail_) {}

result<ring_reader> ring_reader::attach(std::span<std::byte> memory) {
  const auto control = control_of(memory);
  if (!control)
    return control.failure();
  if (const auto taken = (*control)->reader.take(); !taken)
    return taken.failure();
  return ring_reader(*control);
}

ring_reader::ring_reader(ring_reader&& other) noexcept
    : control_(std::exchange(other.control_, nullptr)), tail_(other.tail_), front_(other.front_), head_(other.head_) {}

ring_reader& ring_reader::operator=(ring_reader&& other) noexcept {
  std::swap(control_, other.control_);
  std::swap(tail_, other.tail_);
  std::swap(front_, other.front_);
  std::swap(head_, other.head_);
  return *this;
}

ring_reader::~ring_reader() {
  if (control_ == nullptr)
    return;
  control_->reader.leave();
  control_->freed.wake();
}

status ring_reader::wait(std::chrono::nanoseconds limit, spin_time spin) {
  const auto filled = [&] {
    head_ = control_->head.load(std::memory_order_seq_cst);
    return head_ != tail_;
  };
  return wait_for(control_->filled, control_->writer, control_->reader, filled, limit, spin);
}

result<std::span<const std::byte>> ring_reader::front(std::chrono::nanoseconds limit, spin_time spin) {
  for (;;) {
    if (head_ == tail_)
      if (const auto filled = wait(limit, spin); !filled)
        return filled.failure();
    const std::uint64_t place = tail_ % control_->capacity;
    const std::byte* at = records_of(control_) + place;
    record_head head{};
    std::memcpy(&head, at, sizeof head);
    const std::uint64_t there = head_ - tail_, to_end = control_->capacity - place;
    if (there % line != 0 || there > control_->capacity)
      return error{"damaged", "the ring claims to hold " + std::to_string(there) + " bytes"};
    if (head.kind == skip_kind && head.bytes == to_end && head.bytes < there) {
      tail_ += head.bytes;
      control_->tail.store(tail_, std::memory_order_seq_cst);
      continue;
    }
    front_ = rounded(head_bytes + std::size_t{head.bytes});
    if (head.kind != record_kind || front_ > std::min(there, to_end))
      return error{"damaged", "the ring has a record of kind " + std::to_string(head.kind) + " and " +
                                  std::to_string(head.bytes) + " bytes at " + std::to_string(place)};
    return std::span(at + head_bytes, head.bytes);
  }
}

void ring_reader::pop() {
  TROUPE_CHECK(front_ > 0, "front() comes before pop()");
  tail_ += std::exchange(front_, 0);
  control_->reader.beat();
  control_->tail.store(tail_, std::memory_order_seq_cst);
  control_->freed.wake();
}

} // namespace troupe
