// Migrations under lost, doubled and late messages, with ranks and coordinators dying: what must hold after every event
// holds, and they end.
#include "runtime/experts/migration.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <tuple>

using namespace troupe;
using list = std::vector<std::int32_t>;

namespace {

expert_digests digests_of(std::int32_t layers, std::int32_t experts) {
  expert_digests d{experts, {}};
  for (std::int32_t i = 0; i < layers * experts; ++i)
    d.digest.push_back(sha256_of("expert " + std::to_string(i)));
  return d;
}

expert_placement placement_of(std::int32_t layers, std::int32_t experts, std::int32_t ranks, std::int32_t each,
                              list expert_of) {
  expert_placement p = initial_placement(layers, experts, 1, 0);
  p.ranks = ranks;
  p.slots_per_rank = each;
  p.expert_of = std::move(expert_of);
  return p;
}

// One world: ranks with running steps and copy engines, a coordinator, and messages between them in virtual time.
class world {
public:
  struct faults {
    bool rank_deaths = false, coordinator_deaths = false, growth = false, damage = false, bad_network = true;
  };

  world(unsigned seed, faults f)
      : random_(seed), faults_(f), layers_(pick(1, 2)), experts_(pick(3, 8)), each_(pick(2, 4)),
        digests_(digests_of(layers_, experts_)) {
    const int count = (experts_ + each_ - 1) / each_ + pick(1, 3);
    group_ = ranks_of_one_node(count, each_);
    for (int r = 0; r < count; ++r)
      group_.node_of[static_cast<std::size_t>(r)] = r / 2;
    const auto initial =
        std::make_shared<expert_placement>(initial_placement(layers_, experts_, count, group_.slots() - experts_));
    for (int r = 0; r < count; ++r)
      ranks_.push_back({expert_slots(r, initial, digests_), true, 1});
    settings_.copy_timeout_ms = 3000;
    settings_.retry_ms = 300;
    coordinator_.emplace(settings_, group_, initial);
  }

  // Random events until `quiet_after`, then only what ends what has begun. False: it did not end.
  bool run(std::int64_t quiet_after, std::int64_t limit) {
    while (now_ < limit && broken_.empty()) {
      now_ += 10;
      while (!queue_.empty() && queue_.begin()->first <= now_) {
        const auto event = std::move(queue_.begin()->second);
        queue_.erase(queue_.begin());
        event();
        check();
      }
      steps();
      if (now_ < quiet_after)
        misfortune();
      else
        faults_.bad_network = false;
      for (const rank_world& r : ranks_) // audits repeat themselves
        if (r.alive && chance(30) &&
            std::any_of(r.slots.table().begin(), r.slots.table().end(),
                        [](const expert_slot& s) { return s.state == slot_state::lost; }))
          tell_slots(r.slots.rank(), r.term);
      if (coordinator_) {
        if (coordinator_->idle() && coordinator_->covers() && now_ < quiet_after && chance(20))
          begin();
        coordinator_->tick(now_, out_);
        deliver();
      }
      check();
      if (now_ > quiet_after + 2000 && coordinator_ && coordinator_->idle() && applied()) // deaths are known by then
        return true;
    }
    return false;
  }

  void begin() {
    expert_placement wanted = *coordinator_->newest();
    for (int layer = 0; layer < layers_; ++layer) {
      list slots;
      for (std::int32_t s = 0; s < coordinator_->group().slots(); ++s)
        if (coordinator_->group().is_live(s))
          slots.push_back(s);
      std::shuffle(slots.begin(), slots.end(), random_);
      for (std::size_t i = 0; i < slots.size(); ++i)
        wanted.expert_of[static_cast<std::size_t>(layer * coordinator_->group().slots() + slots[i])] =
            i < static_cast<std::size_t>(experts_) ? static_cast<int>(i) : pick(-1, experts_ - 1);
    }
    ++begun_;
    coordinator_->start(wanted, now_, out_);
    last_wanted_ = coordinator_->wanted();
    deliver();
  }

  const std::string& broken() const { return broken_; }
  const migration& coordinator() const { return *coordinator_; }
  const std::optional<expert_placement>& last_wanted() const { return last_wanted_; }
  int begun() const { return begun_; }
  int deaths() const { return deaths_; }
  int takeovers() const { return takeovers_; }
  bool enough_slots() const { return static_cast<int>(live().size()) * each_ >= experts_; }

