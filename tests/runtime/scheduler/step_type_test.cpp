#include "runtime/scheduler/step_type.hpp"
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

constexpr auto prefill = step_kind::prefill, decode = step_kind::decode;

step_intent wants_prefill(std::int32_t held, std::int32_t wait = 0) {
  return {.prefill = true, .held_tokens = held, .oldest_wait = wait};
}
step_intent decodes(std::int32_t since) {
  return {.decode = true, .steps_since_prefill = since};
}
std::optional<step_kind> decide(std::initializer_list<step_intent> ranks, const step_rule& rule) {
  return decide_step(std::span(ranks.begin(), ranks.size()), rule);
}

} // namespace

BOOST_AUTO_TEST_SUITE(step_type)

BOOST_AUTO_TEST_CASE(d02_nobody_waits_when_no_rank_decodes) {
  const step_rule rule{.decode_steps_between = 70, .fill_tokens = 4096, .ttft_bound_steps = 100};
  BOOST_TEST((decide({wants_prefill(1)}, rule) == prefill));
  BOOST_TEST((decide({{}, {}, wants_prefill(1), {}}, rule) == prefill)); // one rank of four has work
  step_intent idle_counter = wants_prefill(1);
  idle_counter.steps_since_prefill = 37; // the original waited for 33 more empty steps
  BOOST_TEST((decide({idle_counter}, rule) == prefill));
}

BOOST_AUTO_TEST_CASE(c22_an_idle_group_runs_no_step) {
  BOOST_TEST((decide({{}, {}}, {}) == std::nullopt));
  BOOST_TEST((decide({}, {}) == std::nullopt));
}

BOOST_AUTO_TEST_CASE(d03_the_interval_of_every_decoding_rank_counts) {
  const step_rule rule{.decode_steps_between = 3};
  BOOST_TEST((decide({wants_prefill(900), decodes(2)}, rule) == decode));
  BOOST_TEST((decide({wants_prefill(900), decodes(3)}, rule) == prefill));
  BOOST_TEST((decide({wants_prefill(900), decodes(3), decodes(1)}, rule) == decode));
}

BOOST_AUTO_TEST_CASE(prompts_are_held_until_enough_waits_or_one_waited_enough) {
  const step_rule rule{.decode_steps_between = 1, .fill_tokens = 512, .ttft_bound_steps = 16};
  BOOST_TEST((decide({wants_prefill(511, 15), decodes(9)}, rule) == decode));
  BOOST_TEST((decide({wants_prefill(512, 0), decodes(9)}, rule) == prefill));
  BOOST_TEST((decide({wants_prefill(1, 16), decodes(9)}, rule) == prefill));
  step_intent low = wants_prefill(1);
  low.kv_low = true;
  BOOST_TEST((decide({low, decodes(9)}, rule) == prefill));
  step_intent low_elsewhere = decodes(9); // wants no prefill: its pool says nothing about the others' prompts
  low_elsewhere.kv_low = true;
  BOOST_TEST((decide({wants_prefill(1), low_elsewhere}, rule) == decode));
}

// C8: a group of busy and empty ranks in any mix gets one decision, whatever order the intents come in.
BOOST_AUTO_TEST_CASE(c08_every_rank_decides_the_same) {
  std::mt19937_64 random(8);
  int seen[3] = {};
  for (int i = 0; i < 20000; ++i) {
    const step_rule rule{static_cast<std::int32_t>(random() % 3 + 1), static_cast<std::int32_t>(random() % 300),
                         static_cast<std::int32_t>(random() % 30)};
    std::array<step_intent, 4> ranks;
    for (step_intent& r : ranks) {
      r.prefill = random() % 3 == 0, r.decode = random() % 3 == 0, r.kv_low = random() % 9 == 0;
      r.held_tokens = static_cast<std::int32_t>(random() % 400),
      r.oldest_wait = static_cast<std::int32_t>(random() % 40);
      r.steps_since_prefill = static_cast<std::int32_t>(random() % 5);
    }
    const auto all = decide_step(ranks, rule);
    std::shuffle(ranks.begin(), ranks.end(), random);
    BOOST_REQUIRE((decide_step(ranks, rule) == all));
    const bool any_prefill = std::ranges::any_of(ranks, &step_intent::prefill);
    const bool any_decode = std::ranges::any_of(ranks, &step_intent::decode);
    BOOST_REQUIRE(all.has_value() == (any_prefill || any_decode));
    BOOST_REQUIRE((all != prefill || any_prefill)); // I6: nobody is made to run what nobody wants
    BOOST_REQUIRE((all != decode || any_decode));
    ++seen[!all ? 0 : *all == prefill ? 1 : 2];
  }
  for (const int n : seen)
    BOOST_TEST(n > 500);
}

BOOST_AUTO_TEST_SUITE_END()
