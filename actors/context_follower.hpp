// A rank of an engine whose rank 0 is another process: computes the steps that come from there. Their results are
// nobody's business; what goes wrong ends the group.
#pragma once
#include "cluster/plan_bytes.hpp"
#include "cluster/step_board.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

class context_follower {
public:
  context_follower(std::shared_ptr<step_engine> own, step_board_executor board)
      : own_(std::move(own)), board_(std::move(board)) {}
  // Takes and computes what is there; waits a little for something to do. Empty: go on; else why there is nothing more
  // to do.
  std::string turn();
  std::uint64_t steps() const { return launched_; } // so far

private:
  status take(const step_command& c);

  std::shared_ptr<step_engine> own_;
  step_board_executor board_;
  plan_reader reader_;
  std::vector<std::uint8_t> pieces_;              // of the plan that is coming
  std::array<step_plan, most_steps_out> plans_{}; // of the steps that are out; used again
  std::uint64_t launched_ = 0, collected_ = 0;
  step_result result_;
};

} // namespace troupe
