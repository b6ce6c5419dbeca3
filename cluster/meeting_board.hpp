// A meeting of ranks that are processes of one host, through shared memory. Each rank has two places for bytes, used in
// turns: what it shows at one meeting stays there while the others read it, until it comes to the next meeting but one,
// and by then all have come to the one between.
//
// Memory orders: numbers and bytes are plain stores before the sequentially consistent store of `came`, and are read
// after it was loaded; see wake_word.hpp.
#pragma once
#include "cluster/meeting.hpp"
#include "cluster/shared_memory.hpp"
#include "runtime/base/result.hpp"
#include <memory>
#include <string>

namespace troupe {

struct meeting_board_options {
  std::size_t ranks = 2;       // at most 1024
  std::size_t place_bytes = 0; // that a rank may show at a meeting
  std::string greeting;        // for all who come: what the group is; at most 4096 bytes
};

class meeting_board final : public meeting {
public:
  // For rank 0, which owns the segment. Failures: those of shared_memory::create, "bad_options".
  static result<meeting_board> create(const std::string& name, const meeting_board_options& options);
  // For the others. Failures: those of shared_memory::open, "bad_segment", "in_use": a place is taken once.
  static result<meeting_board> attach(const std::string& name, std::size_t rank);
  meeting_board(meeting_board&&) noexcept;
  meeting_board& operator=(meeting_board&&) noexcept;
  ~meeting_board() override; // the others see it leave

  const std::string& greeting() const;

  std::size_t rank() const override;
  std::size_t ranks() const override;
  std::size_t place_bytes() const override;
  void be_ready() override;
  bool all_ready() const override;
  std::span<std::byte> mine(std::size_t bytes) override;
  status meet(std::uint64_t number, std::chrono::nanoseconds limit) override;
  std::span<const std::byte> shown(std::size_t rank) const override; // the whole place
  void end(const std::string& why) override;
  std::optional<error> failure() override;

private:
  struct state;
  explicit meeting_board(std::unique_ptr<state> state);
  std::unique_ptr<state> state_;
};

} // namespace troupe
