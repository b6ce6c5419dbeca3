// Never two leaders, and one when it can be: agents and candidates with clocks of their own, a network that loses,
// doubles and delays, partitions, restarts.
#include "cluster/lease.hpp"
#include "cluster/lease_file.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <functional>
#include <random>
#include <set>

using namespace troupe;

namespace {

// Steady, from anywhere, too fast or too slow by up to a per cent.
struct clock_of_node {
  double rate = 1;
  std::int64_t start = 0, boot = 0;
  std::int64_t at(std::int64_t real) const {
    return start + static_cast<std::int64_t>(rate * static_cast<double>(real - boot));
  }
};

class world {
public:
  explicit world(unsigned seed) : random_(seed) {
    const int nodes = std::vector<int>{1, 2, 3, 5}[seed % 4];
    for (int n = 0; n < nodes; ++n)
      voters_.push_back(node_id(static_cast<std::uint32_t>(n)));
    for (int n = 0; n < nodes; ++n) {
      node_world& w = nodes_.emplace_back();
      new_clock(w);
      w.candidate_runs = n < 3;
      start_voter(n);
      start_candidate(n);
    }
    reachable_.assign(nodes_.size() * nodes_.size(), true);
  }

  // Real time until `end`; faults only while `troubled`.
  void run(std::int64_t end, bool troubled) {
    troubled_ = troubled;
    if (!troubled) {
      reachable_.assign(reachable_.size(), true);
      for (int n = 0; n < size(); ++n)
        if (!nodes_[index(n)].voter)
          start_voter(n);
    }
    for (; now_ < end && broken_.empty(); now_ += 5) {
      while (!queue_.empty() && queue_.begin()->first <= now_) {
        const auto event = std::move(queue_.begin()->second);
        queue_.erase(queue_.begin());
        event();
        check();
      }
      for (int n = 0; n < size(); ++n)
        if (chance(4))
          tick(n);
      if (troubled)
        misfortune();
      check();
    }
  }

  const std::string& broken() const { return broken_; }
  std::size_t terms() const { return leader_of_term_.size(); }
  int leader() {
    for (int n = 0; n < size(); ++n)
      if (nodes_[index(n)].candidate && nodes_[index(n)].candidate->leads(nodes_[index(n)].clock.at(now_)))
        return n;
    return -1;
  }

private:
  struct node_world {
    clock_of_node clock;
    std::optional<voter_state> disk;
    std::optional<lease_voter> voter;
    std::optional<lease_candidate> candidate;
    incarnation_t incarnation = 0;
    bool candidate_runs = true;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  int size() const { return static_cast<int>(nodes_.size()); }
  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }
  bool chance(int one_in) { return pick(1, one_in) == 1; }

  void new_clock(node_world& w) { w.clock = {0.99 + 0.02 * pick(0, 1000) / 1000.0, pick(0, 1000000), now_}; }
  void start_voter(int n) {
    node_world& w = nodes_[index(n)];
    w.voter.emplace(voters_[index(n)], settings_, w.disk, w.clock.at(now_));
  }
  void start_candidate(int n) {
    node_world& w = nodes_[index(n)];
    if (!w.candidate_runs)
      return;
    w.incarnation = ++incarnations_;
    w.candidate.emplace(candidate_id{voters_[index(n)], w.incarnation}, voters_, settings_, random_(),
                        w.clock.at(now_));
  }

  void send(int from, int to, std::function<void()> f) {
    const auto passes = [=, this] { return reachable_[index(from) * nodes_.size() + index(to)]; };
    const auto delay = [&] { return troubled_ ? (chance(6) ? pick(0, 5000) : pick(0, 200)) : pick(0, 40); };
    const auto arrive = [=, f = std::move(f)] {
      if (passes())
        f();
    };
    if (!passes() || (troubled_ && chance(8)))
      return;
    queue_.emplace(now_ + delay(), arrive);
    if (troubled_ && chance(8))
      queue_.emplace(now_ + delay(), arrive);
  }

  void tick(int n) {
    node_world& w = nodes_[index(n)];
    if (!w.candidate)
      return;
    lease_candidate::requests out;
    w.candidate->tick(w.clock.at(now_), out);
    for (const auto& [to, request] : out)
      send(n, static_cast<int>(to.value),
           [=, this, to = static_cast<int>(to.value), request = request] { vote(n, to, request); });
  }
  void vote(int n, int to, const lease_request& request) {
    node_world& v = nodes_[index(to)];
    if (!v.voter)
      return;
    const lease_voter::answer a = v.voter->ask(request, v.clock.at(now_));
    if (a.write_first) {
      if (troubled_ && chance(20))
        return; // the disk is full: no answer
      v.disk = v.voter->state();
      v.voter->written();
      if (troubled_ && chance(20)) { // dies between writing and answering
        v.voter.reset();
        queue_.emplace(now_ + pick(0, 4000), [=, this] {
          if (!nodes_[index(to)].voter)
            start_voter(to);
        });
        return;
      }
    }
    const incarnation_t asked = request.candidate.incarnation;
    send(to, n, [=, this] {
      node_world& w = nodes_[index(n)];
      if (w.candidate && asked == incarnation_of(n))
        w.candidate->reply(a.reply, w.clock.at(now_));
    });
  }
  incarnation_t incarnation_of(int n) const { return nodes_[index(n)].incarnation; }

