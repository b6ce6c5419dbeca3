#include "cluster/step_board.hpp"
#include "tests/support/answering_executor.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/sanitizers.hpp"
#include <array>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::uint8_t>;

bool equal(byte_span a, const bytes& b) {
  return std::ranges::equal(a, b);
}

const step_board_options eight{.executors = 8, .slot_bytes = 256, .ring_bytes = 1 << 17, .steps_out = 2};

} // namespace

BOOST_AUTO_TEST_SUITE(step_boards)

BOOST_AUTO_TEST_CASE(eight_processes_answer_every_step) {
  const segment_names names;
  for (const std::size_t out : {std::size_t{1}, std::size_t{2}, steps_out_max}) {
    step_board_options options = eight;
    options.steps_out = out;
    auto board = std::make_unique<step_board>(std::move(step_board::create(names("s", "x"), options)).value());
    std::vector<forked> children;
    for (std::size_t e = 0; e < options.executors; ++e)
      children.emplace_back([&] { return run_executor(names("s", "x"), e, e % out + 1); });
    const std::uint64_t first = 100, end = first + by_build(3000, 1000, 500);
    std::uint64_t posted = first;
    for (std::uint64_t step = first; step < end; ++step) {
      for (; posted < std::min(step + out, end); ++posted)
        BOOST_REQUIRE(post_step(*board, posted, 8));
      if (posted == step + out)
        BOOST_REQUIRE(board->post(posted, std::vector<byte_span>(8), 0s).failure().code == "busy");
      BOOST_REQUIRE(right_answers(*board, step, 8));
    }
    board.reset();
    for (forked& child : children)
      BOOST_TEST(child.wait() == 0);
  }
}

BOOST_AUTO_TEST_CASE(threads_of_one_process_answer_too) {
  const segment_names names;
  step_board_options options = eight;
  options.executors = 3;
  auto board = std::make_unique<step_board>(std::move(step_board::create(names("s", "x"), options)).value());
  std::vector<std::thread> threads;
  std::array<int, 3> codes{};
  for (std::size_t e = 0; e < 3; ++e)
    threads.emplace_back([&, e] { codes[e] = run_executor(names("s", "x"), e, 1); });
  for (std::uint64_t step = 1; step <= by_build(2000U, 500U, 500U); ++step) {
    BOOST_REQUIRE(post_step(*board, step, 3));
    BOOST_REQUIRE(right_answers(*board, step, 3));
  }
  board.reset();
  for (std::thread& t : threads)
    t.join();
  for (const int code : codes)
    BOOST_TEST(code == 0);
}

BOOST_AUTO_TEST_CASE(a_killed_executor_is_named) {
  const segment_names names;
  auto board = std::move(step_board::create(names("s", "x"), eight)).value();
  std::vector<forked> children;
  for (std::size_t e = 0; e < 8; ++e)
    children.emplace_back([&] { return run_executor(names("s", "x"), e, 1, e == 5 ? 40 : ~std::uint64_t{0}); });
  std::uint64_t step = 0;
  for (; step < 40; ++step) {
    BOOST_REQUIRE(post_step(board, step, 8));
    BOOST_REQUIRE(right_answers(board, step, 8));
  }
  BOOST_REQUIRE(post_step(board, step, 8));
  auto lost = board.wait(step, 60s);
  // The others may still be at it when the death is found.
  while (!lost && board.missing().size() > 1)
    lost = board.wait(step, 60s);
  BOOST_REQUIRE(!lost);
  BOOST_TEST(lost.failure().code == "executor_gone");
  BOOST_TEST(lost.failure().message.find("(5)") != std::string::npos, lost.failure().message);
  BOOST_TEST(board.missing() == std::vector<std::size_t>{5}, boost::test_tools::per_element());
  BOOST_TEST(board.executor(5).died());
  BOOST_TEST(!board.executor(4).died());
  BOOST_TEST(step_board_executor::attach(names("s", "x"), 5).failure().code == "in_use");
}

BOOST_AUTO_TEST_CASE(executors_that_never_came_run_into_the_limit) {
  const segment_names names;
  auto board = std::move(step_board::create(names("s", "x"), eight)).value();
  BOOST_TEST(board.wait(1, 0s).failure().code == "wrong_step"); // nothing is out
  BOOST_REQUIRE(post_step(board, 1, 8));
  BOOST_TEST(board.wait(2, 0s).failure().code == "wrong_step");
  const auto late = board.wait(1, 1ms);
  BOOST_TEST(late.failure().code == "timed_out");
  BOOST_TEST(late.failure().message.find("0, 1, 2, 3, 4, 5, 6, 7") != std::string::npos, late.failure().message);
  BOOST_TEST(board.missing().size() == 8u);
}

