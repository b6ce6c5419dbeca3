// How many messages to one peer may be without an answer (cluster.md §3.11). What comes beyond is held here, in order,
// until there is room. Of any thread. Messages leave under the lock, so that none overtakes another: what sends them
// must neither block nor come back here.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <mutex>
#include <set>
#include <utility>

namespace troupe {

class message_window {
public:
  explicit message_window(std::size_t limit = std::numeric_limits<std::size_t>::max()) : limit_(limit) {}

  // key: of this message, among those that are not answered.
  void send(std::uint64_t key, std::function<void()> message) {
    const std::lock_guard lock(mutex_);
    if (out_.size() >= limit_) {
      held_.emplace_back(key, std::move(message));
      ++held_so_far_;
      return;
    }
    out_.insert(key);
    message();
  }

  // It was, or nobody waits for its answer any more: if it is held, it never leaves.
  void answered(std::uint64_t key) {
    const std::lock_guard lock(mutex_);
    if (out_.erase(key) == 0)
      held_.remove_if([&](const auto& h) { return h.first == key; });
    while (!held_.empty() && out_.size() < limit_) {
      const auto next = std::move(held_.front());
      held_.pop_front();
      out_.insert(next.first);
      next.second();
    }
  }

  std::uint64_t held_so_far() const {
    const std::lock_guard lock(mutex_);
    return held_so_far_;
  }

private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::set<std::uint64_t> out_;
  std::list<std::pair<std::uint64_t, std::function<void()>>> held_;
  std::uint64_t held_so_far_ = 0;
};

} // namespace troupe
