// frame_writer and frame_reader over ZeroMQ: questions and answers of two processes that share no memory, all kinds of
// one pair over one stream each way. Here frames are allocated; between hosts that is the least of their costs.
#pragma once
#include "cluster/bulk_channel.hpp"
#include "cluster/frame_pipe.hpp"
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

class bulk_frame_writer final : public frame_writer {
public:
  // `stream`: never used before on this channel.
  bulk_frame_writer(std::shared_ptr<bulk_sender> sender, std::uint64_t stream, std::size_t largest);
  ~bulk_frame_writer() override;

  std::size_t largest() const override { return largest_; }
  result<std::span<std::byte>> reserve(std::size_t bytes, std::chrono::nanoseconds limit) override;
  status send(frame_kind kind, std::uint64_t number) override;

private:
  std::shared_ptr<bulk_sender> sender_;
  std::uint64_t stream_;
  std::size_t largest_;
  std::vector<std::uint8_t> payload_; // reserved
  std::chrono::nanoseconds limit_{0};
};

// What comes from one peer, parted into questions and answers. Whoever reads the questions moves the answers on, too.
class bulk_inlet {
public:
  explicit bulk_inlet(std::shared_ptr<bulk_receiver> receiver);
  std::unique_ptr<frame_reader> questions(frame_kind kind); // of this kind; every other frame is an answer
  std::unique_ptr<frame_reader> answers();

private:
  struct shared;
  class question_reader;
  class answer_reader;
  std::shared_ptr<shared> shared_;
};

} // namespace troupe
