// Views under lost, doubled and late messages, deaths, freezes, stuck devices and changes of the leader: nobody ever
// takes a step under another view than its peers, and groups go on.
#include "cluster/membership.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <random>

using namespace troupe;

namespace {

member_info worker(std::uint32_t rank, std::uint32_t group, incarnation_t incarnation = 1) {
  member_info m;
  m.rank = rank_id(rank);
  m.node = node_id(rank / 2);
  m.incarnation = incarnation;
  m.group = group;
  m.build_id = "b1";
  m.device_kind = "cpu";
  m.numerics_id = "cpu-1";
  return m;
}

membership_settings settings() {
  membership_settings s;
  s.build_id = "b1";
  return s;
}

// A leader of a formed group of ranks 0 .. n-1 (group 1), at 10000 ms, mepoch as it comes.
struct formed {
  membership_core leader;
  membership_orders out;
  std::int64_t now = 0;

  explicit formed(std::uint32_t n) : leader(settings(), 1, 0, 0) {
    for (std::uint32_t r = 0; r < n; ++r) {
      leader.join(worker(r, 1), {rank_id(r), 1, nullptr, 0, false, 0}, 0, out);
      leader.ready(rank_id(r), 1, "digest", 0, out);
    }
    now = 2000;
    beat(n, 0);
    leader.tick(now, out);
    ack(n);
    beat(n, 10);
    out.clear();
  }
  void beat(std::uint32_t n, std::uint64_t step, bool queued = true) {
    for (std::uint32_t r = 0; r < n; ++r)
      leader.heartbeat({rank_id(r), 1, leader.view() ? leader.view()->mepoch : 0, step, queued}, now, out);
  }
  void ack(std::uint32_t n, ack_code code = ack_code::ok, std::uint64_t step = 0) {
    const std::uint64_t mepoch = leader.proposed();
    for (std::uint32_t r = 0; r < n; ++r)
      leader.prepared(rank_id(r), 1, mepoch, code, step, now, out);
  }
  std::vector<std::uint32_t> ranks() const {
    std::vector<std::uint32_t> out_ranks;
    for (const rank_id r : leader.view()->group(1)->members)
      out_ranks.push_back(r.value);
    return out_ranks;
  }
};

using ranks = std::vector<std::uint32_t>;
#define SAME(a, b) BOOST_TEST((a) == (b), boost::test_tools::per_element())

} // namespace

BOOST_AUTO_TEST_SUITE(failure_verdicts)

using kind = failure_detector::verdict::kind;

BOOST_AUTO_TEST_CASE(silence_makes_suspect_and_then_dead) {
  failure_detector d({});
  d.watch(rank_id(0), 0), d.enter(rank_id(0), 1, 0);
  std::vector<failure_detector::verdict> out;
  d.tick(999, out);
  BOOST_TEST(out.empty());
  d.tick(1000, out);
  BOOST_REQUIRE(out.size() == 1u);
  BOOST_TEST((out[0].what == kind::suspect));
  out.clear();
  d.heartbeat(rank_id(0), 1, false, 1500);
  d.tick(1500, out);
  BOOST_TEST((out.at(0).what == kind::alive));
  out.clear();
  d.tick(4500, out); // silent for 3 s, but its connection stands
  BOOST_TEST((out.at(0).what == kind::suspect));
  out.clear();
  d.link(rank_id(0), false);
  d.tick(4501, out);
  BOOST_TEST((out.at(0).what == kind::dead));
  BOOST_TEST(out[0].why == "no heartbeat for 3001 ms and no connection");
  out.clear();
  d.link(rank_id(0), true);
  d.tick(10500, out);
  BOOST_TEST((out.at(0).what == kind::stuck));
}

