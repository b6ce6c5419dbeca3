// Where the ranks of a group meet, and what they show each other while they do: through the memory of their host
// (meeting_board.hpp), or over the network (meeting_links.hpp). Every wait is bounded, and the first rank that fails,
// dies, leaves or is late ends the meeting for all and for good: who goes on makes a new one.
#pragma once
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace troupe {

// One rank's side. mine(), meet() and shown() are one thread's; the rest may be called by any.
class meeting {
public:
  virtual ~meeting() = default;
  virtual std::size_t rank() const = 0;
  virtual std::size_t ranks() const = 0;
  virtual std::size_t place_bytes() const = 0; // that a rank may show at once

  // This rank takes part from now on; whether all do.
  virtual void be_ready() = 0;
  virtual bool all_ready() const = 0;

  // Room for what this rank shows at the coming meeting, at most place_bytes(). Written before meet().
  virtual std::span<std::byte> mine(std::size_t bytes) = 0;
  // Waits until every rank has come with the same number. Failures: "ended".
  virtual status meet(std::uint64_t number, std::chrono::nanoseconds limit) = 0;
  // What a rank showed at the last meeting, maybe with something behind it; until this one comes to the next.
  virtual std::span<const std::byte> shown(std::size_t rank) const = 0;

  // It is of no more use: everyone who waits or comes gets the first reason given.
  virtual void end(const std::string& why) = 0;
  // Why it has ended, once it has. Called now and then: it looks for ranks that were there and are gone, too.
  virtual std::optional<error> failure() = 0;

protected:
  meeting() = default;
  meeting(const meeting&) = default;
  meeting(meeting&&) = default;
  meeting& operator=(const meeting&) = default;
  meeting& operator=(meeting&&) = default;
};

} // namespace troupe