  void misfortune() {
    if (chance(300)) // partitions in any form, also one way
      for (auto it = reachable_.begin(); it != reachable_.end(); ++it)
        *it = !chance(6);
    if (chance(200))
      reachable_.assign(reachable_.size(), true);
    if (chance(400)) {
      const int n = pick(0, size() - 1);
      new_clock(nodes_[index(n)]); // the machine boots: both processes are new
      start_voter(n);
      start_candidate(n);
    } else if (chance(400)) {
      start_voter(pick(0, size() - 1));
    } else if (chance(400)) {
      start_candidate(pick(0, size() - 1));
    }
  }

  void check() {
    int leaders = 0;
    for (int n = 0; n < size(); ++n) {
      node_world& w = nodes_[index(n)];
      if (!w.candidate || !w.candidate->leads(w.clock.at(now_)))
        continue;
      ++leaders;
      const auto [it, fresh] = leader_of_term_.insert({w.candidate->term(), incarnation_of(n)});
      if (!fresh && it->second != incarnation_of(n))
        broken_ = "two leaders of term " + std::to_string(w.candidate->term());
    }
    if (leaders > 1)
      broken_ = "two leaders at " + std::to_string(now_) + " ms";
  }

  std::mt19937 random_;
  lease_settings settings_;
  std::vector<node_id> voters_;
  std::vector<node_world> nodes_;
  std::vector<bool> reachable_; // [from, to]
  std::multimap<std::int64_t, std::function<void()>> queue_;
  std::map<std::uint64_t, incarnation_t> leader_of_term_;
  incarnation_t incarnations_ = 0;
  std::int64_t now_ = 0;
  bool troubled_ = true;
  std::string broken_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(leases)

BOOST_AUTO_TEST_CASE(one_node_leads_at_once) {
  lease_voter voter(node_id(0), {}, std::nullopt, 50);
  lease_candidate candidate({node_id(0), 1}, {node_id(0)}, {}, 1, 1000);
  lease_candidate::requests out;
  candidate.tick(1000, out);
  BOOST_REQUIRE(out.size() == 1u);
  const auto a = voter.ask(out[0].second, 50);
  BOOST_TEST(a.write_first);
  BOOST_TEST(voter.ask(out[0].second, 50).write_first); // until it is written
  voter.written();
  BOOST_TEST(!voter.ask(out[0].second, 50).write_first);
  candidate.reply(a.reply, 1010);
  BOOST_TEST(candidate.leads(1010));
  BOOST_TEST(candidate.term() == 1u);
  BOOST_TEST(candidate.leads(1000 + 2399)); // it counts from the question, and stops 0.6 s before the end
  BOOST_TEST(!candidate.leads(1000 + 2400));
}

BOOST_AUTO_TEST_CASE(a_leader_renews_every_second) {
  lease_voter voter(node_id(0), {}, std::nullopt, 0);
  lease_candidate candidate({node_id(0), 1}, {node_id(0)}, {}, 1, 0);
  std::vector<std::int64_t> asked;
  for (std::int64_t now = 0; now < 10000; now += 10) {
    lease_candidate::requests out;
    candidate.tick(now, out);
    for (const auto& [to, request] : out) {
      asked.push_back(now);
      const auto a = voter.ask(request, now);
      BOOST_TEST(a.write_first == (now == 0)); // renewals change nothing that must survive
      voter.written();
      candidate.reply(a.reply, now);
    }
    BOOST_REQUIRE(candidate.leads(now));
  }
  BOOST_TEST(asked == (std::vector<std::int64_t>{0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000}),
             boost::test_tools::per_element());
  BOOST_TEST(candidate.term() == 1u);
}

BOOST_AUTO_TEST_CASE(a_voter_grants_one_candidate_until_its_lease_is_over) {
  lease_voter voter(node_id(4), {}, std::nullopt, 0);
  const candidate_id a{node_id(0), 1}, b{node_id(1), 2};
  BOOST_TEST(voter.ask({5, 1, a, 3000}, 100).reply.granted);
  const auto refused = voter.ask({6, 1, b, 3000}, 1100);
  BOOST_TEST(!refused.reply.granted);
  BOOST_TEST(refused.reply.term == 5u);
  BOOST_TEST(refused.reply.remaining_ms == 2000);
  BOOST_TEST(!voter.ask({5, 1, b, 3000}, 9000).reply.granted); // the same term is another's
  BOOST_TEST(!voter.ask({4, 1, a, 3000}, 9000).reply.granted);
  BOOST_TEST(!voter.ask({6, 1, b, 3000}, 3099).reply.granted);
  BOOST_TEST(voter.ask({6, 1, b, 3000}, 3100).reply.granted);
  BOOST_TEST(!voter.ask({5, 2, a, 3000}, 3100).reply.granted);
  // the same node, restarted, is another candidate
  BOOST_TEST(!voter.ask({6, 1, {node_id(1), 3}, 3000}, 3200).reply.granted);
}

BOOST_AUTO_TEST_CASE(a_restarted_voter_lets_the_old_lease_run_out) {
  lease_voter before(node_id(0), {}, std::nullopt, 0);
  const candidate_id a{node_id(0), 1}, b{node_id(1), 2};
  before.ask({5, 1, a, 3000}, 100);
  lease_voter after(node_id(0), {}, lease_from_bytes(lease_bytes(before.state())), 7); // its clock began anew
  BOOST_TEST(!after.ask({6, 1, b, 3000}, 3006).reply.granted);
  BOOST_TEST(after.ask({5, 2, a, 3000}, 3006).reply.granted); // the leader goes on
  BOOST_TEST(!after.ask({6, 1, b, 3000}, 3007).reply.granted);
}

BOOST_AUTO_TEST_CASE(candidates_that_get_no_majority_give_their_votes_back) {
  lease_voter here(node_id(0), {}, std::nullopt, 0), there(node_id(1), {}, std::nullopt, 0);
  const candidate_id other{node_id(1), 9};
  there.ask({1, 1, other, 3000}, 0);
  lease_candidate candidate({node_id(0), 1}, {node_id(0), node_id(1)}, {}, 1, -10000);
  lease_candidate::requests out;
  candidate.tick(0, out);
  candidate.reply(here.ask(out[0].second, 0).reply, 0);
  candidate.reply(there.ask(out[1].second, 0).reply, 0); // refused: two of two are needed
  BOOST_TEST(!here.ask({2, 1, other, 3000}, 10).reply.granted);
  out.clear();
  candidate.tick(10, out);
  BOOST_REQUIRE(out.size() == 2u);
  here.ask(out[0].second, 10);
  there.ask(out[1].second, 10); // which is not its to give back
  BOOST_TEST(here.ask({2, 1, other, 3000}, 11).reply.granted);
  BOOST_TEST(!there.ask({2, 1, {node_id(0), 1}, 3000}, 11).reply.granted);
}

BOOST_AUTO_TEST_CASE(votes_carry_the_highest_epochs) {
  lease_voter voter(node_id(0), {}, std::nullopt, 0);
  BOOST_TEST(voter.note({7, "h"}));
  BOOST_TEST(!voter.note({6, "h"}));
  lease_candidate candidate({node_id(0), 1}, {node_id(0)}, {}, 1, 0);
  lease_candidate::requests out;
  candidate.tick(0, out);
  candidate.reply(voter.ask(out[0].second, 0).reply, 0);
  BOOST_TEST((candidate.known() == remembered_epochs{7, "h"}));
}

BOOST_AUTO_TEST_CASE(votes_survive_on_disk) {
  const test_support::temporary_folder folder;
  const std::string path = folder / "lease";
  BOOST_TEST(!read_lease(path)->has_value());
  const voter_state state{9, {node_id(3), 77}, {4, "abc"}};
  BOOST_TEST(static_cast<bool>(write_lease(path, state)));
  BOOST_TEST((**read_lease(path) == state));
  const std::string whole = test_support::read_text(path);
  for (std::size_t at = 0; at < whole.size(); ++at) { // damage is found, and nobody votes without a memory
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    BOOST_REQUIRE(!lease_from_bytes(damaged));
    BOOST_REQUIRE(!lease_from_bytes(whole.substr(0, at)));
  }
  test_support::write_text(path, whole.substr(0, 5));
  const auto damaged = read_lease(path);
  BOOST_REQUIRE(!damaged);
  BOOST_TEST(damaged.failure().code == "lease_damaged");
}

BOOST_AUTO_TEST_CASE(never_two_leaders_and_one_when_it_can_be) {
  std::size_t terms = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    world w(seed);
    w.run(90000, true);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      w.run(90000 + 40000, false);
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      BOOST_REQUIRE(w.leader() >= 0);
    }
    terms += w.terms();
  }
  BOOST_TEST_MESSAGE(terms << " terms with a leader in 400 worlds");
  BOOST_TEST(terms > 1000u);
}

BOOST_AUTO_TEST_SUITE_END()