BOOST_AUTO_TEST_CASE(work_without_steps_is_stuck_unless_it_waits_for_another) {
  failure_detector d({});
  for (const std::uint32_t r : {0u, 1u, 2u})
    d.watch(rank_id(r), 0), d.enter(rank_id(r), 1, 0);
  std::vector<failure_detector::verdict> out;
  const auto beat = [&](std::int64_t now) {
    for (const std::uint32_t r : {0u, 1u, 2u})
      d.heartbeat(rank_id(r), 7, true, now);
  };
  for (std::int64_t now = 100; now <= 6000; now += 100)
    beat(now);
  d.tick(6000, out);
  BOOST_TEST(out.empty());                                      // moved at 100
  d.accuse(rank_id(0), rank_id(1), 8, evidence::timeout, 6050); // one accuser of three decides nothing yet
  beat(6100);
  d.tick(6100, out);
  BOOST_REQUIRE(out.size() == 2u); // 1 and 2 accuse nobody and do not move
  BOOST_TEST((out[0].rank == rank_id(1) && out[0].what == kind::stuck));
  out.clear();
  d.accuse(rank_id(2), rank_id(1), 8, evidence::timeout, 6110);
  d.tick(6120, out);
  BOOST_REQUIRE(out.size() == 1u); // two accusers: only the accused
  BOOST_TEST((out[0].rank == rank_id(1)));
  out.clear();
  d.halt(1, true, 6130);
  d.tick(6130, out);
  BOOST_TEST(out.empty());
}

BOOST_AUTO_TEST_CASE(accusations_fall_when_both_go_on) {
  failure_detector d({});
  for (const std::uint32_t r : {0u, 1u})
    d.watch(rank_id(r), 0), d.enter(rank_id(r), 1, 0);
  std::vector<failure_detector::verdict> out;
  d.heartbeat(rank_id(0), 7, true, 100);
  d.heartbeat(rank_id(1), 7, true, 100);
  d.accuse(rank_id(0), rank_id(1), 8, evidence::crc, 1000);
  d.accuse(rank_id(0), rank_id(1), 7, evidence::crc, 1000); // of a step that it has committed: nothing
  d.heartbeat(rank_id(0), 8, true, 1500);
  d.heartbeat(rank_id(1), 8, true, 1500);
  BOOST_TEST(d.dropped_accusations(rank_id(1)) == 1u);
  d.heartbeat(rank_id(0), 8, true, 3600);
  d.heartbeat(rank_id(1), 8, true, 3600);
  d.tick(3600, out);
  BOOST_TEST(out.empty());
  d.accuse(rank_id(1), rank_id(0), 9, evidence::timeout, 3700); // in a group of two one accuser is enough
  d.tick(3700, out);
  BOOST_REQUIRE(out.size() == 1u);
  BOOST_TEST((out[0].rank == rank_id(0) && out[0].what == kind::stuck));
}