  std::string leftovers() const {
    for (const expert_slots* rank : live()) {
      if (rank->version() != coordinator_->newest()->version)
        return "rank " + std::to_string(rank->rank()) + " has another version";
      for (int layer = 0; layer < layers_; ++layer)
        for (int i = 0; i < each_; ++i) {
          const int slot = rank->rank() * each_ + i;
          const std::int32_t e =
              rank->newest()->expert_of[static_cast<std::size_t>(layer * rank->newest()->slots() + slot)];
          if (rank->at(layer, slot).state != (e < 0 ? slot_state::empty : slot_state::active))
            return "slot " + std::to_string(slot) + " is left in another state";
        }
    }
    return {};
  }

private:
  struct rank_world {
    expert_slots slots;
    bool alive = true;
    std::uint64_t term = 1;
  };

  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }
  bool chance(int one_in) { return pick(1, one_in) == 1; }
  void after(std::int64_t ms, std::function<void()> f) { queue_.emplace(now_ + ms, std::move(f)); }
  void send(const std::function<void()>& f) {
    if (faults_.bad_network && chance(10))
      return;
    after(faults_.bad_network && chance(10) ? pick(0, 2500) : pick(0, 60), f);
    if (faults_.bad_network && chance(15))
      after(pick(0, 1500), f);
  }
  rank_world& rank(std::int32_t r) { return ranks_[static_cast<std::size_t>(r)]; }
  std::vector<const expert_slots*> live() const {
    std::vector<const expert_slots*> out;
    for (const rank_world& r : ranks_)
      if (r.alive)
        out.push_back(&r.slots);
    return out;
  }
  bool applied() const {
    for (const expert_slots* r : live())
      if (r->version() != coordinator_->newest()->version)
        return false;
    return true;
  }

  // Is the rank there, and does it still listen to that leader?
  bool hears(std::int32_t r, std::uint64_t term) {
    if (!rank(r).alive || term < rank(r).term)
      return false;
    rank(r).term = term;
    return true;
  }
  void answer(std::uint64_t term, const std::function<void(migration&)>& f) {
    send([=, this] {
      if (coordinator_ && term == term_) {
        f(*coordinator_);
        deliver();
      }
    });
  }

  void deliver() {
    const migration_orders out = std::exchange(out_, {});
    const std::uint64_t term = term_;
    for (const auto& p : out.publishes)
      send([=, this] {
        if (!hears(p.rank, term))
          return;
        if (rank(p.rank).slots.publish(p.placement) == expert_slots::answer::wrong_state)
          return tell_slots(p.rank, term);
        const auto version = rank(p.rank).slots.version(), quiesced = rank(p.rank).slots.quiesced();
        answer(term, [=, this](migration& m) { m.published(p.rank, version, quiesced, now_, out_); });
      });
    for (const auto& c : out.copies) {
      const expert_slot& old = rank(c.rank).slots.at(c.order.layer, c.order.slot);
      const bool held =
          old.state == slot_state::active || old.state == slot_state::vacating; // not what nobody named yet
      if (held && old.expert != c.order.expert && old.mig < c.order.mig &&
          gone_.insert({c.order.layer, c.order.slot, old.mig}).second)
        may_go(c.order.layer, old.expert);
      send([=, this] { copy(c.rank, c.order, term); });
    }
    for (const auto& s : out.settles) {
      for (std::size_t i = 0; i < rank(s.rank).slots.table().size(); ++i)
        if (const expert_slot& old = rank(s.rank).slots.table()[i];
            old.state == slot_state::vacating &&
            gone_.insert({static_cast<int>(i) / each_, s.rank * each_ + static_cast<int>(i) % each_, old.mig}).second)
          may_go(static_cast<int>(i) / each_, old.expert);
      send([=, this] {
        if (hears(s.rank, term) && rank(s.rank).slots.settle(s.order) == expert_slots::answer::done)
          answer(term, [=, this](migration& m) { m.settled(s.rank, s.order.as_of, now_, out_); });
      });
    }
    for (const std::int32_t r : out.queries)
      send([=, this] {
        if (hears(r, term))
          tell_slots(r, term);
      });
  }
  // Bytes of an expert are given up: the newest version names others, on a rank that nobody says is dead.
  void may_go(std::int32_t layer, std::int32_t expert) {
    const expert_placement& p = *coordinator_->newest();
    const auto slots = slots_of(p, layer)[static_cast<std::size_t>(expert)];
    if (std::none_of(slots.begin(), slots.end(), [&](auto slot) { return coordinator_->group().is_live(slot); }))
      broken_ = "the last copy of expert " + std::to_string(expert) + " is given up at " + std::to_string(now_) + " ms";
  }
  void tell_slots(std::int32_t r, std::uint64_t term) {
    const slot_report report = rank(r).slots.report();
    answer(term, [=, this](migration& m) { m.reported(report, now_, out_); });
  }

