#include "cluster/shutdown.hpp"
#include <cstdio>
#include <future>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

namespace troupe {

bool threads_to_be_had(std::size_t count) {
  constexpr std::size_t spare_bytes = std::size_t{64} << 20; // of address space, for what the threads will allocate
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> threads;
  bool all = true;
  try {
    threads.reserve(count);
    while (threads.size() < count)
      threads.emplace_back([ended] { ended.wait(); });
    const std::unique_ptr<char[]> spare(new char[spare_bytes]);
  } catch (const std::exception&) { // system_error or bad_alloc
    all = false;
  }
  end.set_value();
  for (std::thread& t : threads)
    t.join();
  return all;
}

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
