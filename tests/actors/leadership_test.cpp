// Who leads, by the votes of node agents, through actors over loopback (cluster.md §3.9).
#include "actors/coordinator_process.hpp"
#include "actors/node_process.hpp"
#include <array>
#include <boost/test/unit_test.hpp>
#include <thread>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr lease_settings short_lease{900, 200, 150};

struct voted_cluster {
  cluster_identity identity{"test", "digest", {}, 500ms, 60000ms, {}};
  std::array<std::optional<endpoint>, 3> voters_at;
  std::array<std::unique_ptr<node_process>, 3> nodes;
  std::array<std::unique_ptr<coordinator_process>, 2> coordinators;
  std::uint64_t incarnations = 0;

  void start_coordinator(std::size_t i) {
    coordinator_setup c;
    c.cluster = identity;
    c.name = "coordinator." + std::to_string(i);
    c.at = {"127.0.0.1", i < identity.coordinators.size() ? identity.coordinators[i].port : std::uint16_t{0}};
    c.limits = {60000, 60000, 600000};
    c.votes = leadership_setup{{node_id(static_cast<std::uint32_t>(i)), ++incarnations},
                               {node_id(0), node_id(1), node_id(2)},
                               [this](node_id n) { return voters_at.at(n.value); },
                               short_lease,
                               "digest"};
    coordinators[i] = std::make_unique<coordinator_process>(c);
    if (i >= identity.coordinators.size())
      identity.coordinators.push_back({"127.0.0.1", coordinators[i]->port()});
  }
  void start_node(std::size_t i) {
    node_setup n;
    n.process = {.cluster = identity,
                 .name = "node.n" + std::to_string(i),
                 .node = "n" + std::to_string(i),
                 .incarnation = ++incarnations,
                 .beat = 50ms};
    n.votes = {node_id(static_cast<std::uint32_t>(i)), short_lease, {}};
    nodes[i] = std::make_unique<node_process>(std::move(n));
    voters_at[i] = endpoint{"127.0.0.1", nodes[i]->port()};
  }
  // What each coordinator that runs says of itself.
  std::vector<cluster_status> statuses() {
    cluster_system_config config(identity, 2);
    caf::actor_system system(config);
    std::vector<cluster_status> all;
    {
      caf::scoped_actor self{system};
      for (std::size_t i = 0; i < coordinators.size(); ++i) {
        if (!coordinators[i])
          continue;
        const auto found = connect<membership_actor>(system, identity.coordinators[i]);
        BOOST_REQUIRE(found);
        ask(self.ptr(), *found, 5000ms, status_query{})
            .receive([&](const cluster_status& s) { all.push_back(s); }, [](const caf::error&) {});
      }
    }
    wait_for_actors(system, 5000ms);
    return all;
  }
  // The one leader, once it has so many members; fails after a minute, or if two lead at once.
  cluster_status wait_for_leader(std::size_t members) {
    for (int i = 0; i < 600; ++i) {
      std::vector<cluster_status> leaders;
      for (const cluster_status& s : statuses())
        if (s.leads)
          leaders.push_back(s);
      BOOST_REQUIRE(leaders.size() <= 1u);
      if (leaders.size() == 1 && leaders[0].members.size() == members)
        return leaders[0];
      std::this_thread::sleep_for(100ms);
    }
    BOOST_REQUIRE_MESSAGE(false, "nobody leads");
    return {};
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(leaders)

BOOST_AUTO_TEST_CASE(one_coordinator_leads_and_another_takes_over) {
  voted_cluster c;
  c.start_coordinator(0);
  c.start_coordinator(1);
  for (const auto& s : c.statuses())
    BOOST_TEST(!s.leads); // nobody has voted yet
  for (std::size_t i = 0; i < 3; ++i)
    c.start_node(i);
  const cluster_status first = c.wait_for_leader(3);
  BOOST_TEST(first.term >= 1u);
  const std::size_t leader = first.leader == "coordinator.0" ? 0 : 1;
  c.coordinators[leader].reset();
  const cluster_status second = c.wait_for_leader(3); // all members said again who they are
  BOOST_TEST(second.leader != first.leader);
  BOOST_TEST(second.term > first.term);
  BOOST_TEST(second.mepoch > first.mepoch); // the voters remember it
  c.start_coordinator(leader);
  BOOST_TEST(c.wait_for_leader(3).leader == second.leader); // who leads goes on leading
}

BOOST_AUTO_TEST_CASE(without_a_majority_nobody_leads) {
  voted_cluster c;
  c.start_coordinator(0);
  for (std::size_t i = 0; i < 3; ++i)
    c.start_node(i);
  const cluster_status first = c.wait_for_leader(3);
  c.nodes[0].reset();
  BOOST_TEST(c.wait_for_leader(3).term == first.term); // two of three are enough; who left is remembered
  c.nodes[1].reset();
  for (int i = 0; i < 600 && c.statuses().at(0).leads; ++i)
    std::this_thread::sleep_for(50ms);
  BOOST_TEST(!c.statuses().at(0).leads);
  c.start_node(0); // a new process, whose votes were not kept
  const cluster_status again = c.wait_for_leader(2);
  BOOST_TEST(again.term > first.term);
}

BOOST_AUTO_TEST_SUITE_END()
