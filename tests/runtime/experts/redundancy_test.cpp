#include "runtime/experts/redundancy.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(redundancy)

// cluster.md §1.5
BOOST_AUTO_TEST_CASE(redundant_experts_are_rounded_up_to_equal_slots) {
  for (const int ranks : {1, 2, 4, 8, 16, 32})
    BOOST_TEST(extra_experts(384, 32, ranks) == 32, ranks);
  BOOST_TEST(extra_experts(384, 32, 64) == 64);
  BOOST_TEST(extra_experts(128, 32, 64) == 64);
  BOOST_TEST(extra_experts(24, 4, 2) == 4);
  BOOST_TEST(extra_experts(24, 0, 5) == 1);
  for (int experts = 1; experts < 40; ++experts)
    for (int least = 0; least < 12; ++least)
      for (int ranks = 1; ranks < 20; ++ranks) {
        const int extra = extra_experts(experts, least, ranks);
        BOOST_TEST((extra >= least && extra < least + ranks && (experts + extra) % ranks == 0));
      }
}

BOOST_AUTO_TEST_SUITE_END()
