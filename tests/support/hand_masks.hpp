// Helpers that a test lets do their work when it likes.
#pragma once
#include "runtime/scheduler/mask_helpers.hpp"
#include <deque>

namespace troupe {

struct hand_masks final : mask_helpers {
  std::deque<std::function<void()>> queue;
  std::size_t late = 0; // so far

  void all(std::size_t n, const std::function<void(std::size_t)>& each) override { // the last first
    while (n > 0)
      each(--n);
  }
  void later(std::function<void()> work) override {
    queue.push_back(std::move(work));
    ++late;
  }
  double seconds() const override { return 0; }

  // One piece of work, of those that wait; false if none does.
  bool work_on(std::size_t which = 0) {
    if (queue.empty())
      return false;
    const auto at = queue.begin() + static_cast<std::ptrdiff_t>(which % queue.size());
    const std::function<void()> work = std::move(*at);
    queue.erase(at);
    work();
    return true;
  }
};

} // namespace troupe
