#include "cluster/meeting_board.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

meeting_board made(const std::string& name, std::size_t ranks, std::size_t place_bytes = 64) {
  return meeting_board::create(name, {ranks, place_bytes, "hello"}).value();
}

// Shows a number of its own at every meeting, and looks at those of the others. 0: all was well.
int take_part(meeting_board& b, std::uint64_t meetings) {
  const auto shown_by = [](std::uint64_t m, std::size_t rank) { return 1000 * m + rank; };
  for (std::uint64_t m = 1; m <= meetings; ++m) {
    const std::uint64_t mine = shown_by(m, b.rank());
    std::memcpy(b.mine(sizeof mine).data(), &mine, sizeof mine);
    if (!b.meet(m, 60s))
      return 1;
    for (std::size_t rank = 0; rank < b.ranks(); ++rank) {
      std::uint64_t number = 0;
      std::memcpy(&number, b.shown(rank).data(), sizeof number);
      if (number != shown_by(m, rank))
        return 2;
    }
  }
  return 0;
}

} // namespace

BOOST_AUTO_TEST_SUITE(meeting_boards)

BOOST_AUTO_TEST_CASE(processes_meet_and_see_what_the_others_show) {
  const segment_names names;
  for (const std::size_t ranks : {2u, 4u}) {
    const std::uint64_t meetings = by_build(3000u, 1000u, 500u);
    auto board = made(names("m", "x"), ranks);
    std::vector<forked> children;
    for (std::size_t rank = 1; rank < ranks; ++rank)
      children.emplace_back([&, rank] {
        auto b = meeting_board::attach(names("m", "x"), rank).value();
        return b.greeting() == "hello" && b.ranks() == ranks ? take_part(b, meetings) : 3;
      });
    BOOST_TEST(take_part(board, meetings) == 0);
    for (forked& child : children)
      BOOST_TEST(child.wait() == 0);
  }
}

BOOST_AUTO_TEST_CASE(all_are_ready_when_each_has_said_so) {
  const segment_names names;
  auto first = made(names("m", "x"), 2);
  first.be_ready();
  BOOST_TEST(!first.all_ready());
  auto second = meeting_board::attach(names("m", "x"), 1).value();
  BOOST_TEST(!first.all_ready());
  second.be_ready();
  BOOST_TEST(first.all_ready());
  BOOST_TEST(!first.failure());
}

BOOST_AUTO_TEST_CASE(a_place_is_taken_once) {
  const segment_names names;
  auto board = made(names("m", "x"), 2);
  BOOST_TEST(meeting_board::attach(names("m", "x"), 2).failure().code == "bad_segment");
  BOOST_TEST(meeting_board::attach(names("m", "x"), 0).failure().code == "in_use");
  { const auto left = meeting_board::attach(names("m", "x"), 1).value(); }
  BOOST_TEST(meeting_board::attach(names("m", "x"), 1).failure().code == "in_use");
  BOOST_TEST(board.failure()->message == "rank 1 is gone");
  BOOST_TEST(meeting_board::create(names("m", "y"), {0, 64, ""}).failure().code == "bad_options");
}

BOOST_AUTO_TEST_CASE(who_is_late_ends_the_board) {
  const segment_names names;
  auto board = made(names("m", "x"), 2);
  auto other = meeting_board::attach(names("m", "x"), 1).value();
  const auto late = board.meet(1, 50ms);
  BOOST_REQUIRE(!late);
  BOOST_TEST(late.failure().message == "ranks 1 of 2 did not come within 50 ms");
  BOOST_TEST(other.meet(1, 60s).failure().message == late.failure().message); // too late
  BOOST_TEST(other.failure()->message == late.failure().message);
}

BOOST_AUTO_TEST_CASE(a_killed_rank_frees_those_who_wait) {
  const segment_names names;
  auto board = made(names("m", "x"), 2);
  forked child([&] {
    auto b = meeting_board::attach(names("m", "x"), 1).value();
    if (!b.meet(1, 60s))
      return 1;
    std::this_thread::sleep_for(600s);
    return 0;
  });
  BOOST_REQUIRE(board.meet(1, 60s));
  child.kill(SIGKILL);
  const auto gone = board.meet(2, 600s);
  BOOST_REQUIRE(!gone);
  BOOST_TEST(gone.failure().message == "rank 1 is dead");
}

BOOST_AUTO_TEST_CASE(the_first_reason_is_everybodys) {
  const segment_names names;
  auto board = made(names("m", "x"), 2);
  auto other = meeting_board::attach(names("m", "x"), 1).value();
  std::string why;
  std::thread waits([&] { why = board.meet(1, 600s).failure().message; });
  other.end("out of memory");
  other.end("something else");
  waits.join();
  BOOST_TEST(why == "out of memory");
  BOOST_TEST(other.meet(1, 600s).failure().message == "out of memory");
}

BOOST_AUTO_TEST_CASE(ranks_that_do_different_things_are_told) {
  const segment_names names;
  auto board = made(names("m", "x"), 2);
  auto other = meeting_board::attach(names("m", "x"), 1).value();
  status one = nothing{};
  std::thread waits([&] { one = board.meet(7, 600s); });
  const status two = other.meet(8, 600s);
  waits.join();
  BOOST_REQUIRE(!one);
  BOOST_REQUIRE(!two);
  BOOST_TEST(one.failure().message.find("different things") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
