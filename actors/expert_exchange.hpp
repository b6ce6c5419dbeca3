// Expert rows inside one process: an executor hands a step's rows to all expert executors by pointer and waits until
// each has written the contributions of its own experts. No row is copied, and a contribution has the same bits whoever
// computes it.
#pragma once
#include "cluster/caf.hpp"
#include "cluster/messages.hpp"
#include "devices/device.hpp"
#include "runtime/model/runner.hpp"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

// Counts the answers of one call. A leaf with its own lock.
class expert_call {
public:
  explicit expert_call(std::size_t parts) : left_(parts) {}
  void done() { settle({}); }
  void fail(const std::string& why) { settle(why); }
  // Waits for all parts, at most `limit`, or until `broken` is set. Empty, or what went wrong.
  std::string wait(std::chrono::milliseconds limit, const std::atomic<bool>& broken);

private:
  void settle(const std::string& why);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t left_;
  std::string failure_;
};

// LOCAL, one way: the answer is call->done() or call->fail(). The pointers in `args` stay valid until then.
struct expert_rows {
  int layer = 0;
  experts_args args;
  std::shared_ptr<expert_call> call;
};

using expert_executor_actor = caf::typed_actor<answers<expert_rows>, answers<stop>>;

// The expert executors of a process. Filled before the first step; `broken` is set for good when one is lost or late:
// its memory accesses can no longer be told apart from those of the next step.
struct expert_group {
  std::vector<expert_executor_actor> members;
  std::atomic<bool> broken{false};
};

// The expert_backend of one executor. Throws device_error when an expert executor fails, is lost or does not answer in
// time.
class expert_exchange final : public expert_backend {
public:
  expert_exchange(std::shared_ptr<expert_group> group, std::chrono::milliseconds limit)
      : group_(std::move(group)), limit_(limit) {}
  void run(stream& s, int layer, experts_args args) override;

private:
  std::shared_ptr<expert_group> group_;
  std::chrono::milliseconds limit_;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::expert_rows)
