// What carries rank 0's steps to the other ranks of one host: the board there, or a link to that host and its board.
#pragma once
#include "cluster/connect.hpp"
#include "cluster/step_board.hpp"
#include "cluster/step_link.hpp"
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

// All ranks of the host get the same; what they answer is that they have it.
class step_carrier {
public:
  virtual ~step_carrier() = default;
  virtual status post(std::uint64_t number, byte_span piece, std::chrono::milliseconds limit) = 0;
  virtual status wait(std::uint64_t number, std::chrono::milliseconds limit) = 0;
};

class steps_by_board final : public step_carrier {
public:
  explicit steps_by_board(step_board board) : board_(std::move(board)), commands_(board_.executors()) {}
  status post(std::uint64_t number, byte_span piece, std::chrono::milliseconds limit) override;
  status wait(std::uint64_t number, std::chrono::milliseconds limit) override;
  bool lost() const; // a rank that was here is gone; on any thread

private:
  step_board board_;
  std::vector<byte_span> commands_; // [ranks of this host], all the same
};

// connect(), lost() and shut() may be called by any thread, the rest by that which sends.
class steps_by_link final : public step_carrier {
public:
  explicit steps_by_link(std::size_t ranks) : commands_(ranks) {}
  // Once, if it succeeds. Failures: those of step_link::connect, "closed".
  status connect(const endpoint& at, step_link_identity server, std::chrono::milliseconds limit);
  bool connected() const { return link() != nullptr; }
  bool lost() const; // it was connected
  void shut();       // for good: who posts or waits fails now
  status post(std::uint64_t number, byte_span piece, std::chrono::milliseconds limit) override;
  status wait(std::uint64_t number, std::chrono::milliseconds limit) override;

private:
  std::shared_ptr<step_link> link() const;

  mutable std::mutex guard_;
  std::shared_ptr<step_link> link_; // guarded
  bool shut_ = false;               // guarded
  std::vector<byte_span> commands_; // [ranks there], all the same
};

} // namespace troupe
