// The start and the bounded end of an actor system: ~actor_system waits for every actor, for ever, so it may only run
// once all are gone.
#pragma once
#include "cluster/caf.hpp"
#include <chrono>
#include <cstddef>

namespace troupe {

// Whether so many more threads can run at once, with some memory to spare. CAF starts its own without looking.
bool threads_to_be_had(std::size_t count);

// Waits until no actor is left but `expected` (the caller's own), at most `limit`. Number of actors that are still
// there.
std::size_t wait_for_actors(caf::actor_system& system, std::chrono::milliseconds limit, std::size_t expected = 0);

// Ends the process with code 70 and one line on stderr that says what is left.
[[noreturn]] void give_up_on_actors(std::size_t left);

} // namespace troupe