// Executor 1 takes nothing, and its ring fills up: executor 0 must not get a step that was not posted.
BOOST_AUTO_TEST_CASE(a_step_is_posted_to_all_or_to_nobody) {
  const segment_names names;
  const step_board_options small{.executors = 2, .slot_bytes = 8, .ring_bytes = 2048, .steps_out = steps_out_max};
  auto board = std::move(step_board::create(names("s", "x"), small)).value();
  auto first = std::move(step_board_executor::attach(names("s", "x"), 0)).value();
  auto second = std::move(step_board_executor::attach(names("s", "x"), 1)).value();
  const auto command = [](std::uint64_t step) { return bytes(700, static_cast<std::uint8_t>(step)); };
  const auto post = [&](std::uint64_t step) {
    const bytes c = command(step);
    return board.post(step, std::vector<byte_span>{c, c}, 1ms);
  };
  const auto takes = [&](step_board_executor& e, std::uint64_t step) {
    const auto got = e.next(0s);
    BOOST_REQUIRE(got);
    BOOST_TEST(got->step == step);
    BOOST_TEST(equal(got->bytes, command(step)));
  };
  std::uint64_t step = 1;
  for (;; ++step) {
    const auto posted = post(step);
    if (!posted) {
      BOOST_TEST(posted.failure().code == "timed_out");
      BOOST_TEST(posted.failure().message.starts_with("executor 1: "));
      break;
    }
    takes(first, step);
    BOOST_REQUIRE(step < steps_out_max);
  }
  BOOST_TEST(step > 1u);
  BOOST_TEST(first.next(0s).failure().code == "timed_out");
  takes(second, 1);
  BOOST_REQUIRE(post(step)); // the same again, and another one
  takes(first, step);
  for (std::uint64_t s = 2; s <= step; ++s)
    takes(second, s);
}

BOOST_AUTO_TEST_CASE(executors_hear_of_the_death_of_the_scheduler) {
  const segment_names names;
  forked scheduler([&] {
    auto board = step_board::create(names("s", "x"), eight);
    if (!board || !post_step(*board, 7, 8))
      return 1;
    for (;;)
      ::pause();
  });
  for (std::size_t e = 0; e < 8; ++e) {
    auto executor = attach_soon(names("s", "x"), e);
    BOOST_REQUIRE(executor);
    const auto command = executor->next(60s);
    BOOST_REQUIRE(command);
    BOOST_TEST(command->step == 7u);
    BOOST_TEST(equal(command->bytes, command_of(7, e)));
    if (e == 7)
      scheduler.kill(SIGKILL);
    else
      continue;
    BOOST_TEST(executor->next(60s).failure().code == "peer_gone");
  }
  BOOST_TEST(scheduler.wait() == 128 + SIGKILL);
  BOOST_TEST(step_board_executor::attach(names("s", "x"), 0).failure().code == "owner_gone");
  BOOST_TEST(reap_segments(names.prefix()).size() == 1u);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const segment_names names;
  step_board_options options = eight;
  options.executors = 2;
  options.ring_bytes = 4096;
  auto board = std::move(step_board::create(names("s", "x"), options)).value();
  const bytes large(5000), fits(1500);
  const std::vector<byte_span> too_large{fits, large};
  BOOST_TEST(board.post(1, too_large, 0s).failure().code == "too_large");
  BOOST_TEST(board.post(1, std::vector<byte_span>(3), 0s).failure().code == "bad_options");
  auto executor = std::move(step_board_executor::attach(names("s", "x"), 0)).value();
  BOOST_TEST(executor.answer({}).failure().code == "no_command");
  BOOST_TEST(executor.next(0s).failure().code == "timed_out");
  const std::vector<byte_span> right{fits, fits}; // the refused one left nothing behind
  BOOST_REQUIRE(board.post(2, right, 0s));
  const auto command = executor.next(0s);
  BOOST_REQUIRE(command);
  BOOST_TEST(command->step == 2u);
  BOOST_TEST(command->bytes.size() == 1500u);
  BOOST_TEST(executor.answer(large).failure().code == "too_large");
  BOOST_TEST(bool(executor.answer(fits)));
  options.executors = 0;
  BOOST_TEST(step_board::create(names("s", "y"), options).failure().code == "bad_options");
}

BOOST_AUTO_TEST_CASE(other_segments_are_no_boards) {
  const segment_names names;
  const auto memory = std::move(shared_memory::create(names("s", "x"), 1 << 16)).value();
  BOOST_TEST(step_board_executor::attach(names("s", "x"), 0).failure().code == "bad_segment");
  const auto small = std::move(shared_memory::create(names("s", "y"), 64)).value();
  BOOST_TEST(step_board_executor::attach(names("s", "y"), 0).failure().code == "bad_segment");
  const auto board = std::move(step_board::create(names("s", "z"), eight)).value();
  BOOST_TEST(step_board_executor::attach(names("s", "z"), 8).failure().code == "bad_segment");
}

BOOST_AUTO_TEST_SUITE_END()
