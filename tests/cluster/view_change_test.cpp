// Two-phase views over a network that loses, doubles, delays and reorders, with leaders and members that die at any
// moment, former leaders that go on for a while, and members that are held for dead and are not.
#include "cluster/view_change.hpp"
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <random>
#include <string>

using namespace troupe;

namespace {

struct small_view {
  std::uint64_t mepoch = 0, content = 0; // the latter is never made twice
  std::set<incarnation_t> named, asked;
};
using leader_side = view_leader<small_view>;
using member_side = view_member<small_view>;

class world {
public:
  explicit world(unsigned seed) : random_(seed) {
    start_leader();
    for (int n = pick(2, 6); n > 0; --n)
      start_member();
  }

  void run(std::int64_t end, bool troubled) {
    troubled_ = troubled;
    for (; now_ < end && broken_.empty(); now_ += 5) {
      while (!queue_.empty() && queue_.begin()->first <= now_) {
        const auto event = std::move(queue_.begin()->second);
        queue_.erase(queue_.begin());
        event();
      }
      for (std::size_t i = 0; i < members_.size(); ++i)
        if (members_[i].alive && chance(40))
          beat(i);
      for (std::size_t i = 0; i < leaders_.size(); ++i)
        if (leaders_[i].alive && chance(40))
          tick(i);
      if (troubled)
        misfortune();
    }
  }

  const std::string& broken() const { return broken_; }
  std::size_t epochs() const { return content_of_.size(); }
  std::size_t given_up() const { return given_up_; }
  // All that live work under the newest leader's view, which names them and nobody else.
  bool settled() const {
    std::set<incarnation_t> living;
    for (const member_world& m : members_)
      if (m.alive)
        living.insert(m.incarnation);
    const small_view& v = leaders_.back().views.committed();
    return v.named == living && !leaders_.back().views.wants() && std::ranges::all_of(members_, [&](const auto& m) {
             return !m.alive || (m.views.committed().mepoch == v.mepoch && m.views.prepared() == 0);
           });
  }

private:
  struct leader_world {
    std::uint64_t term = 0;
    bool alive = true;
    leader_side views;
    std::set<incarnation_t> known, over;
  };
  struct member_world {
    incarnation_t incarnation = 0;
    bool alive = true, hears_only = false; // the latter: as a node agent or a client
    int leader = -1;                       // that has taken it in
    member_side views;
    std::set<std::uint64_t> prepared; // ever
  };

  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }
  bool chance(int one_in) { return pick(1, one_in) == 1; }

  void start_leader() {
    leaders_.push_back({leaders_.size() + 1, true, leader_side{}, {}, {}});
    leaders_.back().views.lead(leaders_.back().term);
  }
  void start_member() { members_.push_back({members_.size() + 100, true, chance(4), -1, {}, {}}); }
  std::size_t at(incarnation_t who) const { return static_cast<std::size_t>(who - 100); }

  void send(std::function<void()> arrive) {
    const auto delay = [&] { return troubled_ ? (chance(6) ? pick(0, 4000) : pick(0, 200)) : pick(0, 40); };
    if (troubled_ && chance(8))
      return;
    queue_.emplace(now_ + delay(), arrive);
    if (troubled_ && chance(8))
      queue_.emplace(now_ + delay(), std::move(arrive));
  }

  // ---- leaders

