// The ids of the requests that have not ended: one registry by id, so that a duplicate is refused and an abort finds
// its request in every state (defects D13, D20). A leaf with its own lock; any thread.
#pragma once
#include "cluster/messages.hpp"
#include <mutex>
#include <optional>
#include <unordered_map>

namespace troupe {

class live_requests {
public:
  // False if a live request has this id.
  bool add(const std::string& id, req_t req) {
    const std::lock_guard lock(mutex_);
    return by_id_.emplace(id, req).second;
  }
  void remove(const std::string& id) {
    const std::lock_guard lock(mutex_);
    by_id_.erase(id);
  }
  std::optional<req_t> find(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? std::nullopt : std::optional(at->second);
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return by_id_.size();
  }

private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, req_t> by_id_;
};

} // namespace troupe
