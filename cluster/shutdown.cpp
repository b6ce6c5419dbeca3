#include "cluster/shutdown.hpp"
#include <cstdio>
#include <thread>
#include <unistd.h>

namespace troupe {

std::size_t wait_for_actors(caf::actor_system& system, std::chrono::milliseconds limit, std::size_t expected) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (auto pause = std::chrono::microseconds(50);; pause = std::min(2 * pause, std::chrono::microseconds(5000))) {
    const std::size_t running = system.registry().running();
    if (running <= expected)
      return 0;
    if (std::chrono::steady_clock::now() >= end)
      return running - expected;
    std::this_thread::sleep_for(pause);
  }
}

void give_up_on_actors(std::size_t left) {
  std::fprintf(stderr, "troupe: %zu actors did not end in time; leaving with code 70\n", left);
  std::fflush(nullptr);
  ::_exit(70);
}

} // namespace troupe
