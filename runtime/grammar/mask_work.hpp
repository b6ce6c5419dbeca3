// How much work the making of masks is: counted, not timed, so that who is left out of a step does not depend on the
// machine. The unit is one node of a token trie looked at, some nanoseconds.
#pragma once
#include <atomic>
#include <cstddef>
#include <limits>

namespace troupe {

class mask_work {
public:
  mask_work() = default; // without a limit
  explicit mask_work(std::size_t limit, const std::atomic<bool>* given_up = nullptr)
      : limit_(limit), given_up_(given_up) {}

  // False: the limit is reached, or nobody wants the masks any more. What was being made is worth nothing then.
  bool add(std::size_t work) {
    done_ += work;
    if (done_ > limit_ || (given_up_ != nullptr && given_up_->load(std::memory_order_relaxed)))
      spent_ = true;
    return !spent_;
  }
  bool spent() const { return spent_; }
  std::size_t done() const { return done_; }

private:
  std::size_t limit_ = std::numeric_limits<std::size_t>::max(), done_ = 0;
  const std::atomic<bool>* given_up_ = nullptr; // set by another thread
  bool spent_ = false;
};

} // namespace troupe
