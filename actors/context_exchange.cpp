#include "actors/context_exchange.hpp"
#include "runtime/base/device_error.hpp"

namespace troupe {

namespace {

std::string named(int rank) {
  return "context-parallel rank " + std::to_string(rank);
}

} // namespace

void context_meeting::end_locked(const std::string& why) {
  if (ended_.empty())
    ended_ = why.empty() ? "unknown reason" : why;
  changed_.notify_all();
}

void context_meeting::end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  end_locked(why);
}

bool context_meeting::ended() const {
  const std::lock_guard lock(mutex_);
  return !ended_.empty();
}

void context_meeting::refuse(int rank) const {
  throw device_error(named(rank) + " of " + std::to_string(ranks()) + " cannot go on: " + ended_);
}

const std::vector<context_meeting::offer>& context_meeting::meet(int rank, offer mine,
                                                                 std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (!ended_.empty())
    refuse(rank);
  const std::uint64_t number = mine.number, meeting = meetings_;
  offers_[static_cast<std::size_t>(rank)] = std::move(mine);
  if (++came_ < offers_.size()) {
    const bool came = changed_.wait_for(lock, limit, [&] { return meetings_ != meeting || !ended_.empty(); });
    if (!came)
      end_locked("only " + std::to_string(came_) + " of " + std::to_string(ranks()) + " ranks came within " +
                 std::to_string(limit.count()) + " ms");
    if (meetings_ == meeting)
      refuse(rank);
  } else {
    for (const offer& o : offers_)
      if (o.number != number)
        end_locked("the ranks do different things (" + std::to_string(o.number) + " and " + std::to_string(number) +
                   ")");
    if (!ended_.empty())
      refuse(rank);
    complete_ = offers_;
    came_ = 0;
    ++meetings_;
    changed_.notify_all();
  }
  return complete_; // changes when all ranks, this one too, have come to the next meeting
}

void context_exchange::meet(std::uint64_t number) {
  meeting_->meet(rank_, {number, {}, {}}, limit_);
}

void context_exchange::gather(stream& s, dev_ptr<const std::byte> mine, std::int64_t row_bytes,
                              std::span<const context_run> runs, dev_ptr<std::byte> all) {
  const auto width = static_cast<std::uint64_t>(row_bytes);
  const auto& offers = meeting_->meet(rank_, {width, mine, s.record()}, limit_);
  for (int rank = 0; rank < ranks(); ++rank)
    if (rank != rank_)
      s.wait_for(*offers[static_cast<std::size_t>(rank)].ready);
  for (const context_run& r : runs)
    s.copy(all + r.to * row_bytes, offers[static_cast<std::size_t>(r.rank)].rows + r.from * row_bytes,
           static_cast<std::size_t>(r.rows * row_bytes));
  // What this rank computes next may overwrite its rows: not before the others have read them.
  const auto& read = meeting_->meet(rank_, {width, {}, s.record()}, limit_);
  for (int rank = 0; rank < ranks(); ++rank)
    if (rank != rank_)
      s.wait_for(*read[static_cast<std::size_t>(rank)].ready);
}

void context_exchange::abandon(const std::string& why) {
  meeting_->end(named(rank_) + ": " + why);
}

} // namespace troupe
