// How far a sequence may be ahead of its reader (scheduler_limits::unacked_tokens).
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

scheduler_limits windowed(std::int32_t tokens, std::int32_t nextn, bool async) {
  scheduler_limits l = small_limits(async);
  l.nextn = nextn;
  l.unacked_tokens = tokens;
  return l;
}

std::int64_t given(core_world& w, std::uint64_t id) {
  return std::ssize(w.results[id].tokens);
}

} // namespace

BOOST_AUTO_TEST_SUITE(reader_window)

BOOST_AUTO_TEST_CASE(only_the_sequence_waits_whose_reader_is_slow) {
  for (const std::int32_t nextn : {0, 5})
    for (const bool async : {false, true}) {
      core_world w(windowed(64, nextn, async));
      w.model.right = 1;
      const core_request slow(1, made_prompt(20), 300, 1), quick(2, made_prompt(30, 3), 300, 2);
      BOOST_REQUIRE(w.submit(slow));
      BOOST_REQUIRE(w.submit(quick));
      while (w.step()) {
        w.core.acknowledge(sequence_id{2}, given(w, 2));
        BOOST_TEST(given(w, 1) <= 64);
      }
      BOOST_TEST(given(w, 1) > 64 - 2 * (nextn + 1)); // no step fits any more
      BOOST_TEST(w.results[2].ends == 1);
      BOOST_TEST(w.core.paused() == 1u);
      BOOST_TEST(w.core.live() == 1u);

      std::int64_t acknowledged = 0;
      for (int rounds = 0; w.core.live() > 0 && rounds < 100; ++rounds) {
        BOOST_TEST(!w.step());
        acknowledged = given(w, 1);
        BOOST_TEST(w.core.acknowledge(sequence_id{1}, acknowledged));
        BOOST_TEST(w.core.paused() == 0u);
        while (w.step())
          BOOST_TEST(given(w, 1) - acknowledged <= 64);
      }
      BOOST_TEST(w.results[1].tokens == alone(slow, w), boost::test_tools::per_element());
      BOOST_TEST(w.results[2].tokens == alone(quick, w), boost::test_tools::per_element());
      w.settle();
      BOOST_TEST(w.healthy(), w.trouble);
    }
}

// Its cache may go to one before it, and its tokens stay what they were.
BOOST_AUTO_TEST_CASE(a_sequence_that_waits_may_lose_its_cache) {
  scheduler_limits l = windowed(16, 5, true);
  l.kv_blocks = 1 + 4;
  core_world w(l);
  const core_request first(1, made_prompt(200), 200, 1), second(2, made_prompt(100, 3), 140, 2);
  BOOST_REQUIRE(w.submit(first));
  BOOST_REQUIRE(w.submit(second));
  while (w.step())
    w.core.acknowledge(sequence_id{1}, given(w, 1));
  BOOST_TEST(w.results[1].ends == 1);
  for (int rounds = 0; w.core.live() > 0 && rounds < 200; ++rounds) {
    w.core.acknowledge(sequence_id{2}, given(w, 2));
    while (w.step()) {
    }
  }
  BOOST_TEST(w.results[2].preemptions > 0);
  BOOST_TEST(w.results[1].tokens == alone(first, w), boost::test_tools::per_element());
  BOOST_TEST(w.results[2].tokens == alone(second, w), boost::test_tools::per_element());
  w.settle();
  BOOST_TEST(w.healthy(), w.trouble);
}

// What was given out before a worker was lost, its reader has.
BOOST_AUTO_TEST_CASE(what_was_emitted_before_counts_as_acknowledged) {
  core_world w(windowed(16, 0, true));
  const core_request whole(1, made_prompt(20), 60, 1);
  const auto tokens = alone(whole, w);
  BOOST_REQUIRE(tokens.size() > 40u);
  core_request again = whole;
  again.ask.emitted.assign(tokens.begin(), tokens.begin() + 40);
  BOOST_REQUIRE(w.submit(again));
  while (w.step()) {
  }
  BOOST_TEST(std::ssize(w.results[1].tokens) == 16);
  w.core.acknowledge(sequence_id{1}, 1 << 20); // more than there is: as much as there is
  while (w.step()) {
  }
  BOOST_TEST(w.core.acknowledge(sequence_id{9}, 1) == false);
  BOOST_TEST((w.core.paused() == 1u || w.core.live() == 0u));
}

BOOST_AUTO_TEST_CASE(a_window_that_is_smaller_than_a_step_is_refused) {
  BOOST_TEST(bool(check(windowed(6, 5, true))));
  const status s = check(windowed(5, 5, true));
  BOOST_REQUIRE(!s);
  BOOST_TEST(s.failure().message.starts_with("unacked_tokens = 5: "));
}

BOOST_AUTO_TEST_SUITE_END()