  void propose(std::size_t l) {
    leader_world& w = leaders_[l];
    if (!w.views.wants())
      return;
    small_view v{w.views.next(), ++contents_, w.known, {}};
    std::set<incarnation_t> others;
    for (const incarnation_t who : w.known)
      (members_[at(who)].hears_only ? others : v.asked).insert(who);
    const auto asked = v.asked;
    leader_side::orders out;
    w.views.propose(std::move(v), asked, others, now_, out);
    carry_out(l, out);
  }
  void carry_out(std::size_t l, const leader_side::orders& orders) {
    leader_world& w = leaders_[l];
    for (const view_order& o : orders) {
      given_up_ += o.what == view_order::kind::abort ? 1 : 0;
      const std::size_t m = at(o.to);
      switch (o.what) {
      case view_order::kind::prepare:
        send([=, this, v = w.views.proposed()] { prepare(l, m, v); });
        break;
      case view_order::kind::commit:
        send([=, this, e = o.mepoch] {
          if (members_[m].alive && members_[m].views.commit(e))
            works(m);
        });
        break;
      case view_order::kind::abort:
        send([=, this, e = o.mepoch] { members_[m].views.abort(e); });
        break;
      case view_order::kind::whole:
        send([=, this, v = w.views.committed()] {
          if (members_[m].alive && members_[m].views.take(v))
            works(m);
        });
        break;
      }
    }
    propose(l);
  }
  void lose(std::size_t l, incarnation_t who) {
    leader_world& w = leaders_[l];
    w.over.insert(who);
    if (!w.alive || w.known.erase(who) == 0)
      return;
    w.views.changed();
    leader_side::orders out;
    w.views.lost(who, out);
    carry_out(l, out);
  }
  void tick(std::size_t l) {
    leader_side::orders out;
    const auto late = leaders_[l].views.tick(now_, out);
    carry_out(l, out);
    for (const incarnation_t who : late)
      lose(l, who);
  }

  // ---- members

  void prepare(std::size_t l, std::size_t m, const small_view& v) {
    member_world& w = members_[m];
    if (!w.alive || w.views.prepare(v) != ack_code::ok)
      return;
    w.prepared.insert(v.mepoch);
    perhaps_dies(m);
    send([=, this, who = w.incarnation, e = v.mepoch] {
      if (!leaders_[l].alive)
        return;
      leader_side::orders out;
      leaders_[l].views.prepared(who, e, out);
      if (troubled_ && chance(30))
        return end_leader(l); // between the decision and the word
      carry_out(l, out);
    });
  }
  void works(std::size_t m) {
    const small_view& v = members_[m].views.committed();
    const auto [known, fresh] = content_of_.emplace(v.mepoch, v.content);
    if (!fresh && known->second != v.content)
      broken_ = "two views of epoch " + std::to_string(v.mepoch);
    if (v.mepoch <= under_[m])
      broken_ = "an older view after " + std::to_string(under_[m]);
    under_[m] = v.mepoch;
    for (const incarnation_t who : v.asked)
      if (!members_[at(who)].prepared.contains(v.mepoch))
        broken_ = "epoch " + std::to_string(v.mepoch) + " without " + std::to_string(who);
    perhaps_dies(m);
  }
  void beat(std::size_t m) {
    member_world& w = members_[m];
    if (w.leader >= 0 && !leaders_[static_cast<std::size_t>(w.leader)].alive)
      w.leader = -1;
    const std::size_t l = w.leader >= 0 ? static_cast<std::size_t>(w.leader) : leaders_.size() - 1;
    if (w.leader < 0)
      return send([=, this] { join(l, m); });
    send([=, this, under = w.views.committed().mepoch, prepared = w.views.prepared()] {
      leader_world& lw = leaders_[l];
      if (!lw.alive)
        return;
      if (!lw.known.contains(members_[m].incarnation))
        return send(
            [=, this] { members_[m].leader = members_[m].leader == static_cast<int>(l) ? -1 : members_[m].leader; });
      leader_side::orders out;
      lw.views.heard(members_[m].incarnation, under, prepared, out);
      carry_out(l, out);
    });
  }
  void join(std::size_t l, std::size_t m) {
    leader_world& lw = leaders_[l];
    member_world& w = members_[m];
    if (!lw.alive || !w.alive)
      return;
    if (lw.over.contains(w.incarnation))
      return send([=, this] { end_member(m); }); // and its node agent starts another
    if (lw.known.insert(w.incarnation).second)
      lw.views.changed();
    send([=, this] {
      members_[m].leader = static_cast<int>(l);
      members_[m].views.follow(leaders_[l].term);
    });
    propose(l);
  }

  // ---- deaths

