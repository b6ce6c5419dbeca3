// Golden vectors of cluster.md §1.5 and §1.8, and what holds for every placement.
#include "runtime/experts/deepinfer_policy.hpp"
#include "runtime/experts/eplb_policy.hpp"
#include "runtime/experts/load_window.hpp"
#include "runtime/experts/policy.hpp"
#include "runtime/experts/redundancy.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

using namespace troupe;
using list = std::vector<std::int32_t>;
using rows = std::vector<float>;

namespace {

const rows w1{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
const rows w2{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};

layer_load one_step(const rows& w) {
  return {1, static_cast<std::int32_t>(w.size()), w};
}

layer_load three_steps(const rows& w) {
  rows reversed(w.rbegin(), w.rend()), rotated = w, all = w;
  std::rotate(rotated.begin(), rotated.end() - 3, rotated.end());
  all.insert(all.end(), reversed.begin(), reversed.end());
  all.insert(all.end(), rotated.begin(), rotated.end());
  return {3, 12, all};
}

// Mean over peak of the ranks' loads in one step.
double balancedness(const rows& w, const list& expert_of, int ranks) {
  rows load(static_cast<std::size_t>(ranks));
  for (std::size_t s = 0; s < expert_of.size(); ++s)
    load[s / (expert_of.size() / load.size())] +=
        w[static_cast<std::size_t>(expert_of[s])] /
        static_cast<float>(std::count(expert_of.begin(), expert_of.end(), expert_of[s]));
  return std::accumulate(load.begin(), load.end(), 0.0) / ranks / *std::max_element(load.begin(), load.end());
}

} // namespace

#define SAME(a, b) BOOST_TEST((a) == (b), boost::test_tools::per_element())

BOOST_AUTO_TEST_SUITE(placement_policies)

BOOST_AUTO_TEST_CASE(deepinfer_golden_vectors) {
  const list one1 = place_deepinfer(one_step(w1), 8, 2).expert_of, one2 = place_deepinfer(one_step(w2), 8, 2).expert_of;
  SAME(one1, (list{10, 2, 10, 6, 0, 7, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}));
  SAME(one2, (list{1, 3, 2, 11, 5, 0, 5, 4, 6, 7, 6, 7, 8, 8, 9, 10}));
  BOOST_TEST(balancedness(w1, one1, 8) == 0.9323, boost::test_tools::tolerance(1e-4));
  BOOST_TEST(balancedness(w2, one2, 8) == 0.8401, boost::test_tools::tolerance(1e-4));
  SAME(place_deepinfer(three_steps(w1), 8, 2).expert_of, (list{1, 9, 11, 8, 1, 6, 5, 2, 4, 10, 0, 8, 3, 10, 7, 6}));
  SAME(place_deepinfer(three_steps(w2), 8, 2).expert_of, (list{9, 1, 4, 8, 10, 2, 3, 11, 5, 0, 5, 7, 6, 8, 6, 7}));
  SAME(place_deepinfer(one_step(w1), 16, 1).expert_of, (list{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 10, 5, 1, 4}));
  SAME(place_deepinfer(one_step(w2), 16, 1).expert_of, (list{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 5, 6, 8, 7}));
  SAME(place_deepinfer(one_step(rows(6, 0.0f)), 4, 2).expert_of, (list{0, 1, 2, 3, 4, 5, 5, 4}));
}

BOOST_AUTO_TEST_CASE(eplb_golden_vectors) {
  const auto h1 = place_eplb(w1, {8, 2, 4, 2}), h2 = place_eplb(w2, {8, 2, 4, 2});
  SAME(h1->expert_of, (list{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  SAME(h2->expert_of, (list{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
  const std::vector<list> l2p1{{12}, {15, 13}, {11}, {6}, {7, 5}, {0, 2}, {1}, {3}, {4}, {9}, {8, 10}, {14}};
  const std::vector<list> l2p2{{13}, {15, 11}, {8}, {14}, {9}, {10, 12}, {2, 4}, {0}, {6, 3}, {7}, {1}, {5}};
  for (std::size_t e = 0; e < 12; ++e) {
    SAME(h1->replicas[e], l2p1[e]);
    SAME(h2->replicas[e], l2p2[e]);
  }
  BOOST_TEST(balancedness(w1, h1->expert_of, 8) == 0.8277, boost::test_tools::tolerance(1e-4));
  BOOST_TEST(balancedness(w2, h2->expert_of, 8) == 0.8050, boost::test_tools::tolerance(1e-4));
  const list g1 = place_eplb(w1, {8, 2, 1, 1})->expert_of, g2 = place_eplb(w2, {8, 2, 1, 1})->expert_of;
  SAME(g1, (list{10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}));
  SAME(g2, (list{1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7}));
  BOOST_TEST(balancedness(w1, g1, 8) == 0.9323, boost::test_tools::tolerance(1e-4));
  BOOST_TEST(balancedness(w2, g2, 8) == 0.8401, boost::test_tools::tolerance(1e-4));
}

BOOST_AUTO_TEST_CASE(eplb_refuses_shapes_that_it_cannot_divide) {
  BOOST_TEST(place_eplb(w1, {8, 2, 5, 1}).failure().code == "policy_unsuitable");
  BOOST_TEST(place_eplb(w1, {8, 2, 4, 3}).failure().code == "policy_unsuitable");
  BOOST_TEST(place_eplb(w1, {9, 2, 4, 2}).failure().message.find("9 ranks are not divisible by 2 nodes") !=
             std::string::npos);
  BOOST_TEST(place_eplb(w1, {5, 2, 1, 1}).failure().message.find("10 slots do not hold 12") != std::string::npos);
}

// A restatement of cluster.md §1.5 with nothing saved: every score from the counts, every time.
namespace {

list naive_deepinfer(const layer_load& load, int ranks, int per_rank) {
  const int slots = ranks * per_rank, experts = load.experts;
  const auto at = [](auto& v, int i) -> auto& {
    return v[static_cast<std::size_t>(i)];
  };
  list count(static_cast<std::size_t>(experts), 1), of;
  for (int e = 0; e < experts; ++e)
    of.push_back(e);
  while (static_cast<int>(of.size()) < slots) {
    rows total(static_cast<std::size_t>(experts));
    for (int s = 0; s < load.steps; ++s) {
      rows score;
      for (int e = 0; e < experts; ++e)
        score.push_back((load.at(s, e) + static_cast<float>(e) * 1e-4f) / static_cast<float>(at(count, e)));
      const auto m = static_cast<int>(std::max_element(score.begin(), score.end()) - score.begin());
      const float top = at(score, m);
      at(score, m) = load.at(s, m) / static_cast<float>(at(count, m) + 1);
      const float relieved = *std::max_element(score.begin(), score.end());
      for (int e = 0; e < experts; ++e)
        at(total, e) += e == m ? relieved : top;
    }
    const auto e = static_cast<int>(std::min_element(total.begin(), total.end()) - total.begin());
    of.push_back(e);
    ++at(count, e);
  }
  if (per_rank == 1)
    return of;
  list order(of.size());
  std::iota(order.begin(), order.end(), 0);
  const rows sums = sums_of(load);
  const auto weight = [&](int slot) {
    return sums[static_cast<std::size_t>(at(of, slot))] / static_cast<float>(at(count, at(of, slot)));
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return weight(a) > weight(b); });
  std::vector<list> ranked(static_cast<std::size_t>(ranks));
  std::vector<rows> loads(ranked.size(), rows(static_cast<std::size_t>(load.steps)));
  rows peak(static_cast<std::size_t>(load.steps));
  for (const int slot : order) {
    int best = -1;
    float least = 0;
    for (int r = 0; r < ranks; ++r) {
      if (static_cast<int>(at(ranked, r).size()) == per_rank)
        continue;
      float sum = 0;
      for (int s = 0; s < load.steps; ++s)
        sum += std::max(at(at(loads, r), s) + load.at(s, at(of, slot)) / static_cast<float>(at(count, at(of, slot))),
                        at(peak, s));
      if (best < 0 || sum < least)
        best = r, least = sum;
    }
    at(ranked, best).push_back(at(of, slot));
    for (int s = 0; s < load.steps; ++s) {
      at(at(loads, best), s) += load.at(s, at(of, slot)) / static_cast<float>(at(count, at(of, slot)));
      at(peak, s) = std::max(at(peak, s), at(at(loads, best), s));
    }
  }
  list out;
  for (const list& l : ranked)
    out.insert(out.end(), l.begin(), l.end());
  return out;
}

} // namespace

BOOST_AUTO_TEST_CASE(deepinfer_equals_its_definition_on_random_layers_with_ties) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
    const int experts = pick(1, 24), ranks = pick(1, 4), steps = pick(1, 5), top = seed % 3 == 0 ? 3 : 2000;
    const int per_rank = (experts + ranks - 1) / ranks + pick(0, 2);
    layer_load load{steps, experts, {}};
    for (int i = 0; i < steps * experts; ++i)
      load.rows.push_back(static_cast<float>(pick(0, top)));
    const layer_layout got = place_deepinfer(load, ranks, per_rank);
    BOOST_TEST_CONTEXT("seed " << seed) SAME(got.expert_of, naive_deepinfer(load, ranks, per_rank));
    for (std::size_t e = 0; e < got.replicas.size(); ++e) { // the same content, the other way round
      BOOST_REQUIRE(!got.replicas[e].empty());
      for (const std::int32_t slot : got.replicas[e])
        BOOST_REQUIRE(got.expert_of[static_cast<std::size_t>(slot)] == static_cast<std::int32_t>(e));
    }
  }
}

BOOST_AUTO_TEST_CASE(redundant_slots_hold_the_first_experts_again) {
  const expert_placement p = initial_placement(1, 5, 4, extra_experts(5, 1, 4));
  SAME(p.expert_of, (list{0, 1, 2, 3, 4, 0, 1, 2}));
  BOOST_TEST(p.slots_per_rank == 2);
}

BOOST_AUTO_TEST_CASE(policies_have_the_names_of_the_configuration) {
  for (const char* name : {"static", "deepinfer", "eplb_global", "eplb_hier", "fault_aware"})
    BOOST_TEST(name_of(*policy_of(name)) == name);
  const auto none = policy_of("random");
  BOOST_REQUIRE(!none);
  BOOST_TEST(none.failure().message == "policy = random: there is no such placement policy; one of static, deepinfer, "
                                       "eplb_global, eplb_hier, fault_aware");
}

BOOST_AUTO_TEST_CASE(a_window_is_seen_oldest_step_first) {
  load_window w(2, 2, 3);
  const auto values = [&] { return w.layer(1).rows; };
  SAME(values(), (rows{0, 0})); // one step without rows
  for (std::uint32_t i = 1; i <= 4; ++i)
    w.add(std::vector<std::uint32_t>{0, 0, i, 10 * i});
  SAME(values(), (rows{2, 20, 3, 30, 4, 40}));
}

namespace {

struct random_group {
  expert_ranks group;
  expert_placement current;
  load_window window{0, 0, 1};
};

// One to six nodes of one to four ranks, some dead, redundant slots for all of them.
random_group make(unsigned seed, bool equal_nodes, bool deaths) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  random_group g;
  const int nodes = pick(1, 5), same = pick(1, 4);
  for (int n = 0; n < nodes; ++n)
    for (int i = equal_nodes ? same : pick(1, 4); i > 0; --i) {
      g.group.node_of.push_back(n);
      g.group.live.push_back(!deaths || pick(0, 4) > 0);
    }
  const int ranks = g.group.ranks();
  g.group.live[0] = true;
  const int experts = ranks * pick(1, 3) + pick(0, 3);
  g.group.slots_per_rank = (experts + ranks - 1) / ranks + pick(0, 2);
  g.current = initial_placement(2, experts, ranks, g.group.slots() - experts);
  g.window = load_window(2, experts, 8);
  for (int s = 0; s < 5; ++s) {
    std::vector<std::uint32_t> counts;
    for (int i = 0; i < 2 * experts; ++i)
      counts.push_back(static_cast<std::uint32_t>(pick(0, 9) == 0 ? pick(50, 300) : pick(0, 20)));
    g.window.add(counts);
  }
  return g;
}

std::span<const std::int32_t> layer_of(const expert_placement& p, int layer) {
  return std::span(p.expert_of)
      .subspan(static_cast<std::size_t>(layer * p.slots()), static_cast<std::size_t>(p.slots()));
}

} // namespace

BOOST_AUTO_TEST_CASE(every_policy_covers_every_expert_on_live_ranks_and_spreads_the_copies) {
  int parted = 0, placed = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    const random_group g = make(seed, true, seed % 2 == 1);
    for (const char* name : {"deepinfer", "eplb_global", "fault_aware"})
      for (const auto spread : {replica_spread::none, replica_spread::rank, replica_spread::node}) {
        const auto wanted = wanted_placement(*policy_of(name), g.window, g.current, g.group, spread);
        if (!wanted) {
          BOOST_REQUIRE(wanted.failure().code == "too_few_slots" || wanted.failure().code == "policy_unsuitable");
          continue;
        }
        ++placed;
        BOOST_TEST_CONTEXT("seed " << seed << ", " << name) BOOST_REQUIRE(fault_of(*wanted) == "");
        for (int layer = 0; layer < 2; ++layer) {
          const auto slots = layer_of(*wanted, layer);
          for (std::int32_t s = 0; s < g.group.slots(); ++s)
            BOOST_REQUIRE((slots[static_cast<std::size_t>(s)] >= 0) == g.group.is_live(s));
          const bool dead = std::find(g.group.live.begin(), g.group.live.end(), false) != g.group.live.end();
          if (g.group.slots_per_rank <= g.current.experts && (spread == replica_spread::rank || !dead))
            BOOST_TEST_CONTEXT("seed " << seed << ", " << name)
          BOOST_TEST(shared_copies(slots, g.current.experts, g.group, spread) == 0);
        }
        const auto plain = wanted_placement(*policy_of(name), g.window, g.current, g.group, replica_spread::none);
        parted += shared_copies(layer_of(*plain, 0), g.current.experts, g.group, spread) > 0;
        if (std::string(name) == "fault_aware") // any single rank may die
          for (int layer = 0; layer < 2; ++layer)
            for (const auto& slots : slots_of(*wanted, layer))
              BOOST_REQUIRE(g.group.rank_of(slots.front()) != g.group.rank_of(slots.back()));
      }
  }
  BOOST_TEST(placed > 2000);
  BOOST_TEST(parted > 100); // there was something to do
}

BOOST_AUTO_TEST_CASE(hierarchical_placement_keeps_groups_of_experts_on_their_node) {
  load_window w(1, 12, 1);
  w.add(std::vector<std::uint32_t>(w1.begin(), w1.end()));
  expert_ranks group = ranks_of_one_node(8, 2);
  group.node_of = {0, 0, 0, 0, 1, 1, 1, 1};
  const auto p = wanted_placement(eplb_hier_policy{4}, w, initial_placement(1, 12, 8, 4), group, replica_spread::none);
  SAME(p->expert_of, place_eplb(w1, {8, 2, 4, 2})->expert_of);
  group.live[0] = false;
  BOOST_TEST(wanted_placement(eplb_hier_policy{4}, w, *p, group, replica_spread::none).failure().code ==
             "policy_unsuitable");
}

BOOST_AUTO_TEST_SUITE_END()
