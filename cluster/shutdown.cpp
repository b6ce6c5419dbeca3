#include "cluster/shutdown.hpp"
#include <algorithm>
#include <cstdio>
#include <future>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

namespace troupe {

namespace {

[[noreturn]] void leave(const char* why) {
  std::fprintf(stderr, "troupe: %s; leaving with code 70\n", why);
  std::fflush(nullptr);
  ::_exit(70);
}

} // namespace

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
  std::chrono::microseconds pause(50),
      waited(0); // the latter not by a clock: that goes on while the process is stopped
  for (;; pause = std::min(2 * pause, std::chrono::microseconds(5000))) {
    const std::size_t running = system.registry().running();
    if (running <= expected)
      return 0;
    if (waited >= limit)
      return running - expected;
    std::this_thread::sleep_for(pause);
    waited += pause;
  }
}

bounded_end::~bounded_end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable())
    watch_.join();
}

void bounded_end::within(std::chrono::milliseconds limit) {
  if (watch_.joinable())
    return;
  watch_ = std::thread([this, limit] {
    std::unique_lock lock(mutex_);
    // Piece by piece: a stop of the process or of its machine takes one of them, not the limit.
    const auto piece = std::max(limit / 20, std::chrono::milliseconds(1));
    for (auto left = limit; left > std::chrono::milliseconds(0); left -= piece)
      if (changed_.wait_for(lock, piece, [this] { return over_; }))
        return;
    leave("the actor system did not end in time");
  });
}

void give_up_on_actors(std::size_t left, const std::string& before) {
  leave(((before.empty() ? "" : before + "; ") + std::to_string(left) + " actors did not end in time").c_str());
}

} // namespace troupe