  void copy(std::int32_t r, const copy_order& order, std::uint64_t term) {
    if (!hears(r, term))
      return;
    const auto verdict = rank(r).slots.copy(order, digests_.of(order.layer, order.expert));
    if (verdict == expert_slots::answer::wrong_state)
      broken_ = "a copy was ordered into a slot in use";
    if (verdict == expert_slots::answer::repeated) {
      const expert_slot& s = rank(r).slots.at(order.layer, order.slot);
      if (s.state == slot_state::empty)
        answer(term, [=, this](migration& m) { m.copy_failed(r, order.mig, now_, out_); });
      else if (s.state != slot_state::loading)
        answer(term, [=, this](migration& m) { m.copied(r, order.mig, now_, out_); });
    }
    if (verdict == expert_slots::answer::done && !chance(12)) // else it never ends
      after(pick(10, 300), [=, this] { arrive(r, order, term); });
  }
  void arrive(std::int32_t r, const copy_order& order, std::uint64_t term) {
    if (!rank(r).alive)
      return;
    sha256_digest bytes = digests_.of(order.layer, order.expert);
    if (order.source >= 0) {
      const rank_world& from = rank(order.source / each_);
      const expert_slot& s = from.slots.at(order.layer, order.source);
      bytes = from.alive && serves(s) ? s.digest : sha256_of("noise");
    }
    if (faults_.bad_network && chance(12))
      bytes = sha256_of("noise");
    const bool good = rank(r).slots.copied(order.mig, order.layer, order.slot, bytes) == expert_slots::answer::done;
    answer(term, [=, this](migration& m) {
      good ? m.copied(r, order.mig, now_, out_) : m.copy_failed(r, order.mig, now_, out_);
    });
  }

  // Steps begin and end as they like; two may be under way.
  void steps() {
    for (rank_world& r : ranks_) {
      if (!r.alive)
        continue;
      const std::size_t running = running_[r.slots.rank()];
      if (running < 2 && r.slots.version() > 0 && chance(3)) {
        r.slots.begin_step();
        ++running_[r.slots.rank()];
      } else if (running > 0 && chance(4)) {
        r.slots.end_step();
        --running_[r.slots.rank()];
        const auto id = r.slots.rank();
        const std::uint64_t quiesced = r.slots.quiesced();
        answer(r.term, [=, this](migration& m) { m.quiesced(id, quiesced, now_, out_); });
      }
    }
  }

  void misfortune() {
    if (faults_.rank_deaths && chance(250) && live().size() > 2)
      kill(pick(0, static_cast<int>(ranks_.size()) - 1));
    if (faults_.coordinator_deaths && chance(300) && coordinator_) {
      coordinator_.reset();
      after(pick(0, 3000), [this] { take_over(); });
    }
    if (faults_.growth && chance(400) && coordinator_ && ranks_.size() < 9)
      grow();
    if (faults_.damage && chance(300) && coordinator_) {
      rank_world& r = rank(pick(0, static_cast<int>(ranks_.size()) - 1));
      const int id = r.slots.rank();
      if (r.alive) {
        r.slots.damaged(pick(0, layers_ - 1), id * each_ + pick(0, each_ - 1));
        tell_slots(id, r.term);
        check();
      }
    }
  }
  void kill(int r) {
    if (!rank(r).alive)
      return;
    rank(r).alive = false;
    ++deaths_;
    for (const rank_world& other : ranks_) { // what runs is void, sooner or later
      const auto id = other.slots.rank();
      after(pick(0, 500), [=, this] {
        rank(id).slots.abort_steps();
        running_[id] = 0;
      });
    }
    const std::uint64_t term = term_;
    after(pick(0, 1500), [=, this] { // membership's word is not lost
      group_.live[static_cast<std::size_t>(r)] = false;
      if (coordinator_ && term_ >= term)
        coordinator_->died(r, now_, out_), deliver();
    });
  }
  void take_over() {
    ++term_;
    ++takeovers_;
    coordinator_.emplace(migration::take_over(settings_, group_, now_, out_));
    deliver();
  }
  void grow() {
    const auto r = static_cast<std::int32_t>(ranks_.size());
    expert_placement none = placement_of(layers_, experts_, 0, each_, {});
    none.version = 0;
    ranks_.push_back({expert_slots(r, std::make_shared<expert_placement>(none), digests_), true, term_});
    group_.live.push_back(true);
    group_.node_of.push_back(r / 2);
    coordinator_->grow(group_, now_, out_);
    deliver();
  }

