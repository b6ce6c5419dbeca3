// Steps that are timed before an engine serves anybody, on an engine that only waits.
#include "actors/timed_steps.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>
#include <thread>
#include <vector>

using namespace troupe;

namespace {

struct waiting_engine final : step_engine {
  explicit waiting_engine(int ms_a_step) : ms(ms_a_step) {}
  int ms;
  std::vector<std::vector<std::int32_t>> tokens; // of each step
  void launch(const step_plan& plan) override {
    tokens.push_back(plan.tokens);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  }
  bool finished() override { return true; }
  void collect(step_result&) override {}
};

constexpr std::int32_t vocabulary = 500;
const scheduler_limits limits{.nextn = 3};

} // namespace

BOOST_AUTO_TEST_SUITE(timed_steps)

// Rows of one token would all use the same experts.
BOOST_AUTO_TEST_CASE(rows_have_different_tokens_the_same_at_every_start) {
  waiting_engine first(0), second(0);
  for (waiting_engine* e : {&first, &second})
    BOOST_TEST(time_decode_step(*e, limits, vocabulary, 64) > 0);
  BOOST_TEST(first.tokens[0] == second.tokens[0], boost::test_tools::per_element());
  BOOST_TEST(first.tokens[0].size() == 64u);
  BOOST_TEST(std::set(first.tokens[0].begin(), first.tokens[0].end()).size() > 50u);
  BOOST_TEST(std::ranges::all_of(first.tokens[0], [](std::int32_t id) { return id >= 0 && id < vocabulary; }));
}

BOOST_AUTO_TEST_CASE(no_step_begins_when_the_time_is_over) {
  waiting_engine quick(0), slow(30);
  time_drafting(quick, limits, vocabulary, 1000);
  BOOST_TEST(quick.tokens.size() == 8u);
  const drafting_time t = time_drafting(slow, limits, vocabulary, 50);
  BOOST_TEST(slow.tokens.size() == 2u);
  BOOST_TEST((t.first == 0 && t.further == 0)); // real steps teach it
}

BOOST_AUTO_TEST_SUITE_END()
