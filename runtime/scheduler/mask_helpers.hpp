// What the making of masks has beside the scheduler's own thread. What is decided does not depend on it.
#pragma once
#include <cstddef>
#include <functional>

namespace troupe {

class mask_helpers {
public:
  virtual ~mask_helpers() = default;
  // Calls each(i) once for every i < n, on any threads; all are done behind it.
  virtual void all(std::size_t n, const std::function<void(std::size_t)>& each) = 0;
  // Calls `work` some time later, on another thread; the scheduler hears when it is done (scheduler_core::masks_made).
  virtual void later(std::function<void()> work) = 0;
  // A clock that goes on, for reports.
  virtual double seconds() const = 0;
};

} // namespace troupe
