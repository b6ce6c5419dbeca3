// Caches of prompts that another engine has computed, bit by bit: the same tokens and log-probabilities as with one
// engine, whatever chunks, threads, prefix hits and drafts the two have.
#include "tests/support/hand_engine.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <numeric>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(prompt_images)

BOOST_AUTO_TEST_CASE(another_engine_goes_on_behind_a_prompt_with_equal_bits) {
  const auto requests = mixed_requests(by_build(30, 8, 4), 11, 24);
  std::vector<int> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  for (const yoco_mode yoco : {yoco_mode::compact, yoco_mode::off}) {
    const auto expected = hand_engine({.yoco = yoco}).run(requests, order);
    hand_engine prompts({.max_rows = 70, .async = true, .prefix_cache = true, .yoco = yoco});
    const hand_engine::images images = prompts.prompts(requests, order);
    BOOST_TEST(std::ssize(images) == std::ranges::count_if(requests, hand_engine::can_be_divided));
    BOOST_TEST(prompts.departures() > std::ssize(images)); // long ones leave in parts
    hand_engine again({.max_rows = 500, .prefix_cache = true, .yoco = yoco});
    again.prompts(requests, order);
    const hand_engine::images of_hits = again.prompts(requests, order); // on what the first run has left
    BOOST_TEST(again.cache().hits > 0u);
    for (const int nextn : {0, 5}) {
      hand_engine outputs({.async = true, .prefix_cache = true, .yoco = yoco, .nextn = nextn});
      const auto got = outputs.run(requests, order, nextn == 0 ? images : of_hits);
      for (const int index : order)
        BOOST_CHECK_MESSAGE(got.at(index) == expected.at(index),
                            "request " << index << ", nextn " << nextn << ", yoco " << static_cast<int>(yoco));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
