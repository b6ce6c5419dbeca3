#include "cluster/bulk_pipe.hpp"

namespace troupe {

namespace {

// As a reader of frames sees it: under the number that its question had.
frame_view view_of(const bulk_frame& f) {
  frame_view v;
  v.header.kind = f.kind;
  v.header.seq = f.step_or_offset;
  v.header.payload_bytes = static_cast<std::uint32_t>(f.payload.bytes.size());
  v.payload = f.payload.bytes;
  return v;
}

std::chrono::milliseconds in_ms(std::chrono::nanoseconds limit) {
  return std::chrono::ceil<std::chrono::milliseconds>(limit);
}

} // namespace

bulk_frame_writer::bulk_frame_writer(std::shared_ptr<bulk_sender> sender, std::uint64_t stream, std::size_t largest)
    : sender_(std::move(sender)), stream_(stream), largest_(largest) {}

bulk_frame_writer::~bulk_frame_writer() {
  sender_->abandon(stream_);
}

result<std::span<std::byte>> bulk_frame_writer::reserve(std::size_t bytes, std::chrono::nanoseconds limit) {
  if (bytes > largest_)
    return error{"too_large",
                 "a frame of " + std::to_string(bytes) + " bytes; this pipe takes " + std::to_string(largest_)};
  limit_ = limit;
  payload_.resize(bytes);
  return std::as_writable_bytes(std::span(payload_));
}

status bulk_frame_writer::send(frame_kind kind, std::uint64_t number) {
  bulk_frame f;
  f.kind = kind;
  f.stream = stream_;
  f.step_or_offset = number;
  f.payload = own(std::exchange(payload_, {}));
  return sender_->send(std::move(f), in_ms(limit_));
}

struct bulk_inlet::shared {
  std::shared_ptr<bulk_receiver> receiver;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<bulk_frame> answers;
  std::optional<error> ended;

  void end(const error& why) {
    {
      const std::lock_guard lock(mutex);
      ended = ended ? ended : std::optional(why);
    }
    changed.notify_all();
  }
};

class bulk_inlet::question_reader final : public frame_reader {
public:
  question_reader(std::shared_ptr<shared> s, frame_kind kind) : shared_(std::move(s)), kind_(kind) {}
  ~question_reader() override { shared_->end({"closed", "nobody reads the link any more"}); }

  result<frame_view> front(std::chrono::nanoseconds limit) override {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!frame_) {
      auto arrival = shared_->receiver->receive(in_ms(std::max(end - std::chrono::steady_clock::now(), {})));
      if (!arrival) {
        if (arrival.failure().code != "timed_out")
          shared_->end(arrival.failure());
        return arrival.failure();
      }
      if (arrival->failure && arrival->frame.stream != stream_)
        continue; // of a link that is gone
      if (arrival->failure) {
        shared_->end({"closed", arrival->failure->message});
        return error{"closed", arrival->failure->message};
      }
      stream_ = arrival->frame.stream;
      if (arrival->frame.kind == kind_) {
        frame_ = std::move(arrival->frame);
        break;
      }
      {
        const std::lock_guard lock(shared_->mutex);
        shared_->answers.push_back(std::move(arrival->frame));
      }
      shared_->changed.notify_all();
    }
    return view_of(*frame_);
  }
  void pop() override { frame_.reset(); }

private:
  std::shared_ptr<shared> shared_;
  frame_kind kind_;
  std::optional<bulk_frame> frame_;
  std::uint64_t stream_ = 0; // that came last
};

class bulk_inlet::answer_reader final : public frame_reader {
public:
  explicit answer_reader(std::shared_ptr<shared> s) : shared_(std::move(s)) {}

  result<frame_view> front(std::chrono::nanoseconds limit) override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, limit, [&] { return !shared_->answers.empty() || shared_->ended; });
    if (!shared_->answers.empty())
      return view_of(shared_->answers.front());
    return shared_->ended ? *shared_->ended : error{"timed_out", "nothing came over the link in time"};
  }
  void pop() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->answers.pop_front();
  }

private:
  std::shared_ptr<shared> shared_;
};

bulk_inlet::bulk_inlet(std::shared_ptr<bulk_receiver> receiver) : shared_(std::make_shared<shared>()) {
  shared_->receiver = std::move(receiver);
}

std::unique_ptr<frame_reader> bulk_inlet::questions(frame_kind kind) {
  return std::make_unique<question_reader>(shared_, kind);
}

std::unique_ptr<frame_reader> bulk_inlet::answers() {
  return std::make_unique<answer_reader>(shared_);
}

} // namespace troupe
