#include "runtime/experts/load_window.hpp"
#include "runtime/experts/placement.hpp"
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;
using list = std::vector<std::int32_t>;
using counts = std::vector<std::uint32_t>;

BOOST_AUTO_TEST_SUITE(expert_placements)

BOOST_AUTO_TEST_CASE(contiguous_ranges) {
  const expert_placement p = initial_placement(2, 8, 4);
  BOOST_TEST(p.slots_per_rank == 2);
  BOOST_TEST(p.expert_of == (list{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}), boost::test_tools::per_element());
  BOOST_TEST(fault_of(p) == "");
  BOOST_TEST(initial_range(8, 4, 2).first == 4);
  BOOST_TEST(initial_range(8, 4, 2).count == 2);
}

BOOST_AUTO_TEST_CASE(rounding_up_leaves_empty_slots) {
  const expert_placement p = initial_placement(1, 5, 4);
  BOOST_TEST(p.expert_of == (list{0, 1, 2, 3, 4, -1, -1, -1}), boost::test_tools::per_element());
  BOOST_TEST(fault_of(p) == "");
  BOOST_TEST(initial_range(5, 4, 2).count == 1);
  BOOST_TEST(initial_range(5, 4, 3).count == 0);
}

BOOST_AUTO_TEST_CASE(ranges_cover_every_expert_once) {
  for (std::int32_t experts = 1; experts <= 40; ++experts)
    for (std::int32_t ranks = 1; ranks <= experts; ++ranks) {
      std::int32_t next = 0;
      for (std::int32_t r = 0; r < ranks; ++r) {
        const expert_range range = initial_range(experts, ranks, r);
        BOOST_REQUIRE(range.first == next);
        next += range.count;
        const auto slots = slots_of(initial_placement(1, experts, ranks), 0);
        for (std::int32_t e = range.first; e < range.first + range.count; ++e)
          BOOST_REQUIRE(slots[static_cast<std::size_t>(e)].front() / ((experts + ranks - 1) / ranks) == r);
      }
      BOOST_REQUIRE(next == experts);
    }
}

BOOST_AUTO_TEST_CASE(faults_are_found) {
  expert_placement p = initial_placement(2, 4, 2);
  p.expert_of[5] = 0; // layer 1 loses expert 1
  BOOST_TEST(fault_of(p) == "expert 1 of layer 1 has no slot");
  p.expert_of[5] = 4;
  BOOST_TEST(fault_of(p) == "expert 4 does not exist");
  p.expert_of.pop_back();
  BOOST_TEST(fault_of(p) == "the slot table has the wrong size");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(expert_load)

BOOST_AUTO_TEST_CASE(window_forgets_the_oldest_step) {
  load_window w(1, 2, 2);
  BOOST_TEST(w.add(counts{1, 10}));
  BOOST_TEST(w.add(counts{2, 20}));
  BOOST_TEST(w.rows(0, 1) == 30u);
  BOOST_TEST(w.add(counts{4, 40}));
  BOOST_TEST(w.rows(0, 0) == 6u);
  BOOST_TEST(w.rows(0, 1) == 60u);
  BOOST_TEST(w.steps() == 2);
  BOOST_TEST(w.steps_ever() == 3u);
  BOOST_TEST(!w.add(counts{1}));
  BOOST_TEST(w.steps_ever() == 3u);
}

// Two ranks of two experts: loads (6,2) and (1,3) in two steps: means 4 + 2, peaks 6 + 3.
BOOST_AUTO_TEST_CASE(balancedness_by_hand) {
  load_window w(1, 4, 8);
  const expert_placement p = initial_placement(1, 4, 2);
  BOOST_TEST(w.balancedness(p) == 1.0);
  w.add(counts{5, 1, 2, 0});
  w.add(counts{1, 0, 0, 3});
  BOOST_TEST(w.balancedness(p) == 6.0 / 9.0);
  expert_placement replica = p; // expert 0 on both ranks, expert 2 on none
  replica.expert_of = {0, 1, 0, 3};
  // busiest rank: 2.5 + 1 in the first step, 0.5 + 3 in the second
  BOOST_TEST(w.balancedness(replica) == 6.0 / (3.5 + 3.5));
}

BOOST_AUTO_TEST_CASE(golden_balancedness_of_the_specification) { // cluster.md §1.5, policy result for one step of W1
  const counts w1{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  expert_placement p;
  p.version = 2;
  p.ranks = 8;
  p.layers = 1;
  p.experts = 12;
  p.slots_per_rank = 2;
  p.expert_of = {10, 2, 10, 6, 0, 7, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1};
  BOOST_TEST(fault_of(p) == "");
  load_window w(1, 12, 100);
  w.add(w1);
  BOOST_TEST(w.balancedness(p) == 0.9323, boost::test_tools::tolerance(1e-4));
}

BOOST_AUTO_TEST_SUITE_END()
