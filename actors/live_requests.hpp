// The ids of the requests that have not ended: one registry by id, so that a duplicate is refused and an abort finds
// its request in every state (defects D13, D20). Until the gateway takes a request, it is the registry that knows it: a
// gateway that is lost leaves nobody waiting. A leaf with its own lock; any thread.
#pragma once
#include "cluster/messages.hpp"
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace troupe {

struct request_record;

class live_requests {
public:
  // Codes: duplicate_id, or that of close().
  status add(const std::string& id, req_t req, std::shared_ptr<const request_record> request = nullptr) {
    const std::lock_guard lock(mutex_);
    if (closed_)
      return *closed_;
    if (!by_id_.try_emplace(id, entry{req, std::move(request)}).second)
      return error{"duplicate_id", "a live request has the id " + id};
    return nothing{};
  }
  // From now on somebody else gives the request its end. True: it was to be aborted before, when nobody knew it yet.
  bool take(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto at = by_id_.find(id);
    if (at == by_id_.end())
      return false;
    at->second.untaken.reset();
    return at->second.aborted;
  }
  // Marks it for who takes it, and who has taken it is to be told; nothing: it is not live.
  std::optional<req_t> abort(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto at = by_id_.find(id);
    if (at == by_id_.end())
      return std::nullopt;
    at->second.aborted = true;
    return at->second.req;
  }
  void remove(const std::string& id) {
    const std::lock_guard lock(mutex_);
    by_id_.erase(id);
  }
  // Nothing is added any more. Returns what nobody has taken.
  std::vector<std::shared_ptr<const request_record>> close(const error& why) {
    const std::lock_guard lock(mutex_);
    closed_ = why;
    std::vector<std::shared_ptr<const request_record>> untaken;
    for (auto& [id, e] : by_id_)
      if (e.untaken)
        untaken.push_back(std::move(e.untaken));
    return untaken;
  }
  std::optional<req_t> find(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? std::nullopt : std::optional(at->second.req);
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return by_id_.size();
  }

private:
  struct entry {
    req_t req;
    std::shared_ptr<const request_record> untaken;
    bool aborted = false;
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, entry> by_id_;
  std::optional<error> closed_;
};

} // namespace troupe