  void end_member(std::size_t m) {
    if (!std::exchange(members_[m].alive, false))
      return;
    for (std::size_t l = 0; l < leaders_.size(); ++l) // connections are lost, sooner or later
      queue_.emplace(now_ + pick(0, 3000), [=, this] { lose(l, members_[m].incarnation); });
    queue_.emplace(now_ + pick(0, 3000), [this] { start_member(); });
  }
  void perhaps_dies(std::size_t m) {
    if (troubled_ && chance(60))
      end_member(m);
  }
  void end_leader(std::size_t l) {
    if (!std::exchange(leaders_[l].alive, false) || l + 1 != leaders_.size())
      return;
    start_leader();
  }
  void misfortune() {
    if (chance(1500))
      end_leader(leaders_.size() - 1);
    if (chance(1500)) { // a former one does not know yet
      const std::size_t former = leaders_.size() - 1;
      start_leader();
      queue_.emplace(now_ + pick(0, 4000), [=, this] { leaders_[former].alive = false; });
    }
    if (chance(800))
      end_member(static_cast<std::size_t>(pick(0, static_cast<int>(members_.size()) - 1)));
    if (chance(800)) // held for dead, and is not
      lose(leaders_.size() - 1,
           members_[static_cast<std::size_t>(pick(0, static_cast<int>(members_.size()) - 1))].incarnation);
  }

  std::mt19937 random_;
  std::vector<leader_world> leaders_; // by term
  std::vector<member_world> members_;
  std::multimap<std::int64_t, std::function<void()>> queue_;
  std::map<std::uint64_t, std::uint64_t> content_of_; // by epoch, as members work under it
  std::map<std::size_t, std::uint64_t> under_;        // by member
  std::uint64_t contents_ = 0;
  std::size_t given_up_ = 0;
  std::int64_t now_ = 0;
  bool troubled_ = true;
  std::string broken_;
};

small_view view_of(std::uint64_t mepoch) {
  return {mepoch, mepoch, {}, {}};
}

} // namespace

BOOST_AUTO_TEST_SUITE(view_changes)

// A lease that ends and is renewed after all is that of the same term: what was proposed in it has used its numbers.
BOOST_AUTO_TEST_CASE(a_leader_of_the_same_term_anew_uses_no_number_twice) {
  leader_side leader;
  leader.lead(3);
  leader_side::orders out;
  leader.propose(view_of(leader.next()), {1}, {}, 0, out);
  const std::uint64_t used = leader.last();
  leader.lead(0); // it leads no more
  leader.lead(3);
  BOOST_TEST(leader.next() == used + 1);
  leader.lead(4);
  BOOST_TEST(leader.next() == epochs_before(4) + 1);
}

BOOST_AUTO_TEST_CASE(c19_a_view_counts_when_all_have_prepared_it) {
  leader_side leader;
  leader.lead(3);
  leader.changed();
  BOOST_REQUIRE(leader.wants());
  leader_side::orders out;
  leader.propose(view_of(leader.next()), {1, 2}, {9}, 0, out);
  BOOST_TEST(out.size() == 2u);
  member_side one, two;
  BOOST_TEST((one.prepare(leader.proposed()) == ack_code::ok));
  BOOST_TEST((two.prepare(leader.proposed()) == ack_code::ok));
  BOOST_TEST(one.committed().mepoch == 0u); // it works under what it had
  out.clear();
  leader.prepared(1, one.prepared(), out);
  leader.changed();
  BOOST_TEST(!leader.wants()); // one after the other
  BOOST_TEST(out.empty());
  leader.prepared(2, two.prepared(), out);
  BOOST_TEST(out.size() == 3u);
  BOOST_TEST(leader.committed().mepoch == epochs_before(3) + 1);
  BOOST_TEST(one.commit(leader.committed().mepoch));
  BOOST_TEST(!one.commit(leader.committed().mepoch)); // a copy
  BOOST_TEST(one.committed().mepoch == epochs_before(3) + 1);
  BOOST_TEST(leader.wants());
}

