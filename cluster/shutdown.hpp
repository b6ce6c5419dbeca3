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
// there. Time in which the process is stopped does not count.
std::size_t wait_for_actors(caf::actor_system& system, std::chrono::milliseconds limit, std::size_t expected = 0);

// Declared before what ends, so that it is destroyed after it.
class bounded_end {
public:
  bounded_end() = default;
  ~bounded_end();
  bounded_end(const bounded_end&) = delete;
  bounded_end& operator=(const bounded_end&) = delete;
  // From now on, unless the object goes within `limit`, the process ends with code 70 and a line on stderr. Time in
  // which the process is stopped does not count.
  void within(std::chrono::milliseconds limit);

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread watch_;
};

// An actor system that speaks to others. CAF 0.17 waits in its end for every detached actor to be destroyed, but has
// ended the broker of its connections before. What an ending actor sends to that one too late (its thread may be behind
// the count of running actors) is never taken, and holds its sender for ever. So here detached actors are waited for
// while the broker still works. Handles of them are declared behind the system; those that are published are
// unpublished before.
class bounded_system : private bounded_end, public caf::actor_system {
public:
  explicit bounded_system(caf::actor_system_config& config);
  ~bounded_system() override;

private:
  std::size_t own_detached_; // CAF's
};

// Ends the process with code 70 and one line on stderr that says what is left, behind what went wrong before.
[[noreturn]] void give_up_on_actors(std::size_t left, const std::string& before = {});

} // namespace troupe
