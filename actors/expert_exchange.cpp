#include "actors/expert_exchange.hpp"

namespace troupe {

void expert_call::settle(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    --left_;
    if (!why.empty() && failure_.empty())
      failure_ = why;
    if (left_ > 0)
      return;
  }
  changed_.notify_all();
}

std::string expert_call::wait(std::chrono::milliseconds limit, const std::atomic<bool>& broken) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  while (left_ > 0) {
    if (broken.load())
      return "an expert executor was lost";
    if (std::chrono::steady_clock::now() >= end)
      return std::to_string(left_) + " expert executors did not answer within " + std::to_string(limit.count()) + " ms";
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return failure_;
}

void expert_exchange::run(stream& s, int layer, experts_args args) {
  if (group_->broken.load())
    throw device_error("the expert executors are not usable any more");
  s.synchronise(); // the rows must be there before others read them
  const auto call = std::make_shared<expert_call>(group_->members.size());
  for (const auto& member : group_->members)
    tell_from_outside(member, expert_rows{layer, args, call});
  const std::string failure = call->wait(limit_, group_->broken);
  if (failure.empty())
    return;
  group_->broken.store(true);
  throw device_error("layer " + std::to_string(layer) + ": " + failure);
}

} // namespace troupe
