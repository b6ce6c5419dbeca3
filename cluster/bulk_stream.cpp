#include "cluster/bulk_stream.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

error error_of(stream_end why, std::uint64_t stream) {
  const std::string which = "stream " + std::to_string(stream) + ": ";
  switch (why) {
  case stream_end::damaged:
    return {"stream_failed", which + "a frame was lost or damaged each time it was sent"};
  case stream_end::stale_epoch:
    return {"stale_epoch", which + "it belongs to an older membership; open another in the present one"};
  case stream_end::silent:
    return {"peer_silent", which + "the other side has not answered for too long"};
  case stream_end::refused:
    return {"stream_refused", which + "the other side does not know it, or has too many"};
  case stream_end::closed:
    return {"closed", which + "one side has given it up"};
  }
  return {"stream_failed", which + "it was ended for reason " + std::to_string(static_cast<std::uint64_t>(why))};
}

// ---- sender

void outgoing_stream::add(bulk_frame frame, steady_time now) {
  TROUPE_CHECK(!last_added_, "no frame comes after the last of a stream");
  if (frames_.empty()) { // the receiver owed no sign until now
    heard_ = asked_ = now;
    pause_ = rules_.probe_after;
  }
  frame.seq = base_ + frames_.size();
  last_added_ = frame.last;
  const std::uint64_t bytes = credited_bytes(frame);
  held_ += bytes;
  frames_.push_back({std::move(frame), bytes});
}

std::optional<outgoing_stream::departure> outgoing_stream::next() const {
  if (failed_)
    return std::nullopt;
  for (std::size_t i = 0; i < out_; ++i)
    if (frames_[i].wanted)
      return departure{frames_[i].frame, std::min(frames_[i].again, 3U)};
  if (out_ == frames_.size() || out_ >= rules_.frames_ahead || sent_bytes_ + frames_[out_].bytes > credit_)
    return std::nullopt;
  return departure{frames_[out_].frame, 0};
}

void outgoing_stream::sent(std::uint64_t seq, steady_time now) {
  const std::size_t i = seq - base_;
  if (seq < base_ || i > out_ || i >= frames_.size())
    return; // acknowledged meanwhile
  frames_[i].probes = probes_;
  if (i == out_) {
    sent_bytes_ += frames_[i].bytes;
    ++out_;
  } else {
    frames_[i].wanted = false;
    asked_ = now; // time for the copy to arrive
  }
}

void outgoing_stream::acknowledged(std::uint64_t next_expected, std::uint64_t credit, steady_time now) {
  heard_ = now;
  const bool moved = next_expected > base_ || credit > credit_;
  if (next_expected > sent_frames())
    return; // acknowledges what was never sent: not believed
  credit_ = std::max(credit_, credit);
  for (; base_ < next_expected; ++base_, --out_) {
    held_ -= frames_.front().bytes;
    frames_.pop_front();
  }
  if (moved) {
    pause_ = rules_.probe_after;
    asked_ = now;
  }
}

void outgoing_stream::missing(std::uint64_t seq, unsigned attempt, std::uint64_t probe, steady_time now) {
  heard_ = now;
  if (seq < base_ || seq >= sent_frames()) // a late report, or one of what was never sent
    return;
  entry& e = frames_[seq - base_];
  const bool of_newest_copy = probe > 0 ? probe > e.probes : attempt == std::min(e.again, 3U);
  if (e.wanted || !of_newest_copy)
    return;
  if (++e.again > rules_.most_retransmits)
    return fail(stream_end::damaged);
  e.wanted = true;
}

std::optional<steady_time> outgoing_stream::due() const {
  if (frames_.empty() || failed_)
    return std::nullopt;
  return std::min(asked_ + pause_, heard_ + rules_.silent_limit);
}

bool outgoing_stream::poke(steady_time now) {
  if (frames_.empty() || failed_)
    return false;
  if (now - heard_ >= rules_.silent_limit) {
    fail(stream_end::silent);
    return false;
  }
  if (now < asked_ + pause_)
    return false;
  asked_ = now;
  pause_ = std::min(2 * pause_, rules_.probe_most);
  ++probes_;
  return true;
}

// ---- receiver

incoming_stream::outcome incoming_stream::take(bulk_frame frame) {
  outcome o;
  const std::uint64_t seq = frame.seq, bytes = credited_bytes(frame);
  if (seq < expected_ || early_.contains(seq)) {
    o.what = verdict::duplicate;
    return o;
  }
  // A sender that keeps to the credit and to frames_ahead never gets here.
  if (complete_ || seq - expected_ >= rules_.frames_ahead || (held_ > 0 && held_ + bytes > rules_.credit_bytes)) {
    o.what = verdict::out_of_bounds;
    return o;
  }
  held_ += bytes;
  early_.emplace(seq, std::move(frame));
  for (auto first = early_.begin(); first != early_.end() && first->first == expected_; first = early_.erase(first)) {
    complete_ = first->second.last;
    o.deliver.push_back(std::move(first->second));
    ++expected_;
  }
  for (std::uint64_t gap = std::max(seen_, expected_); gap < seq; ++gap)
    o.missing.push_back(gap);
  seen_ = std::max(seen_, seq + 1);
  return o;
}

bool incoming_stream::damaged(std::uint64_t seq) const {
  return seq >= expected_ && seq - expected_ < rules_.frames_ahead && !early_.contains(seq);
}

std::vector<std::uint64_t> incoming_stream::probed(std::uint64_t sent_frames) const {
  std::vector<std::uint64_t> missing;
  for (std::uint64_t seq = expected_; seq < std::min(sent_frames, expected_ + rules_.frames_ahead); ++seq)
    if (!early_.contains(seq))
      missing.push_back(seq);
  return missing;
}

bool incoming_stream::consumed(std::uint64_t bytes) {
  held_ -= std::min(held_, bytes);
  credit_ += bytes;
  return credit_ - std::max(told_, rules_.credit_bytes) >= rules_.credit_bytes / 4;
}

} // namespace troupe
