#include "runtime/scheduler/step_group.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <memory>
#include <random>
#include <set>

using namespace troupe;

namespace {

rank_id rank(std::uint32_t r) {
  return rank_id{r};
}

step_intent prefill_wish(std::int32_t tokens) {
  step_intent d;
  d.prefill = true;
  d.held_tokens = tokens;
  return d;
}

step_intent decode_wish(std::int32_t since_prefill = 1000) {
  step_intent d;
  d.decode = true;
  d.steps_since_prefill = since_prefill;
  return d;
}

// A group of members 0..n-1 and their intents, without messages.
struct direct_group {
  step_group group;
  group_orders out;
  std::vector<step_member> ranks;

  explicit direct_group(std::uint32_t n, const step_group_settings& settings = {}) : group(settings) {
    for (std::uint32_t r = 0; r < n; ++r) {
      ranks.emplace_back(rank(r));
      group.join(rank(r), out);
      deliver();
    }
    for (std::uint32_t r = 0; group.members().size() < n;
         r = (r + 1) % n) // the group forms when its members have spoken
      say(r, {});
  }
  void deliver() {
    const group_orders now = std::exchange(out, {});
    for (step_member& m : ranks) {
      for (const group_view& v : now.views)
        m.view(v);
      for (const step_decision& d : now.decisions)
        m.decision(d);
    }
    decided.insert(decided.end(), now.decisions.begin(), now.decisions.end());
    views.insert(views.end(), now.views.begin(), now.views.end());
  }
  void say(std::uint32_t r, const step_intent& d, std::int32_t decode_steps = 0) {
    if (const auto i = ranks[r].intent(d, decode_steps, true))
      group.intent(*i, out);
    deliver();
  }
  void say_all(const step_intent& d, std::int32_t decode_steps = 0) {
    for (std::uint32_t r = 0; r < ranks.size(); ++r)
      say(r, d, decode_steps);
  }
  void tick(std::initializer_list<std::uint32_t> alive) {
    for (const std::uint32_t r : alive)
      group.heartbeat(rank(r), group.epoch());
    group.tick(out);
  }
  // Every rank runs what is decided.
  void run() {
    for (step_member& m : ranks)
      while (const auto s = m.start())
        m.finished(s->number);
  }
  std::vector<step_decision> decided;
  std::vector<group_view> views;
};

std::string kinds(const std::vector<step_decision>& list) {
  std::string s;
  for (const step_decision& d : list)
    s.append(static_cast<std::size_t>(d.steps), d.kind == step_kind::prefill ? 'p' : 'd');
  return s;
}

} // namespace

BOOST_AUTO_TEST_SUITE(step_group_rules)

// D2: the original runs 100 empty decode steps first.
BOOST_AUTO_TEST_CASE(a_prompt_at_one_of_two_idle_ranks_is_prefilled_at_once) {
  direct_group g(2);
  g.say_all({});
  BOOST_TEST(g.group.idle());
  for (int i = 0; i < 1000; ++i)
    g.group.tick(g.out);
  BOOST_TEST(g.out.views.empty()); // an idle group takes no steps and has no deadline
  BOOST_TEST(g.decided.empty());
  g.say(0, prefill_wish(100));
  BOOST_TEST(kinds(g.decided) == "p");
  g.run();
  g.say(0, decode_wish(), 3);
  BOOST_TEST(g.decided.size() == 1u); // rank 1 has not spoken
  g.say(1, {});
  BOOST_TEST(kinds(g.decided) == "pddd");
  g.run();
  g.say_all({});
  BOOST_TEST(g.group.idle());
}

// D3: a backlog of prompts does not stop the decoding sequences.
BOOST_AUTO_TEST_CASE(decode_steps_come_between_prefill_steps) {
  direct_group g(2);
  for (int i = 0; i < 6; ++i) {
    g.say(0, prefill_wish(1000), 0);
    g.say(1, decode_wish(i % 2 == 0 ? 1 : 0), 50);
    g.run();
  }
  BOOST_TEST(kinds(g.decided) == "pdpdpd");
  // with one rank alone and nothing to decode, prompts run back to back
  direct_group alone(1);
  for (int i = 0; i < 4; ++i) {
    alone.say(0, prefill_wish(1000));
    alone.run();
  }
  BOOST_TEST(kinds(alone.decided) == "pppp");
}