BOOST_AUTO_TEST_CASE(c19_a_view_that_somebody_cannot_prepare_will_not_be) {
  leader_side leader;
  leader.lead(1);
  leader_side::orders out;
  leader.propose(view_of(leader.next()), {1, 2}, {}, 0, out);
  const small_view first = leader.proposed();
  member_side one;
  one.prepare(first);
  leader.prepared(1, first.mepoch, out);
  out.clear();
  leader.lost(2, out);
  BOOST_TEST(out.size() == 2u);
  BOOST_TEST((out[0].what == view_order::kind::abort));
  one.abort(out[0].mepoch);
  BOOST_TEST(one.prepared() == 0u);
  BOOST_REQUIRE(leader.wants());
  BOOST_TEST(leader.next() > first.mepoch); // that number is used up
  out.clear();
  leader.propose(view_of(leader.next()), {1}, {}, 0, out);
  one.prepare(leader.proposed());
  BOOST_TEST((one.prepare(first) == ack_code::stale_epoch)); // a late copy
  leader.prepared(1, first.mepoch, out);
  BOOST_TEST(leader.committed().mepoch == 0u);
}

BOOST_AUTO_TEST_CASE(who_does_not_prepare_in_time_is_named) {
  leader_side leader({1000, 300});
  leader.lead(1);
  leader_side::orders out;
  leader.propose(view_of(leader.next()), {1, 2}, {}, 0, out);
  leader.prepared(1, leader.proposed().mepoch, out);
  out.clear();
  BOOST_TEST(leader.tick(299, out).empty());
  BOOST_TEST(out.empty());
  BOOST_TEST(leader.tick(300, out).empty());
  BOOST_REQUIRE(out.size() == 1u); // asked again
  BOOST_TEST(out[0].to == 2u);
  BOOST_TEST((leader.tick(1000, out) == std::set<incarnation_t>{2}));
  BOOST_TEST(leader.wants());
}

BOOST_AUTO_TEST_CASE(who_heard_nothing_more_learns_the_end_with_its_next_heartbeat) {
  leader_side leader;
  leader.lead(1);
  leader_side::orders out;
  leader.propose(view_of(leader.next()), {1}, {}, 0, out);
  member_side one;
  one.prepare(leader.proposed());
  out.clear();
  leader.heard(1, one.committed().mepoch, one.prepared(), out);
  BOOST_TEST(out.empty()); // it is not decided yet
  leader.prepared(1, one.prepared(), out);
  out.clear(); // the word is lost
  leader.heard(1, one.committed().mepoch, one.prepared(), out);
  BOOST_REQUIRE(out.size() == 1u);
  BOOST_TEST((out[0].what == view_order::kind::whole));
  BOOST_TEST(one.take(leader.committed()));
  BOOST_TEST(one.prepared() == 0u);
  // Another leader knows nothing of what the former one has left.
  one.prepare(view_of(epochs_before(1) + 2));
  leader_side next;
  next.lead(2);
  out.clear();
  next.heard(1, one.committed().mepoch, one.prepared(), out);
  BOOST_REQUIRE(out.size() == 1u);
  BOOST_TEST((out[0].what == view_order::kind::abort));
}

BOOST_AUTO_TEST_CASE(a_former_leader_is_refused) {
  member_side one;
  one.follow(5);
  BOOST_TEST((one.prepare(view_of(epochs_before(4) + 7)) == ack_code::stale_term));
  BOOST_TEST(!one.take(view_of(epochs_before(4) + 8)));
  BOOST_TEST(one.refused() == 2u);
  BOOST_TEST(one.take(view_of(epochs_before(5) + 1)));
  BOOST_TEST((one.prepare(view_of(epochs_before(5))) == ack_code::stale_epoch));
  BOOST_TEST(one.refused() == 3u);
}

BOOST_AUTO_TEST_CASE(c19_never_two_views_of_one_epoch_and_it_always_ends) {
  std::size_t epochs = 0, given_up = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    world w(seed);
    w.run(60000, true);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      w.run(60000 + 30000, false);
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      BOOST_REQUIRE(w.settled());
    }
    epochs += w.epochs();
    given_up += w.given_up();
  }
  BOOST_TEST(epochs > 400u * 10);
  BOOST_TEST(given_up > 400u * 3);
}

BOOST_AUTO_TEST_SUITE_END()
