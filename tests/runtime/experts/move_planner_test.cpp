#include "runtime/experts/move_planner.hpp"
#include "runtime/experts/rebalance.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;
using list = std::vector<std::int32_t>;

#define SAME(a, b) BOOST_TEST((a) == (b), boost::test_tools::per_element())

namespace {

expert_placement one_layer(int experts, int ranks, int per_rank, list expert_of) {
  expert_placement p;
  p.version = 1;
  p.ranks = ranks;
  p.layers = 1;
  p.experts = experts;
  p.slots_per_rank = per_rank;
  p.expert_of = std::move(expert_of);
  return p;
}

std::int64_t copies(const list& slots, std::int32_t e) {
  return std::count(slots.begin(), slots.end(), e);
}

} // namespace

BOOST_AUTO_TEST_SUITE(expert_moves)

BOOST_AUTO_TEST_CASE(experts_that_stay_on_their_rank_keep_their_slot) {
  SAME(relabelled(list{0, 1, 2, 3, 4, 0}, list{2, 5, 0, 0, 3, 1}, 3), (list{0, 5, 2, 3, 1, 0}));
  SAME(relabelled(list{0, 0, 1}, list{1, 0, 0}, 3), (list{0, 0, 1}));
}

BOOST_AUTO_TEST_CASE(a_cycle_goes_through_a_slot_that_can_spare_its_expert) {
  const expert_placement now = one_layer(3, 2, 2, {0, 1, 2, 2}), then = one_layer(3, 2, 2, {1, 0, 2, 2});
  const auto moves = plan_moves(now, then, ranks_of_one_node(2, 2));
  BOOST_REQUIRE(static_cast<bool>(moves));
  // 0 is parked in slot 2, slot 0 becomes 1, slot 1 becomes 0, slot 2 gets 2 back
  const std::vector<expert_move> expected{{0, 2, 2, 0}, {0, 0, 0, 1}, {0, 1, 1, 0}, {0, 2, 0, 2}};
  BOOST_TEST((*moves == expected));
}

BOOST_AUTO_TEST_CASE(without_redundancy_moving_is_refused) {
  const expert_placement now = one_layer(4, 2, 2, {0, 1, 2, 3}), then = one_layer(4, 2, 2, {0, 2, 1, 3});
  const auto moves = plan_moves(now, then, ranks_of_one_node(2, 2));
  BOOST_REQUIRE(!moves);
  BOOST_TEST(moves.failure().code == "no_redundancy");
  BOOST_TEST(plan_moves(now, now, ranks_of_one_node(2, 2))->empty());
  // an empty slot is redundancy
  const expert_placement room = one_layer(3, 2, 2, {0, 1, 2, -1}), turned = one_layer(3, 2, 2, {1, 0, 2, -1});
  const std::vector<expert_move> expected{{0, 3, -1, 0}, {0, 0, 0, 1}, {0, 1, 1, 0}, {0, 3, 0, -1}};
  BOOST_TEST((*plan_moves(room, turned, ranks_of_one_node(2, 2)) == expected));
}

BOOST_AUTO_TEST_CASE(lost_experts_come_first) {
  // rank 1 died with the only 3; 0 has two copies, 1 has two
  expert_ranks group = ranks_of_one_node(3, 2);
  group.live[1] = false;
  const expert_placement now = one_layer(4, 3, 2, {0, 1, -1, -1, 2, 1}),
                         then = one_layer(4, 3, 2, {0, 1, -1, -1, 2, 3});
  const std::vector<expert_move> expected{{0, 5, 1, 3}};
  BOOST_TEST((*plan_moves(now, then, group) == expected));
}

BOOST_AUTO_TEST_CASE(random_plans_reach_the_target_and_never_uncover_an_expert) {
  double extra_share = 0;
  int cases = 0;
  std::size_t most_extra = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const int experts = 3 + static_cast<int>(random() % 18), slots = experts + 1 + static_cast<int>(random() % 6);
    const auto layout = [&] {
      list l;
      for (int s = 0; s < slots; ++s)
        l.push_back(s < experts ? s : static_cast<int>(random() % static_cast<unsigned>(experts)));
      std::shuffle(l.begin(), l.end(), random);
      return l;
    };
    const expert_placement now = one_layer(experts, slots, 1, layout()), then = one_layer(experts, slots, 1, layout());
    const auto moves = plan_moves(now, then, ranks_of_one_node(slots, 1));
    BOOST_REQUIRE(static_cast<bool>(moves));
    list table = now.expert_of;
    for (const expert_move& m : *moves) {
      std::int32_t& here = table[static_cast<std::size_t>(m.slot)];
      BOOST_REQUIRE(here == m.from);
      BOOST_REQUIRE(copies(table, m.to) >= 1);   // somebody to copy from
      BOOST_REQUIRE(copies(table, m.from) >= 2); // I1 while the slot is written
      here = m.to;
    }
    BOOST_REQUIRE(table == then.expert_of);
    const auto differing = static_cast<std::size_t>(differing_slots(now, then));
    BOOST_REQUIRE(moves->size() >= differing);
    if (differing > 0)
      extra_share += static_cast<double>(moves->size() - differing) / static_cast<double>(differing), ++cases;
    most_extra = std::max(most_extra, moves->size() - differing);
  }
  BOOST_TEST_MESSAGE("extra moves: mean " << 100 * extra_share / cases << " %, at most " << most_extra);
  BOOST_TEST(extra_share / cases < 0.05); // the specification reports 4.4 % and 8
  BOOST_TEST(most_extra <= 8u);
}

