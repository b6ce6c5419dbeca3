#include "runtime/experts/expert_routes.hpp"
#include <array>
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(expert_routes_of_a_placement)

// 6 experts in 2 x 4 slots: experts 0 and 1 have two copies.
BOOST_AUTO_TEST_CASE(rows_of_an_expert_go_to_its_copies_by_rank_and_row) {
  const auto p = std::make_shared<const expert_placement>(initial_placement(3, 6, 2, 2));
  const expert_routes routes(p);
  BOOST_TEST(routes.complete());
  BOOST_TEST(routes.names(0));
  BOOST_TEST(routes.names(1));
  for (std::int32_t layer = 0; layer < 3; ++layer)
    for (std::int32_t rank = 0; rank < 2; ++rank)
      for (std::int32_t row = 0; row < 100; ++row) {
        BOOST_TEST(routes.slot_of(layer, 5, rank, row) == 5);
        const std::uint32_t copy = (static_cast<std::uint32_t>(rank) + 23333u * static_cast<std::uint32_t>(row)) % 2;
        BOOST_TEST(routes.slot_of(layer, 1, rank, row) == (copy == 0 ? 1 : 7));
      }
}

// The product wraps around at 2^32.
BOOST_AUTO_TEST_CASE(three_copies_far_down_a_step) {
  expert_placement p = initial_placement(1, 2, 2, 2);
  p.expert_of = {0, 1, 0, 0};
  const expert_routes routes(std::make_shared<const expert_placement>(p));
  const std::int32_t row = 200000; // 23333 * 200000 = 371,632,704 + 2^32
  BOOST_TEST(routes.slot_of(0, 0, 1, row) == (std::array<std::int32_t, 3>{0, 2, 3})[(1 + 371632704u) % 3]);
}

BOOST_AUTO_TEST_CASE(an_expert_without_a_slot_and_a_rank_without_experts_are_seen) {
  expert_placement p = initial_placement(1, 4, 2, 2);
  p.expert_of = {0, 1, 2, -1, -1, -1};
  const expert_routes routes(std::make_shared<const expert_placement>(p));
  BOOST_TEST(!routes.complete());
  BOOST_TEST(routes.names(0));
  BOOST_TEST(!routes.names(1));
  BOOST_TEST(routes.slot_of(0, 3, 0, 0) == -1);
}

BOOST_AUTO_TEST_SUITE_END()
