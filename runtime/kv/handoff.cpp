#include "runtime/kv/handoff.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

namespace {

error expired(const char* side, std::int64_t ms) {
  return {"lease_expired", std::string("the handoff of a prompt's cache: nothing came from the ") + side + " for " +
                               std::to_string(ms) + " ms (timeouts.kv_lease_ms)"};
}

} // namespace

// ---- sender

outgoing_handoff::outgoing_handoff(const image_shape& shape, const handoff_times& times, std::int64_t now)
    : shape_(shape), times_(times), spoken_(now), moved_(now) {}

void outgoing_handoff::add(std::shared_ptr<const std::vector<std::uint8_t>> bytes, bool last, std::int32_t cached,
                           std::int64_t now) {
  if (over_ || complete_)
    return;
  moved_ = now;
  added_ += std::ssize(*bytes);
  if (!bytes->empty())
    pieces_.push_back(std::move(bytes));
  if (added_ > shape_.bytes() || (last && added_ != shape_.bytes()))
    return end({"internal", "the image of a prompt's cache has " + std::to_string(added_) + " bytes, its shape " +
                                std::to_string(shape_.bytes())});
  if (!last)
    return;
  complete_ = true;
  cached_ = cached;
  bytes_at_end_ = waiting_bytes();
  finished_at_ = now;
}

std::optional<image_chunk> outgoing_handoff::next(std::int64_t now) {
  if (over_ || committed_)
    return std::nullopt;
  image_chunk c;
  c.offset = sent_;
  if (!pieces_.empty()) {
    const auto& front = *pieces_.front();
    const auto skip = static_cast<std::size_t>(sent_ - first_);
    c.bytes = std::span(front).subspan(skip, std::min(front.size() - skip, image_chunk_bytes));
    c.owner = pieces_.front();
    return c;
  }
  if (complete_) {
    c.kind = chunk_kind::commit;
    sha256 all = digest_;
    c.digest = all.finish();
    c.cached = cached_;
    return c;
  }
  c.kind = chunk_kind::renewal;
  return now - spoken_ >= times_.renew_ms ? std::optional(c) : std::nullopt;
}

void outgoing_handoff::sent(const image_chunk& c, std::int64_t now) {
  if (over_)
    return;
  spoken_ = moved_ = now;
  if (c.kind == chunk_kind::commit)
    committed_ = true;
  if (c.kind != chunk_kind::data)
    return;
  digest_.update(c.digest);
  sent_ += std::ssize(c.bytes);
  if (sent_ - first_ == std::ssize(*pieces_.front())) {
    first_ = sent_;
    pieces_.pop_front();
  }
}

void outgoing_handoff::delivered(std::int64_t now) {
  if (over_)
    return;
  moved_ = now;
  over_ = committed_;
}

void outgoing_handoff::end(const error& why) {
  if (over_)
    return;
  over_ = true;
  failure_ = why;
  pieces_.clear();
}

void outgoing_handoff::tick(std::int64_t now) {
  const bool unsent = waiting_bytes() > 0 || complete_; // else it waits for the prompt, not for the other side
  if (!over_ && unsent && now - moved_ > times_.lease_ms)
    end(expired("receiver", times_.lease_ms));
  if (!over_ && finished_at_ && now - *finished_at_ > times_.total_ms)
    end({"lease_expired", "the handoff of a prompt's cache was not over " + std::to_string(times_.total_ms) +
                              " ms behind the prompt (timeouts.handoff_ms)"});
}

// ---- receiver

incoming_handoff::incoming_handoff(const image_shape& shape, const handoff_times& times, std::int64_t now)
    : shape_(shape), times_(times), heard_(now) {}

void incoming_handoff::check(const image_shape& theirs) {
  if (theirs != shape_)
    end({"handoff_failed", "the cache of a prompt comes from an engine of other settings: " + theirs.settings +
                               " there, " + shape_.settings + " here, " + std::to_string(theirs.bytes()) + " and " +
                               std::to_string(shape_.bytes()) + " bytes"});
}

void incoming_handoff::take(const image_chunk& c, std::int64_t now) {
  if (over_)
    return;
  heard_ = now;
  const std::int64_t end_of_chunk = c.offset + std::ssize(c.bytes);
  if (c.kind == chunk_kind::renewal || (c.kind == chunk_kind::data && end_of_chunk <= received_))
    return;
  if (c.kind == chunk_kind::data) {
    if (c.offset != received_ || end_of_chunk > shape_.bytes())
      return end({"handoff_failed", "bytes " + std::to_string(c.offset) + " to " + std::to_string(end_of_chunk) +
                                        " of a prompt's cache of " + std::to_string(shape_.bytes()) + " came where " +
                                        std::to_string(received_) + " were due"});
    if (!image_) {
      image_ = std::make_shared<std::vector<std::uint8_t>>();
      image_->reserve(static_cast<std::size_t>(shape_.bytes()));
    }
    image_->insert(image_->end(), c.bytes.begin(), c.bytes.end());
    digest_.update(c.digest);
    received_ = end_of_chunk;
    return;
  }
  sha256 all = digest_;
  if (c.offset != received_ || received_ != shape_.bytes() || all.finish() != c.digest)
    return end({"handoff_failed", "a prompt's cache is not what its sender says: " + std::to_string(received_) +
                                      " of " + std::to_string(c.offset) + " bytes came, or their digest differs"});
  cached_ = c.cached;
  over_ = true;
}

void incoming_handoff::end(const error& why) {
  if (over_)
    return;
  over_ = true;
  failure_ = why;
  image_.reset();
}

void incoming_handoff::tick(std::int64_t now) {
  if (!over_ && now - heard_ > times_.lease_ms)
    end(expired("sender", times_.lease_ms));
}

std::shared_ptr<const std::vector<std::uint8_t>> incoming_handoff::take_image() {
  return whole() ? std::exchange(image_, nullptr) : nullptr;
}

} // namespace troupe
