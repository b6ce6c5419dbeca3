// Context-parallel ranks inside one process: each rank takes the rows it needs out of the others' memory. No rank waits
// for ever: what is late or lost ends the group.
#pragma once
#include "runtime/model/context_group.hpp"
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

// Where the ranks of a group meet. A leaf with its own lock.
class context_meeting {
public:
  explicit context_meeting(int ranks) : offers_(static_cast<std::size_t>(ranks)) {}

  // What a rank shows the others while they meet.
  struct offer {
    std::uint64_t number = 0; // of the step, or the width of the rows: equal on all ranks
    dev_ptr<const std::byte> rows;
    std::shared_ptr<const event> ready; // the rows are there once it is done
  };
  int ranks() const { return static_cast<int>(offers_.size()); }
  // Waits until every rank has come, at most `limit`; gives the offers of all, valid until this rank comes again.
  // Throws device_error.
  const std::vector<offer>& meet(int rank, offer mine, std::chrono::milliseconds limit);
  // The group is of no use any more; everyone who waits or comes gets an error with the first reason given.
  void end(const std::string& why);
  bool ended() const;

private:
  void end_locked(const std::string& why);
  [[noreturn]] void refuse(int rank) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<offer> offers_, complete_; // of the meeting under way, of the last complete one
  std::size_t came_ = 0;
  std::uint64_t meetings_ = 0;
  std::string ended_; // why; empty = in use
};

class context_exchange final : public context_group {
public:
  // rank: in [0, meeting->ranks()).
  context_exchange(std::shared_ptr<context_meeting> meeting, int rank, std::chrono::milliseconds limit)
      : meeting_(std::move(meeting)), rank_(rank), limit_(limit) {}
  int rank() const override { return rank_; }
  int ranks() const override { return meeting_->ranks(); }
  void meet(std::uint64_t number) override;
  void gather(stream& s, dev_ptr<const std::byte> mine, std::int64_t row_bytes, std::span<const context_run> runs,
              dev_ptr<std::byte> all) override;
  void abandon(const std::string& why) override;

private:
  std::shared_ptr<context_meeting> meeting_;
  int rank_;
  std::chrono::milliseconds limit_;
};

} // namespace troupe
