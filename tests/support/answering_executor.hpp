// Commands and answers of an executor that reverses what it gets, for tests of the ways that steps take.
#pragma once
#include "cluster/step_board.hpp"
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace troupe::test {

using byte_vector = std::vector<std::uint8_t>;

// What executor `e` gets in a step: mostly within a slot, sometimes far above.
inline byte_vector command_of(std::uint64_t step, std::size_t e) {
  std::mt19937_64 random(step * 64 + e);
  byte_vector b(random() % 16 == 0 ? 1000 + random() % 20'000 : random() % 200);
  for (auto& x : b)
    x = static_cast<std::uint8_t>(random());
  return b;
}
inline byte_vector answer_to(byte_span command, std::uint64_t step, std::size_t e) {
  byte_vector b(command.rbegin(), command.rend());
  b.push_back(static_cast<std::uint8_t>(step));
  b.push_back(static_cast<std::uint8_t>(e));
  return b;
}

// Attaches as soon as the board is there, at most ten seconds.
inline result<step_board_executor> attach_soon(const std::string& board, std::size_t e) {
  auto executor = step_board_executor::attach(board, e);
  for (int n = 0; !executor && n < 10'000; ++n) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    executor = step_board_executor::attach(board, e);
  }
  return executor;
}

// Takes up to `ahead` commands before it answers the first; ends when the scheduler leaves (0) or dies (5); any other
// number is an error. Kills itself when step `die_at` comes.
inline int run_executor(const std::string& board, std::size_t e, std::size_t ahead,
                        std::uint64_t die_at = ~std::uint64_t{0}) {
  using namespace std::chrono_literals;
  auto executor = attach_soon(board, e);
  if (!executor)
    return 2;
  struct taken {
    std::uint64_t step;
    byte_vector command;
  };
  std::deque<taken> open;
  for (;;) {
    const auto command = executor->next(open.empty() ? std::chrono::nanoseconds(60s) : 0ns);
    if (command) {
      if (command->step == die_at)
        ::raise(SIGKILL);
      if (!std::ranges::equal(command->bytes, command_of(command->step, e)))
        return 3;
      open.push_back({command->step, byte_vector(command->bytes.begin(), command->bytes.end())});
      if (open.size() < ahead)
        continue;
    } else if (open.empty()) {
      return command.failure().code == "closed" ? 0 : command.failure().code == "peer_gone" ? 5 : 4;
    }
    if (!executor->answer(answer_to(open.front().command, open.front().step, e)))
      return 6;
    open.pop_front();
  }
}

// `to`: a step_board or a step_link.
template <class To> status post_step(To& to, std::uint64_t step, std::size_t executors) {
  std::vector<byte_vector> commands;
  for (std::size_t e = 0; e < executors; ++e)
    commands.push_back(command_of(step, e));
  const std::vector<byte_span> spans(commands.begin(), commands.end());
  return to.post(step, spans, std::chrono::seconds(60));
}
template <class From> bool right_answers(From& from, std::uint64_t step, std::size_t executors) {
  const auto answers = from.wait(step, std::chrono::seconds(60));
  if (!answers)
    BOOST_ERROR("step " + std::to_string(step) + ": " + answers.failure().message);
  bool right = answers && answers->size() == executors;
  for (std::size_t e = 0; right && e < executors; ++e)
    right = std::ranges::equal((*answers)[e], answer_to(command_of(step, e), step, e));
  return right;
}

} // namespace troupe::test