  void check() {
    if (!broken_.empty())
      return;
    const auto alive = live();
    broken_ = broken_invariant(alive, digests_);
    for (const expert_slots* r : alive) {
      const auto it = before_.find(r->rank());
      if (it != before_.end() && broken_.empty())
        broken_ = broken_transition(it->second, *r);
      before_.insert_or_assign(r->rank(), *r);
    }
    if (!broken_.empty())
      broken_ += " at " + std::to_string(now_) + " ms";
  }

  std::mt19937 random_;
  faults faults_;
  int layers_, experts_, each_;
  expert_digests digests_;
  expert_ranks group_;
  migration_settings settings_;
  std::vector<rank_world> ranks_;
  std::map<std::int32_t, std::size_t> running_;
  std::map<std::int32_t, expert_slots> before_;
  std::optional<migration> coordinator_;
  std::uint64_t term_ = 1;
  migration_orders out_;
  std::multimap<std::int64_t, std::function<void()>> queue_;
  std::int64_t now_ = 1000;
  std::optional<expert_placement> last_wanted_;
  std::set<std::tuple<std::int32_t, std::int32_t, std::uint64_t>>
      gone_; // layer, slot, what wrote it: given up by an order
  std::string broken_;
  int begun_ = 0, deaths_ = 0, takeovers_ = 0;
};

struct tally {
  int begun = 0, deaths = 0, takeovers = 0;
  std::uint64_t moved = 0, failed = 0, recovered = 0;
};

tally run_worlds(unsigned seeds, world::faults faults, const std::function<void(const world&)>& more) {
  tally sum;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    world w(seed, faults);
    const bool ended = w.run(20000, 400000);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_REQUIRE_EQUAL(w.broken(), "");
      BOOST_REQUIRE(ended);
      BOOST_REQUIRE_EQUAL(w.leftovers(), "");
      BOOST_REQUIRE(w.coordinator().covers() == w.enough_slots());
      more(w);
    }
    sum.begun += w.begun(), sum.deaths += w.deaths(), sum.takeovers += w.takeovers();
    const migration_totals& t = w.coordinator().totals();
    sum.moved += t.moved, sum.failed += t.failed, sum.recovered += t.recovered;
  }
  return sum;
}

} // namespace

BOOST_AUTO_TEST_SUITE(migrations)

BOOST_AUTO_TEST_CASE(c20_one_expert_moves_in_five_phases) {
  // 0 1 | 2 0, and 1 shall replace the second 0
  const auto now = std::make_shared<expert_placement>(placement_of(1, 3, 2, 2, {0, 1, 2, 0}));
  migration m({}, ranks_of_one_node(2, 2), now);
  BOOST_TEST(m.idle());
  migration_orders out;
  BOOST_TEST(m.start(placement_of(1, 3, 2, 2, {0, 1, 2, 1}), 1000, out));
  BOOST_REQUIRE(out.publishes.size() == 2u); // VACATE: a version without the slot
  BOOST_TEST(out.publishes[0].placement->version == 2u);
  BOOST_TEST(out.publishes[0].placement->expert_of == (list{0, 1, 2, -1}), boost::test_tools::per_element());
  BOOST_TEST(out.copies.empty());
  out.clear();
  m.published(0, 2, 1, 1010, out); // still runs a step of version 1
  m.published(1, 2, 2, 1010, out);
  BOOST_TEST(out.copies.empty());
  m.quiesced(0, 2, 1020, out); // COPY: nobody routes to it any more
  BOOST_REQUIRE(out.copies.size() == 1u);
  BOOST_TEST(out.copies[0].rank == 1);
  BOOST_TEST((out.copies[0].order == copy_order{1, 0, 3, 1, 1, 2}));
  out.clear();
  m.copied(1, 1, 1080, out); // PUBLISH
  BOOST_REQUIRE(out.publishes.size() == 2u);
  BOOST_TEST(out.publishes[1].placement->version == 3u);
  BOOST_TEST(out.publishes[1].placement->expert_of == (list{0, 1, 2, 1}), boost::test_tools::per_element());
  out.clear();
  m.published(0, 3, 3, 1090, out);
  BOOST_TEST(!m.in_force());
  m.published(1, 3, 3, 1090, out);
  BOOST_TEST(m.in_force());
  BOOST_REQUIRE(out.settles.size() == 2u); // FREE
  BOOST_TEST((out.settles[0].order == settle_order{3, 3, 2}));
  m.settled(0, 3, 1100, out);
  BOOST_TEST(!m.idle());
  m.settled(1, 3, 1100, out);
  BOOST_TEST(m.idle());
  BOOST_TEST(m.totals().moved == 1u);
  BOOST_TEST(m.totals().versions == 2u);
}