BOOST_AUTO_TEST_CASE(runs_of_decode_steps_end_with_the_longest_sequence) {
  direct_group g(2, {.rule = {}, .decode_run = 4, .deadline_ticks = 10});
  g.say(0, decode_wish(), 2);
  g.say(1, decode_wish(), 6);
  BOOST_TEST(g.decided.back().steps == 4);
  // the intent for what follows is due when one decided step is left
  BOOST_TEST(!g.ranks[0].intent({}, 0, true).has_value());
  for (int i = 0; i < 3; ++i)
    for (step_member& m : g.ranks)
      m.finished(m.start()->number);
  g.say(0, {});
  g.say(1, decode_wish(), 2);
  BOOST_TEST(g.decided.back().steps == 2);
  BOOST_TEST(g.decided.back().first == 4u);
  BOOST_TEST(g.ranks[0].start()->number == 3u);
  BOOST_TEST(g.ranks[0].start()->number == 4u);
  BOOST_TEST(!g.ranks[0].start().has_value()); // two are out
}

BOOST_AUTO_TEST_CASE(old_and_repeated_messages_change_nothing) {
  direct_group g(2, {.rule = {}, .decode_run = 4, .deadline_ticks = 10});
  const auto older = g.ranks[0].intent({}, 0, true);
  const auto newer = g.ranks[0].intent(decode_wish(), 2, true);
  BOOST_REQUIRE((older && newer));
  g.group.intent(*newer, g.out);
  g.group.intent(*older, g.out); // overtaken on its way
  g.say(1, {});
  BOOST_TEST(kinds(g.decided) == "dd");
  g.group.intent(*newer, g.out); // of a step that is decided
  BOOST_TEST(!g.group.idle());
  step_decision d = g.decided.back();
  g.ranks[1].decision(d);
  d.first = 2;
  --d.epoch;
  g.ranks[1].decision(d);
  for (std::uint64_t n = 0; n < 2; ++n)
    BOOST_TEST(g.ranks[1].start()->number == n);
  BOOST_TEST(!g.ranks[1].start().has_value());
  BOOST_TEST(!g.ranks[1].intent({}, 0, false).has_value()); // two steps are left
  BOOST_TEST(!g.ranks[1].finished(1));
  BOOST_TEST(g.ranks[1].finished(0));
  BOOST_TEST(g.ranks[1].intent({}, 0, false)->step == 2u);
  BOOST_TEST(!g.ranks[1].intent({}, 0, false).has_value()); // sent
}

BOOST_AUTO_TEST_CASE(a_silent_rank_is_named_and_the_others_go_on) {
  direct_group g(3, {.rule = {}, .decode_run = 1, .deadline_ticks = 5});
  g.say_all(decode_wish(), 9);
  g.run();
  g.say(0, decode_wish(), 8);
  g.say(2, decode_wish(), 8);
  const std::uint32_t before = g.group.epoch();
  for (int i = 0; i < 4; ++i)
    g.tick({0, 2});
  BOOST_TEST(g.out.views.empty());
  g.tick({0, 2});
  BOOST_REQUIRE(g.out.views.size() == 1u);
  const group_view v = g.out.views.front();
  BOOST_TEST(v.epoch == before + 1);
  BOOST_TEST(v.first == 1u);
  BOOST_TEST((v.members == std::vector{rank(0), rank(2)}));
  BOOST_TEST((v.left == std::vector{rank(1)}));
  BOOST_REQUIRE(v.culprits.size() == 1u);
  BOOST_TEST((v.culprits[0].rank == rank(1)));
  BOOST_TEST(v.culprits[0].silent);
  // its intent of the old epoch changes nothing any more
  const auto late = g.ranks[1].intent(decode_wish(), 8, true);
  BOOST_REQUIRE(late.has_value());
  BOOST_TEST((g.ranks[1].view(v) == step_member::change::expelled));
  BOOST_TEST((g.ranks[0].view(v) == step_member::change::aborted));
  g.group.intent(*late, g.out);
  BOOST_TEST(g.out.decisions.empty());
  BOOST_TEST(!g.ranks[1].intent(decode_wish(), 8, true).has_value());
}

