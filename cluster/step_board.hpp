// Steps from one scheduler to the executors in other processes of its host, and their answers, through shared memory
// (foundations.md §8). Each executor has slots for commands and answers and a sequence word; what does not fit in a
// slot goes through a ring beside it. One counter a step counts the answers that are missing: the last executor to
// answer wakes the scheduler, the others wake nobody.
//
// Up to `steps_out` steps are out at once, so that the next command lies there when an executor ends one. The slot of a
// step is that of the step `steps_out` before it, which has been answered by then: nobody reads a slot while it is
// written.
//
// Memory orders: contents are plain stores before the sequentially consistent store of the sequence word (commands) or
// decrement of the counter (answers), and are read after the same word was loaded.
#pragma once
#include "cluster/frame.hpp"
#include "cluster/shared_memory.hpp"
#include "cluster/shm_ring.hpp"
#include "runtime/base/result.hpp"
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

inline constexpr std::size_t steps_out_max = 4;

struct step_board_options {
  std::size_t executors = 1; // at most 1024
  std::size_t slot_bytes = 1024;
  std::size_t ring_bytes = std::size_t{1} << 20; // of each executor's ring of commands and of its ring of answers
  std::size_t steps_out = 2;                     // at most steps_out_max
};

namespace detail {
struct board_control;
struct board_slot;
} // namespace detail

// The scheduler's side; owns the segment. post() and wait() may be called by two threads, each by one.
class step_board {
public:
  // Failures: those of shared_memory::create, "bad_options".
  static result<step_board> create(const std::string& name, const step_board_options& options);
  step_board(step_board&&) noexcept;
  step_board& operator=(step_board&&) noexcept;
  ~step_board(); // executors see it leave

  std::size_t executors() const;

  // One command for each executor, in their order, or for none of them. Failures: "busy" (as many steps are out as
  // there may be), "too_large", "timed_out" (a ring stayed full; it may be tried again), "executor_gone".
  status post(std::uint64_t step, std::span<const byte_span> commands, std::chrono::nanoseconds limit);

  // The answers of all executors to the oldest step that was not waited for, which is `step`; valid until as many more
  // steps were posted as may be out. Failures: "timed_out" and "executor_gone", which name who is missing, and after
  // which the step may be waited for again; "wrong_step".
  result<std::span<const byte_span>> wait(std::uint64_t step, std::chrono::nanoseconds limit, spin_time spin = {});
  // Executors that have not answered the oldest step yet.
  std::vector<std::size_t> missing() const;

  // Process at an executor's end, for liveness and heartbeats.
  const shared_end& executor(std::size_t index) const;

private:
  struct state;
  explicit step_board(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

struct step_command {
  std::uint64_t step = 0;
  byte_span bytes; // valid until it was answered
};

// An executor's side. One thread.
class step_board_executor {
public:
  // Failures: those of shared_memory::open, "in_use", "bad_segment". A place is taken once: what a dead executor had
  // begun fails with its step, and those who go on make a new board.
  static result<step_board_executor> attach(const std::string& name, std::size_t index);
  step_board_executor(step_board_executor&&) noexcept;
  step_board_executor& operator=(step_board_executor&&) noexcept;
  ~step_board_executor();

  // The next command; may be called again before it was answered. Failures: "timed_out", "closed" and "peer_gone" (the
  // scheduler left, or died), "damaged".
  result<step_command> next(std::chrono::nanoseconds limit, spin_time spin = {});
  // Answers the oldest command that was taken and not answered. Failures: "too_large", "timed_out" (the ring of answers
  // stayed full), "no_command".
  status answer(byte_span bytes, std::chrono::nanoseconds limit = std::chrono::seconds(1));
  void beat();

private:
  struct state;
  explicit step_board_executor(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

} // namespace troupe
