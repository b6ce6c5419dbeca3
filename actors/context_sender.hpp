// Rank 0 of an engine whose other ranks are processes: they get every step before it is launched here, those of its
// host through a board in shared memory, those of another over a link to the board there. Only this rank's results
// count; the ranks meet inside a step (context_processes.hpp).
#pragma once
#include "actors/step_carriers.hpp"
#include "cluster/plan_bytes.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

// Of the board that carries steps. A plan that is larger than what a ring takes at once travels in pieces; what a
// follower has read it answers at once.
inline constexpr std::size_t plan_piece_bytes = std::size_t{256} << 10;
inline step_board_options context_steps_of(std::size_t followers) {
  return {followers, std::size_t{16} << 10, 4 * plan_piece_bytes, steps_out_max};
}
// The number of a command says whether it is a plan's last piece.
constexpr std::uint64_t plan_piece_number(std::uint64_t command, bool last) {
  return 2 * command + (last ? 1 : 0);
}
constexpr bool is_last_piece(std::uint64_t number) {
  return number % 2 != 0;
}

class context_sender final : public step_engine {
public:
  // on_lost: a follower does not take its steps any more; called before the launch that finds it out fails.
  context_sender(std::shared_ptr<step_engine> own, std::vector<std::shared_ptr<step_carrier>> carriers,
                 std::chrono::milliseconds limit, std::function<void(const std::string& why)> on_lost);
  void launch(const step_plan& plan) override;
  bool finished() override { return own_->finished(); }
  void collect(step_result& out) override { own_->collect(out); }

private:
  void post(byte_span piece, bool last);
  void wait_for_oldest();
  [[noreturn]] void give_up(const error& why);

  std::shared_ptr<step_engine> own_;
  std::vector<std::shared_ptr<step_carrier>> carriers_; // [hosts]
  std::chrono::milliseconds limit_;
  std::function<void(const std::string&)> on_lost_;
  plan_writer writer_;
  std::array<std::uint64_t, steps_out_max> numbers_{};
  std::uint64_t posted_ = 0, answered_ = 0;
};

} // namespace troupe
