// Views in two phases and what a new leader is told, with membership and member as actors and the other side by hand
// (cluster.md §3.4, §3.9). The decisions themselves: tests/cluster/view_change_test.cpp.
#include "actors/coordinator_process.hpp"
#include "actors/member.hpp"
#include "actors/membership.hpp"
#include "actors/steady_ms.hpp"
#include "cluster/build_id.hpp"
#include "tests/support/crowded_cpu.hpp"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

cluster_identity identity() {
  return {"test" + std::to_string(::getpid()), "digest", {}, 500ms, 60000ms, {}};
}

// A coordinator, and processes that say by hand what they have prepared. All of them are this test: it is told
// everything as often as there are processes.
class by_hand {
public:
  explicit by_hand(membership_setup s = {}) : config_(identity(), 2) {
    s.name = "coordinator.0";
    s.build = build_id();
    s.configuration = "digest";
    s.limits = {60000, 60000, 600000};
    s.tick = 20ms;
    membership_ = system_.spawn(membership, s);
  }
  ~by_hand() {
    tell_from_outside(membership_, stop{});
    membership_ = membership_actor();
  }

  void lead(std::uint64_t term) { tell(self_.ptr(), membership_, lease_held{term, 0, steady_ms() + 600000}); }
  static join worker(std::uint32_t rank, std::uint64_t incarnation) {
    join j;
    j.who.name = "decode." + std::to_string(rank);
    j.who.node = "n0";
    j.who.rank = rank;
    j.who.incarnation = incarnation;
    j.who.build = build_id();
    j.who.configuration = "digest";
    return j;
  }
  ack_code say(const join& j) {
    ack_code code = ack_code::unknown;
    ask(self_.ptr(), membership_, 60000ms, j)
        .receive([&](const joined& a) { code = a.code; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    return code;
  }
  void beat(std::uint64_t incarnation) {
    hb h;
    h.incarnation = incarnation;
    tell(self_.ptr(), membership_, h);
  }
  cluster_status status() {
    cluster_status s;
    ask(self_.ptr(), membership_, 60000ms, status_query{})
        .receive([&](const cluster_status& a) { s = a; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    return s;
  }
  member_state state(std::uint64_t incarnation) {
    for (const member_report& m : status().members)
      if (m.known.who.incarnation == incarnation)
        return m.known.state;
    return member_state::left;
  }

  // What comes within the time. A prepare is answered so.
  void hear(std::chrono::milliseconds time, ack_code answer = ack_code::ok) {
    const auto end = std::chrono::steady_clock::now() + time;
    bool more = true;
    while (more && std::chrono::steady_clock::now() < end)
      self_->receive(
          [&](const prep_view& p) {
            prepares.push_back(p.next);
            return ack{p.next.mepoch, answer, {}};
          },
          [&](const cmit_view& c) { commits.push_back(c.mepoch); },
          [&](const abrt_view& a) { aborts.push_back(a.mepoch); }, [&](const view& v) { wholes.push_back(v); },
          [&](const stand_by&) { ++stand_bys; }, caf::after(time) >> [&] { more = false; });
  }
  // What comes until then, for a minute at most.
  template <class Condition> void hear_until(const Condition& condition) {
    for (int i = 0; i < 6000 && !condition(); ++i)
      hear(10ms);
  }
  std::deque<view> prepares, wholes;
  std::deque<std::uint64_t> commits, aborts;
  int stand_bys = 0;

private:
  cluster_system_config config_;
  bounded_system system_{config_};
  caf::scoped_actor self_{system_};
  membership_actor membership_;
};

membership_setup for_good() {
  membership_setup s;
  s.term = 1;
  return s;
}

// A coordinator that takes everybody in, and leads no more when it is told `tick`.
struct taker {
  std::mutex mutex;
  std::vector<join> joins;
};
membership_actor::behavior_type take_all(membership_actor::pointer self, std::shared_ptr<taker> t) {
  const auto last = std::make_shared<member_actor>();
  return {
      [=](const join& j) {
        const std::lock_guard lock(t->mutex);
        t->joins.push_back(j);
        *last = caf::actor_cast<member_actor>(self->current_sender());
        return joined{ack_code::ok, {}, 7};
      },
      [](const leave&) {},
      [](const hb&) {},
      [](const lease_held&) {},
      [](const status_query&) { return cluster_status{}; },
      [](const configuration_query&) { return configuration_text{}; },
      [](const expert_group_query&) { return expert_group_info{}; },
      [](const expert_group_report&) {},
      [](const stop_cluster&) { return ack{}; },
      [=](const tick&) { tell(self, *last, stand_by{}); },
      [=](const stop&) {
        *last = member_actor();
        self->quit();
      },
  };
}

std::size_t named(const view& v) {
  return v.members.size();
}

} // namespace

BOOST_AUTO_TEST_SUITE(views)

BOOST_AUTO_TEST_CASE(a_view_counts_once_all_that_work_together_have_prepared_it) {
  by_hand h(for_good());
  BOOST_TEST((h.say(h.worker(0, 10)) == ack_code::ok));
  BOOST_TEST((h.say(h.worker(1, 11)) == ack_code::ok));
  join client = h.worker(0, 12);
  client.who.role = member_role::gateway;
  client.who.name = "batch.1";
  client.who.node.clear();
  BOOST_TEST((h.say(client) == ack_code::ok)); // who is not asked
  BOOST_TEST(h.commits.empty());
  h.hear_until([&] { return h.commits.size() >= 3 && !h.wholes.empty(); });
  // The first view names the one process that was there then; what came meanwhile is in the next.
  BOOST_REQUIRE(h.prepares.size() == 3u);
  BOOST_TEST(named(h.prepares[0]) == 1u);
  BOOST_TEST(named(h.prepares[1]) == 3u);
  BOOST_TEST(h.prepares[1].mepoch == h.prepares[2].mepoch);
  BOOST_TEST(h.prepares[1].mepoch == h.prepares[0].mepoch + 1);
  BOOST_TEST(h.commits == (std::deque<std::uint64_t>{h.prepares[0].mepoch, h.prepares[1].mepoch, h.prepares[1].mepoch}),
             boost::test_tools::per_element());
  BOOST_REQUIRE(h.wholes.size() == 1u);
  BOOST_TEST(h.wholes[0].mepoch == h.prepares[1].mepoch);
  for (const member_entry& m : h.wholes[0].members)
    BOOST_TEST(m.since == h.prepares[m.who.rank == 0 && m.who.role == member_role::worker ? 0 : 1].mepoch);
}

BOOST_AUTO_TEST_CASE(c19_nobody_waits_for_ever_for_a_process_that_does_not_prepare) {
  membership_setup s = for_good();
  s.views = {400, 100};
  by_hand h(s);
  BOOST_TEST((h.say(h.worker(0, 10)) == ack_code::ok));
  for (int i = 0; i < 600 && h.state(10) != member_state::dead; ++i) {
    h.beat(10); // it lives
    h.hear(10ms, ack_code::stale_epoch);
  }
  BOOST_TEST((h.state(10) == member_state::dead));
  h.hear_until([&] { return !h.wholes.empty(); });
  BOOST_TEST(h.prepares.size() >= 3u); // it was asked again
  BOOST_REQUIRE(!h.wholes.empty());    // that it is dead, it hears
  BOOST_TEST(h.wholes.back().mepoch > h.prepares[0].mepoch);
  BOOST_TEST(h.commits.empty());
}

BOOST_AUTO_TEST_CASE(a_heartbeat_brings_what_was_missed_and_strangers_are_asked_who_they_are) {
  by_hand h(for_good());
  BOOST_TEST((h.say(h.worker(0, 10)) == ack_code::ok));
  h.hear_until([&] { return !h.commits.empty(); });
  BOOST_REQUIRE(h.commits.size() == 1u);
  h.beat(10); // it says that it works under no view
  h.hear_until([&] { return !h.wholes.empty(); });
  BOOST_REQUIRE(h.wholes.size() == 1u);
  BOOST_TEST(h.wholes[0].mepoch == h.commits[0]);
  BOOST_TEST(h.status().refused == 0u);
  h.beat(99);
  h.hear_until([&] { return h.stand_bys > 0; });
  BOOST_TEST(h.stand_bys == 1);
  BOOST_TEST(h.status().refused == 1u);
}

BOOST_AUTO_TEST_CASE(a_new_leader_hears_who_is_over_and_waits_for_who_is_not) {
  membership_setup s;
  s.collect_ms = 60000;
  by_hand h(s);
  h.lead(7);
  join first = h.worker(0, 10), second = h.worker(1, 11), dead = h.worker(2, 12);
  first.since = epochs_before(6) + 3; // under the leader before
  first.there = {10, 11, 12};
  BOOST_TEST((h.say(first) == ack_code::ok));
  BOOST_TEST((h.say(dead) == ack_code::ok)); // nobody has said yet that it is
  h.hear(300ms);
  BOOST_TEST(h.prepares.empty()); // 11 may be there too
  second.over = {12, 13};
  BOOST_TEST((h.say(second) == ack_code::ok));
  BOOST_TEST((h.state(12) == member_state::dead));
  BOOST_TEST((h.say(dead) == ack_code::stale_epoch));
  BOOST_TEST((h.say(h.worker(3, 13)) == ack_code::stale_epoch));
  BOOST_TEST(h.status().refused == 2u);
  h.hear_until([&] { return !h.commits.empty(); });
  BOOST_REQUIRE(!h.commits.empty());
  BOOST_TEST(term_of(h.commits[0]) == 7u);
  const view& v = h.prepares.back();
  BOOST_TEST(named(v) == 3u);
  for (const member_entry& m : v.members)
    BOOST_TEST(m.since == (m.who.incarnation == 10 ? first.since : h.prepares[0].mepoch));
}

BOOST_AUTO_TEST_CASE(a_new_leader_does_not_wait_for_long) {
  membership_setup s;
  s.collect_ms = 300;
  by_hand h(s);
  h.lead(7);
  join first = h.worker(0, 10);
  first.there = {10, 11};
  BOOST_TEST((h.say(first) == ack_code::ok));
  h.hear_until([&] { return !h.commits.empty(); });
  BOOST_REQUIRE(h.commits.size() == 1u);
  BOOST_TEST(named(h.prepares[0]) == 1u);
}

// What a process does with the words of coordinators that are not its own.
BOOST_AUTO_TEST_CASE(words_of_former_leaders_change_nothing) {
  coordinator_setup c;
  c.cluster = identity();
  c.at = {"127.0.0.1", 0};
  c.limits = {30000, 60000, 600000}; // nobody is held for dead because the machine is slow
  coordinator_process coordinator(c);
  cluster_system_config config(c.cluster, 2);
  bounded_system system(config);
  {
    process_identity p{.cluster = c.cluster, .name = "decode.0", .node = "n0", .incarnation = 10, .beat = 20ms};
    p.cluster.coordinators = {{"127.0.0.1", coordinator.port()}};
    member_setup m = member_setup_of(p, member_role::worker, 0, {"127.0.0.1", 1});
    std::atomic<std::uint64_t> under{0};
    std::atomic<bool> stopped{false};
    m.on_view = [&](const view& v) { under = v.mepoch; };
    m.on_stop = [&](bool) { stopped = true; };
    const member_actor member = system.spawn<caf::detached>(cluster_member, m);
    for (int i = 0; i < 3000 && under == 0; ++i)
      std::this_thread::sleep_for(10ms);
    BOOST_REQUIRE(under == epochs_before(1) + 1);
    caf::scoped_actor former{system};
    view old{0, 5, {{by_hand::worker(0, 10).who, member_state::dead, 1}}};
    tell(former.ptr(), member, old);
    tell(former.ptr(), member, shut_down{true});
    tell(former.ptr(), member, stand_by{});
    ack answer;
    ask(former.ptr(), member, 60000ms, prep_view{old})
        .receive([&](const ack& a) { answer = a; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    BOOST_TEST((answer.code == ack_code::stale_term));
    BOOST_TEST(under == epochs_before(1) + 1);
    BOOST_TEST(!stopped);
    const auto membership = connect<membership_actor>(system, p.cluster.coordinators.front());
    BOOST_REQUIRE(membership);
    std::uint64_t refused = 0;
    for (int i = 0; i < 3000 && refused < 4; ++i) {
      std::this_thread::sleep_for(10ms);
      ask(former.ptr(), *membership, 60000ms, status_query{})
          .receive([&](const cluster_status& s) { refused = s.members.at(0).progress.refused; },
                   [](const caf::error&) { BOOST_ERROR("no answer"); });
    }
    BOOST_TEST(refused == 4u);
    tell_from_outside(member, stop{});
  }
  BOOST_TEST(wait_for_actors(system, 10s) == 0u);
}

// Whether it has a scheduler or is a rank of an engine that another leads.
BOOST_AUTO_TEST_CASE(every_worker_says_how_long_it_waited_for_a_cpu) {
  if (!std::filesystem::exists("/proc/self/schedstat")) {
    BOOST_TEST_MESSAGE("this system does not say how long threads wait for a CPU: not tested");
    return;
  }
  coordinator_setup c;
  c.cluster = identity();
  c.at = {"127.0.0.1", 0};
  c.limits = {30000, 60000, 600000};
  coordinator_process coordinator(c);
  cluster_system_config config(c.cluster, 2);
  bounded_system system(config);
  {
    const crowded_cpu crowd(3);
    process_identity p{.cluster = c.cluster, .name = "decode.0", .node = "n0", .incarnation = 10, .beat = 20ms};
    p.cluster.coordinators = {{"127.0.0.1", coordinator.port()}};
    const member_actor worker =
        system.spawn<caf::detached>(cluster_member, member_setup_of(p, member_role::worker, 0, {"127.0.0.1", 1}));
    const auto membership = connect<membership_actor>(system, p.cluster.coordinators.front());
    BOOST_REQUIRE(membership);
    caf::scoped_actor self{system};
    std::uint64_t starved_ms = 0;
    for (int i = 0; i < 3000 && starved_ms < 100; ++i) {
      std::this_thread::sleep_for(10ms);
      ask(self.ptr(), *membership, 60000ms, status_query{})
          .receive(
              [&](const cluster_status& s) { starved_ms = s.members.empty() ? 0 : s.members[0].progress.starved_ms; },
              [](const caf::error&) { BOOST_ERROR("no answer"); });
    }
    BOOST_TEST(starved_ms >= 100u);
    tell_from_outside(worker, stop{});
  }
  BOOST_TEST(wait_for_actors(system, 10s) == 0u);
}

BOOST_AUTO_TEST_CASE(a_process_tells_the_next_leader_what_it_knows) {
  cluster_system_config config(identity(), 2);
  bounded_system system(config);
  {
    const auto seen = std::make_shared<taker>();
    const membership_actor coordinator = system.spawn(take_all, seen);
    const auto port = publish(system, coordinator, {"127.0.0.1", 0});
    BOOST_REQUIRE(port);
    process_identity p{.cluster = identity(), .name = "decode.0", .node = "n0", .incarnation = 10, .beat = 20ms};
    p.cluster.coordinators = {{"127.0.0.1", *port}};
    const member_actor member =
        system.spawn<caf::detached>(cluster_member, member_setup_of(p, member_role::worker, 0, {"127.0.0.1", 1}));
    const auto wait_for = [&](std::size_t joins) {
      for (int i = 0; i < 3000; ++i, std::this_thread::sleep_for(10ms))
        if (const std::lock_guard lock(seen->mutex); seen->joins.size() >= joins)
          return seen->joins.back();
      BOOST_REQUIRE_MESSAGE(false, "it has not joined");
      return join{};
    };
    const join first = wait_for(1);
    BOOST_TEST(first.since == 0u);
    BOOST_TEST(first.there.size() + first.over.size() == 0u);
    tell_from_outside(member, view{7,
                                   epochs_before(7) + 2,
                                   {{by_hand::worker(0, 10).who, member_state::active, epochs_before(7) + 1},
                                    {by_hand::worker(1, 11).who, member_state::suspect, epochs_before(7) + 1},
                                    {by_hand::worker(2, 12).who, member_state::dead, epochs_before(7) + 1}}});
    tell_from_outside(coordinator, tick{});
    const join second = wait_for(2);
    BOOST_TEST(second.since == epochs_before(7) + 1);
    BOOST_TEST(second.there == (std::vector<std::uint64_t>{10, 11}), boost::test_tools::per_element());
    BOOST_TEST(second.over == (std::vector<std::uint64_t>{12}), boost::test_tools::per_element());
    tell_from_outside(member, stop{});
    tell_from_outside(coordinator, stop{});
  }
  BOOST_TEST(wait_for_actors(system, 10s) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