BOOST_AUTO_TEST_CASE(versions_are_published_no_more_often_than_the_interval) {
  const auto now = std::make_shared<expert_placement>(placement_of(2, 2, 2, 2, {0, 1, 0, 0, 0, 1, 0, 0}));
  migration m({}, ranks_of_one_node(2, 2), now);
  migration_orders out;
  BOOST_TEST(m.start(placement_of(2, 2, 2, 2, {0, 1, 1, 0, 0, 1, 1, 0}), 1000, out));
  BOOST_TEST(out.publishes[0].placement->expert_of == (list{0, 1, -1, 0, 0, 1, -1, 0}),
             boost::test_tools::per_element()); // both vacates in one version
  for (const int rank : {0, 1})
    m.published(rank, 2, 2, 1001, out);
  BOOST_REQUIRE(out.copies.size() == 2u);
  out.clear();
  m.copied(1, 1, 1020, out);
  BOOST_TEST(out.publishes.empty());
  m.copied(1, 2, 1030, out);
  m.tick(1049, out);
  BOOST_TEST(out.publishes.empty());
  m.tick(1050, out);
  BOOST_REQUIRE(out.publishes.size() == 2u); // both in one version
  BOOST_TEST(out.publishes[0].placement->expert_of == (list{0, 1, 1, 0, 0, 1, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_failing_source_is_replaced_and_then_the_move_given_up) {
  const auto now = std::make_shared<expert_placement>(placement_of(1, 2, 3, 2, {0, 1, 0, 1, 0, -1}));
  migration m({}, ranks_of_one_node(3, 2), now);
  migration_orders out;
  BOOST_TEST(m.start(placement_of(1, 2, 3, 2, {0, 1, 0, 1, 0, 1}), 1000, out));
  std::vector<std::int32_t> sources;
  for (std::uint64_t mig = 1; mig <= 3; ++mig) {
    BOOST_REQUIRE(out.copies.size() == mig);
    sources.push_back(out.copies.back().order.source);
    m.copy_failed(2, mig, 1010, out);
  }
  BOOST_TEST(sources == (list{1, 3, -1}), boost::test_tools::per_element()); // both holders, then the backup store
  BOOST_TEST(out.copies.size() == 3u);
  BOOST_TEST(m.totals().failed == 1u);
  BOOST_TEST(m.wanted().expert_of == now->expert_of, boost::test_tools::per_element());
}

// Steps may take a tenth longer while experts move: where they take more, fewer experts move at once.
BOOST_AUTO_TEST_CASE(c20_slow_steps_mean_fewer_copies) {
  const auto now = std::make_shared<expert_placement>(
      placement_of(2, 4, 4, 2, {0, 1, 2, 3, -1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1}));
  migration m({}, ranks_of_one_node(4, 2), now);
  migration_orders out;
  m.step_time(10);
  m.start(placement_of(2, 4, 4, 2, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}), 1000, out);
  BOOST_TEST(out.copies.size() == 4u); // two for each of the ranks 2 and 3
  m.step_time(10.9);
  m.step_time(11.1); // more than a tenth longer: half of four
  m.copied(2, 1, 1010, out);
  m.copied(2, 2, 1010, out);
  BOOST_TEST(out.copies.size() == 4u);
  m.copied(3, 3, 1010, out);
  BOOST_TEST(out.copies.size() == 5u);
  m.step_time(10.5); // one more again
  m.tick(1020, out);
  BOOST_TEST(out.copies.size() == 6u);
}

BOOST_AUTO_TEST_CASE(a_death_covers_what_was_lost_from_the_backup_store) {
  const auto now = std::make_shared<expert_placement>(placement_of(1, 3, 3, 2, {0, 1, 2, 0, 1, 0}));
  migration m({}, ranks_of_one_node(3, 2), now);
  migration_orders out;
  m.died(1, 1000, out); // held the only 2
  BOOST_TEST(!m.covers());
  BOOST_REQUIRE(out.publishes.size() == 2u); // one of the other copies of 0 or 1 gives way at once
  BOOST_TEST(out.publishes[0].placement->expert_of == (list{-1, 1, -1, -1, 1, 0}), boost::test_tools::per_element());
  m.published(0, 2, 2, 1001, out);
  m.published(2, 2, 2, 1001, out);
  BOOST_REQUIRE(out.copies.size() == 1u);
  BOOST_TEST((out.copies[0].order == copy_order{1, 0, 0, 2, -1, 2}));
  m.copied(0, 1, 1100, out);
  BOOST_TEST(m.covers());
  BOOST_TEST(m.totals().recovered == 1u);
}

BOOST_AUTO_TEST_CASE(a_slot_that_was_given_up_is_named_again_when_the_other_copy_dies) {
  const auto now = std::make_shared<expert_placement>(placement_of(1, 3, 2, 3, {0, 1, 2, 0, 1, 2}));
  migration m({}, ranks_of_one_node(2, 3), now);
  migration_orders out;
  m.start(placement_of(1, 3, 2, 3, {1, 1, 2, 0, 1, 2}), 1000, out);
  BOOST_TEST(out.publishes[0].placement->expert_of == (list{-1, 1, 2, 0, 1, 2}), boost::test_tools::per_element());
  out.clear();
  m.died(1, 1001, out);
  BOOST_REQUIRE(out.publishes.size() == 1u);
  BOOST_TEST(out.publishes[0].placement->expert_of == (list{0, 1, 2, -1, -1, -1}), boost::test_tools::per_element());
  BOOST_TEST(m.covers());
}

BOOST_AUTO_TEST_CASE(a_bad_network_delays_and_changes_nothing) {
  const tally t = run_worlds(300, {}, [](const world& w) {
    if (w.coordinator().totals().failed == 0 && w.last_wanted())
      BOOST_REQUIRE(w.coordinator().newest()->expert_of == w.last_wanted()->expert_of);
  });
  BOOST_TEST_MESSAGE(t.begun << " migrations, " << t.moved << " moves, " << t.failed << " given up");
  BOOST_TEST(t.begun > 600);
  BOOST_TEST(t.moved > 5000u);
}

BOOST_AUTO_TEST_CASE(ranks_die_and_come) {
  world::faults f;
  f.rank_deaths = f.growth = true;
  const tally t = run_worlds(300, f, [](const world&) {});
  BOOST_TEST_MESSAGE(t.deaths << " deaths, " << t.recovered << " experts recovered, " << t.moved << " moves");
  BOOST_TEST(t.deaths > 300);
  BOOST_TEST(t.recovered > 50u);
}

BOOST_AUTO_TEST_CASE(coordinators_die) {
  world::faults f;
  f.coordinator_deaths = true;
  const tally t = run_worlds(300, f, [](const world&) {});
  BOOST_TEST(t.takeovers > 600);
}

// After every event: what a placement names serves, and has the right digest on every live rank.
BOOST_AUTO_TEST_CASE(c20_everything_at_once) {
  world::faults f;
  f.rank_deaths = f.coordinator_deaths = f.growth = f.damage = true;
  const tally t = run_worlds(400, f, [](const world&) {});
  BOOST_TEST_MESSAGE(t.deaths << " deaths, " << t.takeovers << " take-overs, " << t.recovered << " experts recovered");
  BOOST_TEST(t.deaths > 300);
  BOOST_TEST(t.takeovers > 500);
}

BOOST_AUTO_TEST_SUITE_END()
