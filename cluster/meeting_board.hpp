// Where the ranks of a group that are processes of one host meet, and what they show each other while they do, through
// shared memory. Each rank has two places for bytes, used in turns: what it shows at one meeting stays there while the
// others read it, until it comes to the next meeting but one, and by then all have come to the one between.
//
// Every wait is bounded, and the first rank that fails, dies, leaves or is late ends the board for all and for good:
// who goes on makes a new one.
//
// Memory orders: numbers and bytes are plain stores before the sequentially consistent store of `came`, and are read
// after it was loaded; see wake_word.hpp.
#pragma once
#include "cluster/shared_memory.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace troupe {

struct meeting_board_options {
  std::size_t ranks = 2;       // at most 1024
  std::size_t place_bytes = 0; // that a rank may show at a meeting
  std::string greeting;        // for all who come: what the group is; at most 4096 bytes
};

// One rank's side. meet() and mine() are one thread's; the rest may be called by any.
class meeting_board {
public:
  // For rank 0, which owns the segment. Failures: those of shared_memory::create, "bad_options".
  static result<meeting_board> create(const std::string& name, const meeting_board_options& options);
  // For the others. Failures: those of shared_memory::open, "bad_segment", "in_use": a place is taken once.
  static result<meeting_board> attach(const std::string& name, std::size_t rank);
  meeting_board(meeting_board&&) noexcept;
  meeting_board& operator=(meeting_board&&) noexcept;
  ~meeting_board(); // the others see it leave

  std::size_t rank() const;
  std::size_t ranks() const;
  const std::string& greeting() const;

  // This rank takes part from now on; whether all do.
  void be_ready();
  bool all_ready() const;

  // What this rank shows at the coming meeting. Written before meet().
  std::span<std::byte> mine();
  // Waits until every rank has come with the same number. Failures: "ended".
  status meet(std::uint64_t number, std::chrono::nanoseconds limit);
  // What a rank showed at the last meeting; until this one comes to the next.
  std::span<const std::byte> shown(std::size_t rank) const;

  // The board is of no more use: everyone who waits or comes gets the first reason given.
  void end(const std::string& why);
  // Why it has ended, once it has; looks for ranks that were there and are gone, too.
  std::optional<error> failure();

private:
  struct state;
  explicit meeting_board(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

} // namespace troupe
