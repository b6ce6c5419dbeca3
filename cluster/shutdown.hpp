// The start and the bounded end of an actor system: ~actor_system waits for every actor, for ever, so it may only run
// once all are gone.
#pragma once
#include "cluster/caf.hpp"
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

namespace troupe {

// Whether so many more threads can run at once, with some memory to spare. CAF starts its own without looking.
bool threads_to_be_had(std::size_t count);

// Waits until no actor is left but `expected` (the caller's own), at most `limit`. Number of actors that are still
// there.
std::size_t wait_for_actors(caf::actor_system& system, std::chrono::milliseconds limit, std::size_t expected = 0);

// Bounds the end of an actor system that spoke to others: CAF 0.17 then and when waits for ever for the thread of a
// detached actor that is gone. Declared before the system, so that it is destroyed after it.
class bounded_end {
public:
  bounded_end() = default;
  ~bounded_end();
  bounded_end(const bounded_end&) = delete;
  bounded_end& operator=(const bounded_end&) = delete;
  // From now on, unless the object goes within `limit`, the process ends with code 70 and a line on stderr.
  void within(std::chrono::milliseconds limit);

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread watch_;
};

// Ends the process with code 70 and one line on stderr that says what is left, behind what went wrong before.
[[noreturn]] void give_up_on_actors(std::size_t left, const std::string& before = {});

} // namespace troupe