BOOST_AUTO_TEST_CASE(the_rank_that_most_miss_is_blamed_first) {
  failure_detector d({});
  for (std::uint32_t r = 0; r < 5; ++r)
    d.watch(rank_id(r), 0), d.enter(rank_id(r), 1, 0);
  for (const auto& [from, accused] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 3}, {1, 3}, {2, 3}, {0, 4}, {1, 4}, {3, 4}, {2, 4}})
    d.accuse(rank_id(from), rank_id(accused), 1, evidence::timeout, 2000);
  for (std::uint32_t r = 0; r < 5; ++r)
    d.heartbeat(rank_id(r), 0, true, 2000);
  for (std::uint32_t r = 0; r < 5; ++r)
    d.heartbeat(rank_id(r), 0, true, 4100);
  std::vector<failure_detector::verdict> out;
  d.tick(4100, out);
  BOOST_REQUIRE(out.size() == 1u);
  BOOST_TEST((out[0].rank == rank_id(4)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(cluster_membership)

BOOST_AUTO_TEST_CASE(members_come_in_by_a_planned_view) {
  formed f(2);
  SAME(f.ranks(), (ranks{0, 1}));
  BOOST_TEST((*f.leader.state(rank_id(1)) == member_state::active));
  f.leader.join(worker(2, 1), {rank_id(2), 1, nullptr, 0, false, 0}, f.now, f.out);
  BOOST_TEST((*f.leader.state(rank_id(2)) == member_state::joining));
  f.leader.warming(rank_id(2), 1, f.out);
  BOOST_TEST((*f.leader.state(rank_id(2)) == member_state::warming));
  f.beat(2, 20);
  f.out.clear();
  f.leader.ready(rank_id(2), 1, "digest", f.now, f.out);
  BOOST_REQUIRE(f.out.prepares.size() == 3u);
  const view_group* g = f.out.prepares[0].proposal.view->group(1);
  BOOST_TEST(g->first_step == 24u); // the highest step plus four
  BOOST_TEST(g->epoch == f.leader.proposed());
  SAME(f.ranks(), (ranks{0, 1}));
  f.out.clear();
  f.ack(2);
  BOOST_TEST(f.out.commits.empty());
  f.ack(3);
  BOOST_TEST(f.out.commits.size() == 3u);
  SAME(f.ranks(), (ranks{0, 1, 2}));
  BOOST_TEST((*f.leader.state(rank_id(2)) == member_state::active));
}

BOOST_AUTO_TEST_CASE(a_view_that_somebody_refuses_or_does_not_answer_is_aborted) {
  formed f(2);
  f.leader.join(worker(2, 1), {rank_id(2), 1, nullptr, 0, false, 0}, f.now, f.out);
  f.leader.ready(rank_id(2), 1, "digest", f.now, f.out);
  const std::uint64_t first = f.leader.proposed();
  f.out.clear();
  f.leader.prepared(rank_id(1), 1, first, ack_code::wrong_state, 30, f.now, f.out); // its steps were faster
  BOOST_TEST(f.out.aborts.size() == 3u);
  BOOST_TEST(f.out.aborts[0].mepoch == first);
  BOOST_REQUIRE(f.out.prepares.size() == 3u); // another number, further ahead
  BOOST_TEST(f.leader.proposed() > first);
  BOOST_TEST(f.out.prepares[0].proposal.view->group(1)->first_step == 38u);
  f.out.clear();
  const std::uint64_t second = f.leader.proposed();
  for (f.now = 2100; f.now < 7000; f.now += 100) {
    f.leader.heartbeat({rank_id(2), 1, 0, 0, false}, f.now, f.out);
    f.beat(2, 30, false);
    f.leader.tick(f.now, f.out);
  }
  BOOST_TEST(f.leader.proposed() == second);
  BOOST_TEST(f.out.aborts.empty());
  f.now = 7000;
  f.leader.tick(f.now, f.out);
  BOOST_TEST(f.out.aborts.size() == 3u);
  BOOST_TEST(f.leader.proposed() > second);
}

BOOST_AUTO_TEST_CASE(a_death_reforms_its_group_at_once) {
  formed f(3);
  f.leader.exited(rank_id(1), 1, "signal 9", f.now, f.out);
  BOOST_TEST((*f.leader.state(rank_id(1)) == member_state::dead));
  BOOST_REQUIRE(f.out.prepares.size() == 2u);
  BOOST_TEST(f.out.prepares[0].proposal.reform);
  f.out.clear();
  f.leader.prepared(rank_id(0), 1, f.leader.proposed(), ack_code::ok, 11, f.now, f.out);
  BOOST_TEST(f.out.cover.empty());
  f.leader.prepared(rank_id(2), 1, f.leader.proposed(), ack_code::ok, 12, f.now, f.out);
  BOOST_TEST(f.out.cover == std::vector<std::uint32_t>{1}, boost::test_tools::per_element());
  BOOST_TEST(f.out.commits.empty()); // not before every expert has a place
  f.leader.covered(f.leader.proposed(), f.now, f.out);
  SAME(f.ranks(), (ranks{0, 2}));
  BOOST_TEST(f.leader.view()->group(1)->first_step == 13u);
  BOOST_REQUIRE(f.out.replay.size() == 1u);
  BOOST_TEST((f.out.replay[0] == rank_id(1)));
  // for good: neither its messages nor its return count
  f.out.clear();
  f.leader.heartbeat({rank_id(1), 1, 0, 12, true}, f.now, f.out);
  BOOST_TEST((f.out.refusals.at(0).code == ack_code::stale_epoch));
  f.leader.join(worker(1, 1, 2), {rank_id(1), 2, nullptr, 0, false, 0}, f.now, f.out);
  BOOST_TEST((f.out.refusals.at(1).code == ack_code::wrong_state)); // a rank is given once in a term
}

BOOST_AUTO_TEST_CASE(deaths_during_a_change_start_it_over) {
  formed f(4);
  f.leader.exited(rank_id(1), 1, "signal 9", f.now, f.out);
  const std::uint64_t first = f.leader.proposed();
  f.out.clear();
  f.leader.exited(rank_id(3), 1, "signal 9", f.now, f.out);
  BOOST_TEST(f.leader.proposed() > first);
  BOOST_TEST(f.out.prepares.size() == 2u);
  BOOST_TEST(f.out.aborts.empty());                                        // what was rolled back stays so
  f.leader.prepared(rank_id(0), 1, first, ack_code::ok, 12, f.now, f.out); // an answer to the old one
  f.ack(4);
  f.leader.covered(f.leader.proposed(), f.now, f.out);
  SAME(f.ranks(), (ranks{0, 2}));
  BOOST_TEST(f.out.replay.size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_rank_that_speaks_and_does_not_let_go_is_killed) {
  formed f(3);
  f.leader.exited(rank_id(1), 1, "signal 9", f.now, f.out);
  f.leader.prepared(rank_id(0), 1, f.leader.proposed(), ack_code::ok, 12, f.now, f.out);
  for (; f.now <= 7000; f.now += 100) {
    f.beat(3, 12);
    f.leader.tick(f.now, f.out);
  }
  BOOST_REQUIRE(f.out.kills.size() == 1u);
  BOOST_TEST((f.out.kills[0].rank == rank_id(2)));
  f.ack(1);
  f.leader.covered(f.leader.proposed(), f.now, f.out);
  SAME(f.ranks(), (ranks{0}));
}

BOOST_AUTO_TEST_CASE(what_leaves_as_planned_goes_through_a_view) {
  formed f(3);
  f.leader.drain(rank_id(2), f.now, f.out);
  BOOST_TEST((f.leader.view()->member(rank_id(2))->state == member_state::draining));
  f.beat(3, 10);
  f.leader.drained(rank_id(2), f.now, f.out);
  f.ack(3);
  SAME(f.ranks(), (ranks{0, 1}));
  BOOST_TEST((*f.leader.state(rank_id(2)) == member_state::left));
  BOOST_TEST(f.out.replay.empty());
  f.out.clear();
  f.leader.exited(rank_id(2), 1, "exit 0", f.now, f.out);
  BOOST_TEST(f.out.prepares.empty());
}

BOOST_AUTO_TEST_CASE(strangers_are_refused) {
  formed f(1);
  member_info other = worker(5, 1);
  other.build_id = "b2";
  f.leader.join(other, {rank_id(5), 1, nullptr, 0, false, 0}, f.now, f.out);
  BOOST_TEST((f.out.refusals.at(0).code == ack_code::version_mismatch));
  other = worker(5, 1);
  other.numerics_id = "cuda-sm90-1";
  f.leader.join(other, {rank_id(5), 1, nullptr, 0, false, 0}, f.now, f.out);
  BOOST_TEST((f.out.refusals.at(1).code == ack_code::version_mismatch));
  f.leader.join(worker(6, 1), {rank_id(6), 1, nullptr, 0, false, 0}, f.now, f.out);
  f.leader.ready(rank_id(6), 1, "another digest", f.now, f.out);
  BOOST_TEST((f.out.refusals.at(2).code == ack_code::digest_mismatch));
  BOOST_TEST((*f.leader.state(rank_id(6)) == member_state::dead));
}

BOOST_AUTO_TEST_CASE(a_question_is_answered_for_good) {
  formed f(2);
  f.leader.question(rank_id(0), 1, f.leader.view()->mepoch, f.now, f.out);
  BOOST_TEST(f.out.commits.size() == 1u);
  f.leader.join(worker(2, 1), {rank_id(2), 1, nullptr, 0, false, 0}, f.now, f.out);
  f.leader.ready(rank_id(2), 1, "digest", f.now, f.out);
  const std::uint64_t asked = f.leader.proposed();
  f.out.clear();
  f.leader.question(rank_id(0), 1, asked, f.now, f.out);
  BOOST_TEST(f.out.aborts.size() == 3u);
  f.ack(3, ack_code::ok); // of the proposal that followed
  f.out.clear();
  f.leader.question(rank_id(0), 1, f.leader.view()->mepoch + 99, f.now, f.out); // never heard of
  BOOST_REQUIRE(f.out.aborts.size() == 1u);
  BOOST_TEST(f.out.aborts[0].mepoch == f.leader.view()->mepoch + 99);
}

BOOST_AUTO_TEST_CASE(stale_leaders_and_members_are_fenced) {
  view_follower follower(rank_id(0), 1, 1, {});
  BOOST_TEST((follower.take_command({3, 0, 1, 9}) == ack_code::ok));
  BOOST_TEST((follower.take_command({2, 0, 2, 9}) == ack_code::stale_term));
  BOOST_TEST((follower.take_data(rank_id(1), 1, 1) == ack_code::unknown));
  cluster_view v{3,
                 5,
                 {{worker(0, 1), member_state::active}, {worker(1, 1, 7), member_state::active}},
                 {{1, 5, 10, {rank_id(0), rank_id(1)}}}};
  follower.commit(std::make_shared<cluster_view>(v));
  BOOST_TEST((follower.begin_step(10, 0) == view_follower::permission::go));
  BOOST_TEST((follower.take_command({3, 4, 3, 9}) == ack_code::stale_epoch));
  BOOST_TEST((follower.take_command({3, 5, 3, 9}) == ack_code::ok));
  BOOST_TEST((follower.take_data(rank_id(1), 7, 5) == ack_code::ok));
  BOOST_TEST((follower.take_data(rank_id(1), 6, 5) == ack_code::stale_epoch));
  BOOST_TEST((follower.take_data(rank_id(1), 7, 4) == ack_code::stale_epoch));
}

BOOST_AUTO_TEST_CASE(a_prepared_member_waits_at_the_step_and_asks) {
  view_follower follower(rank_id(0), 1, 1, {});
  const auto view = [](std::uint64_t mepoch, std::uint64_t first, std::vector<rank_id> members) {
    return std::make_shared<cluster_view>(
        cluster_view{1, mepoch, {{worker(0, 1), member_state::active}}, {{1, mepoch, first, std::move(members)}}});
  };
  using permission = view_follower::permission;
  follower.commit(view(1, 1, {rank_id(0)}));
  BOOST_TEST((follower.begin_step(1, 0) == permission::go));
  BOOST_TEST((follower.prepare({view(2, 5, {rank_id(0), rank_id(1)}), false}, 6) == ack_code::wrong_state));
  BOOST_TEST((follower.prepare({view(3, 8, {rank_id(0), rank_id(1)}), false}, 6) == ack_code::ok));
  BOOST_TEST((follower.begin_step(7, 1000) == permission::go));
  BOOST_TEST((follower.begin_step(8, 1000) == permission::wait));
  BOOST_TEST(!follower.question(2999).has_value());
  BOOST_TEST(follower.question(3000).value() == 3u);
  BOOST_TEST(!follower.question(3001).has_value());
  follower.abort(3);
  BOOST_TEST((follower.begin_step(8, 3100) == permission::go));
  BOOST_TEST(follower.group()->epoch == 1u);
  BOOST_TEST((follower.prepare({view(3, 20, {rank_id(0)}), false}, 9) == ack_code::stale_epoch)); // aborted: late
  BOOST_TEST((follower.prepare({view(4, 12, {rank_id(0), rank_id(1)}), false}, 9) == ack_code::ok));
  follower.commit(view(4, 12, {rank_id(0), rank_id(1)}));
  BOOST_TEST((follower.begin_step(11, 3200) == permission::go));
  BOOST_TEST(follower.group()->epoch == 1u);
  BOOST_TEST((follower.begin_step(12, 3300) == permission::go));
  BOOST_TEST(follower.group()->epoch == 4u);
  BOOST_TEST((follower.prepare({view(5, 13, {rank_id(0)}), true}, 13) == ack_code::ok)); // a reform: now
  BOOST_TEST(follower.halted());
  BOOST_TEST((follower.begin_step(13, 3400) == permission::wait));
  follower.abort(5);
  BOOST_TEST(follower.halted()); // only another view sets it going
  follower.commit(view(6, 15, {rank_id(0)}));
  BOOST_TEST((follower.begin_step(15, 3500) == permission::go));
}

// ---- worlds

namespace {

class world {
public:
  explicit world(unsigned seed) : random_(seed) {
    groups_ = static_cast<std::uint32_t>(pick(1, 2));
    for (std::uint32_t g = 1; g <= groups_; ++g)
      for (int i = pick(2, 4); i > 0; --i)
        start(g);
    lead(1);
  }

  void run(std::int64_t end, bool troubled) {
    troubled_ = troubled;
    if (!troubled)
      for (auto& w : workers_)
        w.cut_until = std::min(w.cut_until, now_);
    for (; now_ < end && broken_.empty(); now_ += 10) {
      while (!queue_.empty() && queue_.begin()->first <= now_) {
        const auto event = std::move(queue_.begin()->second);
        queue_.erase(queue_.begin());
        event();
      }
      for (std::size_t i = 0; i < workers_.size(); ++i)
        act(i);
      if (leader_) {
        leader_->tick(now_, out_);
        deliver();
      }
      if (troubled)
        misfortune();
    }
  }

  const std::string& broken() const { return broken_; }
  int changes() const { return changes_; }
  std::uint64_t reforms() const { return reforms_; }

  // What must be so when all has been quiet: everybody who lives is in the view, and steps go on.
  std::string unfinished(std::int64_t since) const {
    if (!leader_ || leader_->collecting() || leader_->proposed())
      return "the leader is not at rest";
    for (const auto& w : workers_) {
      if (!w.alive)
        continue;
      const view_group* g = leader_->view()->group(w.info.group);
      const std::string who = "rank " + std::to_string(w.info.rank.value);
      if (!g || std::find(g->members.begin(), g->members.end(), w.info.rank) == g->members.end())
        return who + " is not in the view";
      if (w.finished_at < since)
        return who + " takes no steps";
    }
    return {};
  }

private:
  struct worker_world {
    member_info info;
    view_follower follower;
    bool alive = true, hung = false; // hung: speaks, takes no part in steps
    bool leaving = false;
    std::int64_t frozen_until = 0, cut_until = 0, next_beat = 0, began_at = 0, finished_at = 0;
    std::uint64_t step = 0; // last one that it finished
    std::optional<std::uint64_t> running{};
    std::uint64_t running_epoch = 0, last_epoch = 0;
    bool accused = false, halted = false;
  };

  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }
  bool chance(int one_in) { return pick(1, one_in) == 1; }
  void after(std::int64_t ms, std::function<void()> f) { queue_.emplace(now_ + ms, std::move(f)); }
  bool frozen(const worker_world& w) const { return now_ < w.frozen_until; }

  // Between a worker and the leader.
  void send(std::size_t i, const std::function<void()>& f) {
    const auto arrive = [=, this] {
      if (now_ >= workers_[i].cut_until)
        f();
    };
    if (now_ < workers_[i].cut_until || (troubled_ && chance(12)))
      return;
    after(troubled_ && chance(10) ? pick(0, 2500) : pick(1, 40), arrive);
    if (troubled_ && chance(12))
      after(pick(0, 2500), arrive);
  }
  void to_leader(std::size_t i, const std::function<void(membership_core&)>& f) {
    const std::uint64_t term = term_;
    send(i, [=, this] {
      if (!leader_ || term != term_)
        return;
      f(*leader_);
      deliver();
    });
  }
  void to_worker(rank_id rank, std::uint64_t mepoch, const std::function<void(worker_world&, std::size_t)>& f) {
    const std::size_t i = rank.value;
    const stamp head{term_, mepoch, 0, 0};
    send(i, [=, this] {
      worker_world& w = workers_[i];
      if (w.alive && !frozen(w) && w.follower.take_command(head) == ack_code::ok)
        f(w, i);
    });
  }

  void start(std::uint32_t group) {
    const auto rank = static_cast<std::uint32_t>(workers_.size());
    const member_info info = worker(rank, group, 100 + rank);
    workers_.push_back({info, view_follower(info.rank, group, info.incarnation, {})});
  }
  void lead(std::uint64_t term) {
    term_ = term;
    leader_.emplace(settings(), term, chance(5) ? 0 : voted_mepoch_, now_);
  }

  void deliver() {
    const membership_orders out = std::exchange(out_, {});
    const std::uint64_t mepoch = leader_->view() ? leader_->view()->mepoch : 0;
    if (leader_->view() && !leader_->collecting()) {
      voted_mepoch_ = std::max(voted_mepoch_, mepoch);
      last_view_ = leader_->view();
    }
    for (const auto& p : out.prepares) {
      reforms_ += p.proposal.reform;
      to_worker(p.to, mepoch, [=, this](worker_world& w, std::size_t i) {
        const ack_code code = w.follower.prepare(p.proposal, w.running ? *w.running + 1 : w.step + 1);
        if (w.follower.halted())
          w.running.reset(), w.halted = true;
        const auto step = w.step;
        to_leader(i, [=, this, rank = w.info.rank, incarnation = w.info.incarnation](membership_core& m) {
          m.prepared(rank, incarnation, p.proposal.view->mepoch, code, step, now_, out_);
        });
      });
    }
    for (const auto& c : out.commits)
      to_worker(c.to, mepoch, [=, this](worker_world& w, std::size_t) {
        w.follower.commit(c.view);
        same_content(c.view);
      });
    for (const auto& a : out.aborts)
      to_worker(a.to, mepoch, [=](worker_world& w, std::size_t) { w.follower.abort(a.mepoch); });
    for (const auto& k : out.kills) // its agent does it
      after(pick(1, 200), [=, this] { workers_[k.rank.value].alive = false; });
    for (const auto& r : out.refusals)
      if (r.code == ack_code::stale_epoch || r.code == ack_code::wrong_state)
        to_worker(r.to, mepoch, [](worker_world& w, std::size_t) { w.alive = false; }); // it exits
    for (const auto& c : out.changes)
      if (c.state == member_state::dead)
        dead_.insert(c.rank);
    for (const auto& c : out.changes)
      changes_ += c.state == member_state::active || c.state == member_state::dead;
    if (!out.cover.empty()) {
      const std::uint64_t proposal = leader_->proposed(), term = term_;
      after(pick(10, 800), [=, this] {
        if (leader_ && term == term_) {
          leader_->covered(proposal, now_, out_);
          deliver();
        }
      });
    }
  }

  void act(std::size_t i) {
    worker_world& w = workers_[i];
    if (!w.alive || frozen(w))
      return;
    if (now_ >= w.next_beat) {
      w.next_beat = now_ + 200;
      talk(i);
    }
    if (const auto asked = w.follower.question(now_))
      to_leader(i, [=, this, rank = w.info.rank, inc = w.info.incarnation](membership_core& m) {
        m.question(rank, inc, *asked, now_, out_);
      });
    if (!w.hung)
      take_step(i);
  }

  void talk(std::size_t i) {
    worker_world& w = workers_[i];
    const auto& newest = w.follower.newest();
    if (!newest || newest->term < term_ || !newest->member(w.info.rank)) {
      const view_report report = w.follower.report(w.step);
      to_leader(i, [=, this, info = w.info](membership_core& m) {
        m.join(info, report, now_, out_);
        m.ready(info.rank, info.incarnation, "digest", now_, out_);
      });
      return;
    }
    const member_progress p{w.info.rank, w.info.incarnation, newest->mepoch, w.step, true};
    const bool leaving = w.leaving;
    to_leader(i, [=, this](membership_core& m) {
      m.heartbeat(p, now_, out_);
      m.ready(p.rank, p.incarnation, "digest", now_, out_);
      if (leaving)
        m.drain(p.rank, now_, out_), m.drained(p.rank, now_, out_);
    });
    if (m_left(w))
      w.alive = false;
  }
  static bool m_left(const worker_world& w) {
    const view_member* me = w.follower.newest()->member(w.info.rank);
    return me && me->state == member_state::left && w.follower.applied() == w.follower.newest();
  }

  void take_step(std::size_t i) {
    worker_world& w = workers_[i];
    if (!w.running) {
      const view_group* planned = w.follower.newest() ? w.follower.newest()->group(w.info.group) : nullptr;
      std::uint64_t next = w.step + 1;
      if (planned && (w.last_epoch == 0 || w.halted)) // it comes in, or the group begins anew
        next = std::max(next, planned->first_step);
      if (w.follower.begin_step(next, now_) != view_follower::permission::go)
        return;
      const view_group* g = w.follower.group();
      if (g->epoch < w.last_epoch)
        broken_ = "an epoch went back";
      w.last_epoch = g->epoch;
      w.halted = false;
      w.running = next;
      w.running_epoch = g->epoch;
      w.began_at = now_ + pick(0, 40);
      w.accused = false;
      begun_[{w.info.group, g->epoch, next}].insert(w.info.rank);
      const auto [it, fresh] = members_of_.try_emplace({w.info.group, g->epoch}, g->members);
      if (!fresh && it->second != g->members)
        broken_ = "two sets of members in epoch " + std::to_string(g->epoch);
      return;
    }
    const auto& there = begun_[{w.info.group, w.running_epoch, *w.running}];
    std::vector<rank_id> missing;
    for (const rank_id r : members_of_.at({w.info.group, w.running_epoch}))
      if (!there.contains(r))
        missing.push_back(r);
    if (!missing.empty()) {
      if (now_ - w.began_at >= 2000 && !w.accused) {
        w.accused = true;
        for (const rank_id r : missing)
          to_leader(i, [=, this, from = w.info.rank, step = *w.running](membership_core& m) {
            m.accuse(from, r, step, evidence::timeout, now_);
          });
      }
      return;
    }
    if (now_ < w.began_at)
      return;
    auto& ended = epochs_of_step_[{w.info.group, *w.running}];
    for (const auto& [rank, epoch] : ended) // what a dead rank did is computed again elsewhere
      if (epoch != w.running_epoch && counts(rank) && counts(w.info.rank))
        broken_ = "step " + std::to_string(*w.running) + " ended under two epochs at " + std::to_string(now_);
    if (!ended.emplace(w.info.rank, w.running_epoch).second)
      broken_ = "a rank ended a step twice";
    w.step = *w.running;
    w.running.reset();
    w.finished_at = now_;
  }

  // Lives, and for all that leaders know belongs to the cluster.
  bool counts(rank_id rank) const {
    return workers_[rank.value].alive && !dead_.contains(rank) && last_view_ && last_view_->member(rank);
  }
  void same_content(const shared_view& v) {
    const auto [it, fresh] = views_.try_emplace(v->mepoch, v);
    if (!fresh && !(*it->second == *v))
      broken_ = "two views are number " + std::to_string(v->mepoch);
  }

  void misfortune() {
    const auto i = static_cast<std::size_t>(pick(0, static_cast<int>(workers_.size()) - 1));
    worker_world& w = workers_[i];
    if (chance(900) && w.alive) {
      w.alive = false;
      const auto incarnation = w.info.incarnation;
      for (int n = 0; n < 5; ++n) // its agent says so until it is heard
        after(500 * n, [=, this, rank = w.info.rank] {
          to_leader(i, [=, this](membership_core& m) { m.exited(rank, incarnation, "signal 9", now_, out_); });
        });
    }
    if (chance(1500) && w.alive) {
      w.frozen_until = now_ + pick(100, 10000);
      after(2300, [=, this] {
        if (frozen(workers_[i]) && leader_)
          leader_->link(workers_[i].info.rank, workers_[i].info.incarnation, false);
      });
    }
    if (chance(2000))
      w.hung = true;
    if (chance(1500))
      w.cut_until = now_ + pick(100, 6000);
    if (chance(700) && workers_.size() < 14)
      start(static_cast<std::uint32_t>(pick(1, static_cast<int>(groups_))));
    if (chance(2500))
      w.leaving = true;
    if (chance(1500) && leader_) {
      leader_.reset();
      after(pick(0, 3000), [this] { lead(term_ + 1); });
    }
  }

  std::mt19937 random_;
  std::uint32_t groups_ = 1;
  std::vector<worker_world> workers_; // by rank
  std::optional<membership_core> leader_;
  membership_orders out_;
  std::uint64_t term_ = 0, voted_mepoch_ = 0, reforms_ = 0;
  std::multimap<std::int64_t, std::function<void()>> queue_;
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>, std::set<rank_id>> begun_; // group, epoch, step
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<rank_id>> members_of_;         // group, epoch
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::map<rank_id, std::uint64_t>> epochs_of_step_; // group, step
  std::map<std::uint64_t, shared_view> views_;
  shared_view last_view_;
  std::set<rank_id> dead_;
  std::int64_t now_ = 0;
  bool troubled_ = true;
  std::string broken_;
  int changes_ = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(steps_belong_to_one_view_whatever_happens) {
  int changes = 0;
  std::uint64_t reforms = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    world w(seed);
    w.run(60000, true);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      w.run(110000, false);
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      BOOST_REQUIRE_EQUAL(w.unfinished(109000), "");
    }
    changes += w.changes();
    reforms += w.reforms();
  }
  BOOST_TEST_MESSAGE(changes << " members came or died, " << reforms << " orders to reform");
  BOOST_TEST(changes > 2000);
  BOOST_TEST(reforms > 1000u);
}

BOOST_AUTO_TEST_SUITE_END()