BOOST_AUTO_TEST_CASE(sources_are_near_then_idle_then_low) {
  expert_ranks group = ranks_of_one_node(4, 2);
  group.node_of = {0, 0, 1, 1};
  const list holders{1, 2, 4, 6};
  BOOST_TEST(source_slot(holders, 1, group, list{0, 5, 0, 0}) == 2); // its own rank, however busy
  BOOST_TEST(source_slot(list{1, 4, 6}, 3, group, list{0, 0, 9, 9}) == 6);
  BOOST_TEST(source_slot(list{1, 4}, 3, group, list{0, 0, 9, 0}) == 4); // its node
  BOOST_TEST(source_slot(list{4, 6}, 0, group, list{0, 0, 1, 0}) == 6);
  BOOST_TEST(source_slot(list{4, 6}, 0, group, list{0, 0, 1, 1}) == 4);
  BOOST_TEST(source_slot(list{}, 0, group, list{0, 0, 0, 0}) == -1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(rebalancing)

namespace {

load_window skewed(std::uint32_t hot) {
  load_window w(1, 4, 4);
  for (int i = 0; i < 4; ++i)
    w.add(std::vector<std::uint32_t>{hot, 10, 10, 10});
  return w;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_plan_is_carried_out_only_if_it_pays) {
  const expert_placement now = initial_placement(1, 4, 2, 2); // 0 1 2 | 3 0 1
  const expert_ranks group = ranks_of_one_node(2, 3);
  rebalance_settings settings;
  using verdict = rebalance_plan::verdict;
  // loads 5 + 5 + 10 and 10 + 5 + 5: nothing to gain
  BOOST_TEST((plan_rebalance(settings, skewed(10), now, group)->what != verdict::go));
  const expert_placement bad = one_layer(4, 2, 3, {0, 0, 1, 2, 3, 1});
  const auto plan = plan_rebalance(settings, skewed(100), bad, group);
  BOOST_TEST((plan->what == verdict::go));
  BOOST_TEST(plan->imbalance == 105 / 65.0); // 100 + 5 of 130 on two ranks
  BOOST_TEST(plan->predicted == 1.0);
  BOOST_TEST(plan->shared_copies == 0);
  settings.min_gain = 0.7;
  BOOST_TEST((plan_rebalance(settings, skewed(100), bad, group)->what == verdict::no_gain));
  settings.min_gain = 0.03;
  settings.max_moves = 1;
  BOOST_TEST((plan_rebalance(settings, skewed(100), bad, group)->what == verdict::too_many_moves));
  settings.max_moves = static_cast<std::int32_t>(plan->moves.size());
  BOOST_TEST((plan_rebalance(settings, skewed(100), bad, group)->what == verdict::go));
  settings.policy = static_policy{};
  BOOST_TEST((plan_rebalance(settings, skewed(100), bad, group)->what == verdict::nothing_to_do));
}

BOOST_AUTO_TEST_CASE(missing_copies_are_made_whatever_they_gain) {
  rebalance_settings settings;
  settings.policy = fault_aware_policy{2};
  settings.min_gain = 10;
  load_window window(1, 2, 1);
  window.add(std::vector<std::uint32_t>{5, 5});
  const expert_placement now = one_layer(2, 2, 2, {0, 0, 1, 1}); // both copies of each die together
  const auto plan = plan_rebalance(settings, window, now, ranks_of_one_node(2, 2));
  BOOST_TEST((plan->what == rebalance_plan::verdict::go));
  BOOST_TEST(plan->moves.size() == 2u);
  settings.policy = deepinfer_policy{};
  BOOST_TEST((plan_rebalance(settings, window, now, ranks_of_one_node(2, 2))->what != rebalance_plan::verdict::go));
}

BOOST_AUTO_TEST_CASE(the_first_run_comes_after_a_quarter_of_the_interval) {
  rebalance_schedule schedule(1000);
  int run = 0;
  for (int step = 1; step <= 2250; ++step)
    if (schedule.steps(1)) {
      BOOST_TEST((step == 250 || step == 1250 || step == 2250));
      ++run;
    }
  BOOST_TEST(run == 3);
  BOOST_TEST(!rebalance_schedule(0).steps(1000000));
  BOOST_TEST(rebalance_schedule(1).steps(1));
}

BOOST_AUTO_TEST_SUITE_END()