BOOST_AUTO_TEST_CASE(when_nobody_is_silent_the_late_ones_go) {
  direct_group g(3, {.rule = {}, .decode_run = 1, .deadline_ticks = 5});
  g.say_all(decode_wish(), 9);
  g.run();
  g.say(1, decode_wish(), 9);
  for (int i = 0; i < 9; ++i)
    g.tick({0, 1, 2});
  BOOST_TEST(g.out.views.empty());
  g.tick({0, 1, 2});
  BOOST_REQUIRE(g.out.views.size() == 1u);
  BOOST_TEST((g.out.views[0].left == std::vector{rank(0), rank(2)}));
}

BOOST_AUTO_TEST_CASE(a_rank_joins_and_leaves_at_a_step_boundary) {
  direct_group g(2, {.rule = {}, .decode_run = 1, .deadline_ticks = 5});
  g.say_all(decode_wish(), 9);
  const std::uint32_t before = g.group.epoch();
  g.ranks.emplace_back(rank(2));
  g.group.join(rank(2), g.out);
  g.deliver();
  BOOST_TEST(g.group.epoch() == before); // the intents for the next step are not there
  const auto running = g.ranks[0].start();
  g.say(0, decode_wish(), 8);
  g.say(1, decode_wish(), 8);
  BOOST_TEST(g.group.epoch() == before + 1);
  BOOST_TEST(g.views.back().culprits.empty());
  BOOST_TEST(g.ranks[0].finished(running->number)); // what runs is finished, under the old epoch
  g.say_all(decode_wish(), 8);
  BOOST_TEST(g.decided.back().first == 1u);
  BOOST_TEST(g.ranks[2].start()->number == 1u);
  g.group.leave(rank(0), g.out);
  g.run();
  g.ranks[2].finished(1);
  g.say_all(decode_wish(), 8);
  BOOST_TEST((g.group.members() == std::vector{rank(1), rank(2)}));
  BOOST_TEST(!g.ranks[0].member());
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

// Ranks with made-up work over a network that delays and reorders. A step is a collective: it ends at a rank when every
// member of its epoch has started it and its time is over; it never ends if a member died before.
class simulation {
public:
  simulation(unsigned seed, bool kill, bool join)
      : random_(seed), settings_{.rule = {}, .decode_run = 1 + pick(6), .deadline_ticks = 40}, group_(settings_) {
    const std::uint32_t n = 1 + static_cast<std::uint32_t>(pick(5));
    for (std::uint32_t r = 0; r < n + (join ? 1 : 0); ++r)
      nodes_.emplace_back(r);
    late_ = join ? static_cast<int>(n) : -1;
    join_at_ = pick(300);
    kill_at_ = kill && n > 1 ? pick(400) : -1;
    victim_ = static_cast<std::uint32_t>(pick(static_cast<int>(n)));
    group_orders out;
    for (std::uint32_t r = 0; r < n; ++r)
      group_.join(rank(r), out);
    send(out);
  }

  void run(int ticks, bool arrivals) {
    for (int i = 0; i < ticks; ++i, ++now_) {
      if (now_ == kill_at_)
        nodes_[victim_].dead = true;
      group_orders out;
      if (now_ == join_at_ && late_ >= 0)
        group_.join(rank(static_cast<std::uint32_t>(late_)), out);
      group_.tick(out);
      send(out);
      deliver();
      for (node& n : nodes_)
        if (!n.dead)
          act(n, arrivals);
    }
  }

  void check_end() {
    for (const node& n : nodes_) {
      if (n.dead || n.expelled)
        continue;
      BOOST_REQUIRE(n.protocol.member());
      BOOST_REQUIRE(n.prompts.empty() && n.decoding.empty()); // all work done, whoever died
    }
    BOOST_REQUIRE(group_.idle());
    check_same_steps();
    BOOST_REQUIRE_EQUAL(culprits_.size(), kill_at_ >= 0 ? 1u : 0u);
    if (kill_at_ >= 0)
      BOOST_REQUIRE((culprits_[0] == rank(victim_)));
    BOOST_REQUIRE_LE(longest_gap_, bound());
    // Nobody had rows: the end of a run, or decided before the last token was known.
    BOOST_REQUIRE_LE(empty_steps(), bursts_ * settings_.decode_run);
  }
  int longest_gap() const { return longest_gap_; }
  std::size_t steps() const { return rows_.size(); }
  int idle_takes() const { return idle_takes_; }

private:
  struct node {
    explicit node(std::uint32_t r) : protocol(rank(r)), id(r) {}
    step_member protocol;
    std::uint32_t id;
    bool dead = false, expelled = false, changed = false;
    int since_prefill = 1000;
    std::vector<int> prompts, decoding; // rest of each
    struct running {
      step_member::step step;
      int until;
      int rows;
      std::vector<int> prompts, decoding; // before it
    };
    std::vector<running> out;
    std::vector<step_member::step> done;
  };
  struct message {
    int at;
    int to; // -1: the coordinator
    std::optional<rank_intent> intent;
    std::shared_ptr<const group_view> view;
    std::optional<step_decision> decision;
    rank_id lives{}; // of a heartbeat
    std::uint32_t epoch = 0;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  // From the last heartbeat over the deadline, the view and the new intents to the next decision and the end of its
  // step.
  int bound() const { return settings_.deadline_ticks + 10 + 5 * delay + 10; }

  void send(const group_orders& out) {
    for (const group_view& v : out.views) {
      members_of_[v.epoch] = v.members;
      for (const group_view::culprit& c : v.culprits)
        culprits_.push_back(c.rank);
      for (node& n : nodes_)
        network_.push_back({.at = now_ + pick(delay),
                            .to = static_cast<int>(n.id),
                            .intent = {},
                            .view = std::make_shared<const group_view>(v),
                            .decision = {}});
    }
    for (const step_decision& d : out.decisions)
      for (node& n : nodes_)
        network_.push_back(
            {.at = now_ + pick(delay), .to = static_cast<int>(n.id), .intent = {}, .view = {}, .decision = d});
  }

  void deliver() {
    std::shuffle(network_.begin(), network_.end(), random_);
    std::vector<message> later, due;
    for (message& m : network_) {
      if (m.at > now_ || pick(10) == 0) // or comes twice
        later.push_back(m);
      if (m.at <= now_)
        due.push_back(std::move(m));
    }
    network_ = std::move(later);
    for (const message& m : due) {
      group_orders out;
      if (m.to >= 0)
        receive(nodes_[static_cast<std::size_t>(m.to)], m);
      else if (m.intent)
        group_.intent(*m.intent, out);
      else
        group_.heartbeat(m.lives, m.epoch);
      send(out);
    }
  }

  void receive(node& n, const message& m) {
    if (n.dead)
      return;
    if (m.decision)
      n.protocol.decision(*m.decision);
    if (!m.view)
      return;
    const step_member::change c = n.protocol.view(*m.view);
    if (c == step_member::change::aborted && !n.out.empty()) { // void: its rows are computed again
      n.prompts = n.out.front().prompts;                       // what came meanwhile is lost; not of interest here
      n.decoding = n.out.front().decoding;
      n.out.clear();
    }
    n.expelled |= c == step_member::change::expelled;
  }

  bool works() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const node& n) {
      return !n.dead && n.protocol.member() && (!n.prompts.empty() || !n.decoding.empty());
    });
  }

  void act(node& n, bool arrivals) {
    if (arrivals && pick(60) == 0) {
      bursts_ += 1;
      n.prompts.push_back(1 + pick(3));
      n.changed = true;
    }
    while (const auto s = n.protocol.start()) {
      started_[{s->epoch, s->number}].insert(n.id);
      n.out.push_back({*s, now_ + 1 + pick(5), 0, n.prompts, n.decoding});
      n.out.back().rows = plan(n, s->kind);
    }
    if (!n.out.empty() && finishes(n.out.front())) {
      finish(n, n.out.front());
      n.out.erase(n.out.begin());
    }
    if (now_ % 10 == 0)
      network_.push_back({.at = now_ + pick(delay),
                          .to = -1,
                          .intent = {},
                          .view = {},
                          .decision = {},
                          .lives = rank(n.id),
                          .epoch = n.protocol.epoch()});
    step_intent d;
    d.prefill = !n.prompts.empty();
    d.decode = !n.decoding.empty();
    d.steps_since_prefill = n.since_prefill;
    d.held_tokens = static_cast<std::int32_t>(n.prompts.size());
    const int left = n.decoding.empty() ? 0 : *std::max_element(n.decoding.begin(), n.decoding.end());
    if (const auto i = n.protocol.intent(d, left, n.changed)) {
      n.changed = false;
      network_.push_back({.at = now_ + pick(delay), .to = -1, .intent = i, .view = {}, .decision = {}});
    }
    if (!works())
      busy_since_ = now_;
    longest_gap_ = std::max(longest_gap_, now_ - std::max(last_done_, busy_since_));
  }

  bool finishes(const node::running& s) const {
    const auto& started = started_.at({s.step.epoch, s.step.number});
    for (const rank_id r : members_of_.at(s.step.epoch))
      if (nodes_[r.value].dead || !started.contains(r.value))
        return false;
    return now_ >= s.until;
  }

  // Rows of a step: one chunk of a prompt, or a token of each sequence.
  int plan(node& n, step_kind kind) {
    n.since_prefill = kind == step_kind::prefill ? 0 : n.since_prefill + 1;
    if (kind == step_kind::decode) {
      const int rows = static_cast<int>(n.decoding.size());
      for (int& left : n.decoding)
        --left;
      std::erase(n.decoding, 0);
      return rows;
    }
    if (n.prompts.empty())
      return 0;
    if (--n.prompts.front() == 0) {
      n.prompts.erase(n.prompts.begin());
      n.decoding.push_back(1 + pick(20));
    }
    return 1;
  }

  void finish(node& n, const node::running& s) {
    BOOST_REQUIRE(n.protocol.finished(s.step.number));
    n.done.push_back(s.step);
    if (!n.decoding.empty() && pick(30) == 0)
      n.decoding.pop_back();                        // ended before its last possible token
    rows_[{s.step.epoch, s.step.number}] += s.rows; // dispatched to experts: rows of sequences alone (C22)
    idle_takes_ += s.rows == 0 ? 1 : 0;
    last_done_ = now_;
  }

  int empty_steps() const {
    return static_cast<int>(std::count_if(rows_.begin(), rows_.end(), [](const auto& r) { return r.second == 0; }));
  }

  // Of every step all ranks know the same kind and epoch; none leaves out a step that another ran, but for the ones
  // that a death voided.
  void check_same_steps() const {
    std::map<std::uint64_t, step_member::step> known;
    for (const node& n : nodes_)
      for (const step_member::step& s : n.done)
        BOOST_REQUIRE((known.try_emplace(s.number, s).first->second == s));
    for (const auto& [number, s] : known)
      for (const rank_id r : members_of_.at(s.epoch)) {
        const node& n = nodes_[r.value];
        const bool has = std::find(n.done.begin(), n.done.end(), s) != n.done.end();
        BOOST_REQUIRE((has || kill_at_ >= 0));
      }
    for (const node& n : nodes_)
      BOOST_REQUIRE(std::is_sorted(n.done.begin(), n.done.end(), [](const auto& a, const auto& b) {
        return std::pair(a.epoch, a.number) < std::pair(b.epoch, b.number);
      }));
  }

  static constexpr int delay = 5;
  std::mt19937_64 random_;
  step_group_settings settings_;
  step_group group_;
  std::vector<node> nodes_;
  std::vector<message> network_;
  std::map<std::uint32_t, std::vector<rank_id>> members_of_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<std::uint32_t>> started_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> rows_;
  std::vector<rank_id> culprits_;
  int now_ = 0, kill_at_ = -1, join_at_ = 0, late_ = -1, bursts_ = 0, idle_takes_ = 0;
  int last_done_ = 0, busy_since_ = 0, longest_gap_ = 0;
  std::uint32_t victim_ = 0;
};

} // namespace

BOOST_AUTO_TEST_SUITE(step_group_over_a_network)

BOOST_AUTO_TEST_CASE(all_ranks_take_the_same_steps) {
  std::size_t steps = 0;
  int without_rows = 0;
  for (unsigned seed = 0; seed < 400; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation s(seed, false, seed % 2 == 0);
      s.run(600, true);
      s.run(1500, false);
      s.check_end();
      steps += s.steps();
      without_rows += s.idle_takes();
    }
  BOOST_TEST_MESSAGE(steps << " steps, " << without_rows << " takes without rows");
  BOOST_TEST(steps > 10000u);
  BOOST_TEST(without_rows > 1000); // idle ranks in busy groups were there
}

BOOST_AUTO_TEST_CASE(a_death_at_any_point_stops_nobody_else) {
  int longest = 0;
  for (unsigned seed = 0; seed < 600; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation s(seed, true, seed % 3 == 0);
      s.run(600, true);
      s.run(2500, false);
      s.check_end();
      longest = std::max(longest, s.longest_gap());
    }
  BOOST_TEST_MESSAGE("longest wait for a step " << longest << " ticks");
}

BOOST_AUTO_TEST_SUITE_END()
