// The verifier's messages, and what is left when it dies.
#include "actors/expert_exchange.hpp"
#include "actors/spec_verifier.hpp"
#include "runtime/base/draft_split.hpp"
#include "runtime/request/seeds.hpp"
#include "tests/support/stub_process.hpp"
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sstream>

using namespace troupe;

namespace {

// speculation.md §6.6
const std::vector<timed_size> curve{{1, 10.0}, {2, 10.2}, {4, 10.5}, {8, 11.2}, {16, 13.0}, {24, 15.5}};

std::vector<float> spec_survivals() {
  const float c[3][5] = {{.95f, .9f, .8f, .7f, .6f}, {.9f, .5f, .4f, .3f, .2f}, {.6f, .5f, .5f, .5f, .5f}};
  std::vector<float> s(15);
  for (std::size_t r = 0; r < 3; ++r)
    survivals_of(c[r], 5, 5, &s[5 * r]);
  std::sort(s.begin(), s.end(), std::greater<>());
  return s;
}

spec_load load_of(std::uint64_t round, std::uint32_t rank, std::int32_t sequences,
                  const std::vector<float>& survivals) {
  spec_load l;
  l.round = round;
  l.rank = rank;
  l.sequences = sequences;
  l.survivals = pack_f32(survivals);
  return l;
}

struct one_verifier : by_hand {
  spec_verifier_actor verifier;
  caf::scoped_actor other{sys}; // a second rank

  void launch(std::int32_t ranks) {
    verifier = sys.spawn(spec_verifier, group_settings{.ranks = ranks, .curve = curve});
  }
  ~one_verifier() {
    tell_from_outside(verifier, stop{});
    sched.run();
  }
  // The plans that came to a rank.
  std::vector<spec_plan> plans(caf::scoped_actor& rank) {
    std::vector<spec_plan> out;
    for (bool more = true; more;)
      rank->receive([&](const spec_plan& p) { out.push_back(p); },
                    caf::after(std::chrono::milliseconds(1)) >> [&] { more = false; });
    return out;
  }
  void send(caf::scoped_actor& rank, const spec_load& l) {
    tell(rank.ptr(), verifier, l);
    sched.run();
  }
  spec_report report() {
    spec_report out;
    auto answer = ask(self.ptr(), verifier, std::chrono::milliseconds(1000), spec_query{});
    sched.run();
    answer.receive([&](const spec_report& r) { out = r; }, [&](caf::error&) { BOOST_FAIL("no report"); });
    return out;
  }
};

struct no_experts final : expert_compute {
  void run(int, const experts_args&) override { BOOST_ERROR("the stub model has no experts"); }
};

template <class State, class Actor> State& state_behind(const Actor& who) {
  auto* a = dynamic_cast<typename Actor::template stateful_pointer<State>>(caf::actor_cast<caf::abstract_actor*>(who));
  BOOST_REQUIRE(a);
  return state_of(a);
}

// What is logged while it lives.
class captured_log {
public:
  captured_log() {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("captured", std::make_shared<spdlog::sinks::ostream_sink_st>(out_)));
  }
  ~captured_log() { spdlog::set_default_logger(before_); }
  captured_log(const captured_log&) = delete;
  std::string text() const { return out_.str(); }
  std::size_t count(const std::string& what) const {
    std::size_t n = 0;
    const std::string all = text();
    for (std::size_t at = all.find(what); at != all.npos; at = all.find(what, at + 1))
      ++n;
    return n;
  }

private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream out_;
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(verifier_messages, one_verifier)

BOOST_AUTO_TEST_CASE(a_load_is_answered_with_the_budget_of_the_rules) {
  launch(1);
  spec_load l = load_of(7, 0, 3, spec_survivals());
  l.ended = {{.rows = 8, .sequences = 3, .forward_ms = 11.2, .sampler_ms = 1.0}};
  for (int i = 0; i < 5; ++i, ++l.round)
    send(self, l);
  const auto got = plans(self);
  BOOST_REQUIRE(got.size() == 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    BOOST_TEST((got[i].round == 7 + i && got[i].sequences == 3));
    BOOST_TEST(got[i].total_q == (std::vector<std::int64_t>{16}), boost::test_tools::per_element());
  }
  const spec_report r = report();
  BOOST_REQUIRE(r.ranks.size() == 1u);
  BOOST_TEST((r.decisions == 5 && r.late == 0 && r.ranks[0].round == 11 && r.ranks[0].total_q == 16));
  BOOST_TEST(r.ranks[0].sampler_ms == 1.0);
  BOOST_TEST(r.ranks[0].times.back().ms == 16.5);
}

BOOST_AUTO_TEST_CASE(a_group_gets_one_decision_once_everybody_has_reported) {
  launch(2);
  send(self, load_of(1, 0, 3, spec_survivals()));
  BOOST_TEST(plans(self).size() == 1u); // of the only rank so far
  const std::vector<float> poor{.01f};
  send(other, load_of(4, 1, 2, poor));
  BOOST_TEST(plans(other).empty());
  send(self, load_of(2, 0, 3, spec_survivals()));
  const auto mine = plans(self), theirs = plans(other);
  BOOST_REQUIRE((mine.size() == 1 && theirs.size() == 1));
  BOOST_TEST((mine[0].round == 2 && mine[0].sequences == 3 && theirs[0].round == 4 && theirs[0].sequences == 2));
  BOOST_TEST(mine[0].total_q == theirs[0].total_q, boost::test_tools::per_element());
  BOOST_TEST(mine[0].total_q[1] == 3); // its poor draft costs nothing: the other takes longer
  // The other one is late: its budget stays, this one goes on.
  send(self, load_of(3, 0, 3, spec_survivals()));
  BOOST_TEST(plans(self).empty());
  send(self, load_of(4, 0, 3, spec_survivals()));
  BOOST_TEST(plans(self).size() == 1u);
  BOOST_TEST(report().late == 1u);
}

// What it was told of has no drafts; the next step may have some, and verifies none if it follows this.
BOOST_AUTO_TEST_CASE(a_load_without_drafts_has_no_answer) {
  launch(2);
  send(self, load_of(1, 0, 3, spec_survivals()));
  send(other, load_of(1, 1, 2, {}));
  send(self, load_of(2, 0, 3, spec_survivals()));
  BOOST_TEST(report().decisions == 2u);
  BOOST_TEST(plans(self).size() == 2u);
  BOOST_TEST(plans(other).empty());
}

BOOST_AUTO_TEST_CASE(outcomes_become_a_reliability_curve) {
  launch(1);
  spec_load l = load_of(1, 0, 2, {.5f});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  l.verified = std::string("\3\1", 2);
  l.accepted = std::string("\1\1", 2);
  l.confidences = pack_f32({.95f, .45f, nan, .85f});
  l.not_finite = 1;
  send(self, l);
  spec_report r = report();
  BOOST_TEST((r.drafts == 4 && r.accepted == 2 && r.not_finite == 1 && !r.useless));
  BOOST_TEST(r.tokens_per_step == 2.0);
  BOOST_REQUIRE(r.positions.size() == 3u);
  BOOST_TEST((r.positions[0].bin[9].drafts == 1 && r.positions[0].bin[8].accepted == 1));
  BOOST_TEST((r.positions[1].bin[4].drafts == 1 && r.positions[1].bin[4].accepted == 0));
  BOOST_TEST(r.positions[2].drafts() == 0u);
  BOOST_TEST(r.temperatures.size() == 3u);
  // Parts that do not fit together, and ranks that are not in the group.
  l.confidences = pack_f32({.5f});
  send(self, l);
  l.confidences = pack_f32({.95f, .45f, nan, .85f});
  l.accepted = "\1";
  send(self, l);
  l.accepted = std::string("\1\1", 2);
  l.rank = 1;
  send(self, l);
  BOOST_TEST(report().drafts == 4u);
  BOOST_TEST(plans(self).size() == 3u); // the last one had no answer
  for (int i = 0; i < 40; ++i) {
    l.rank = 0;
    l.sequences = -1; // nonsense does not end it
    l.kv_tokens = -5;
    l.ended = {{.rows = 1 << 30, .sequences = -7, .kv_tokens = -1, .forward_ms = nan, .sampler_ms = nan}};
    send(self, l);
  }
  BOOST_TEST(report().drafts == 164u);
}

BOOST_AUTO_TEST_CASE(what_came_of_the_last_steps_asks_for_no_budget) {
  launch(1);
  spec_load l;
  for (int i = 0; i < 5; ++i)
    l.ended.push_back({.rows = 8, .sequences = 3, .forward_ms = 11.2, .sampler_ms = 1.0});
  l.verified = "\3", l.accepted = "\2", l.confidences = pack_f32({.9f, .8f, .7f});
  send(self, l);
  const spec_report r = report();
  BOOST_TEST((r.decisions == 0 && r.drafts == 3 && r.accepted == 2));
  BOOST_REQUIRE(r.ranks.size() == 1u);
  BOOST_TEST((r.ranks[0].round == 0 && r.ranks[0].sampler_ms == 1.0)); // five steps are enough
  BOOST_TEST(plans(self).empty());
}

BOOST_AUTO_TEST_CASE(broken_confidences_and_a_useless_drafter_are_told_once_each) {
  const captured_log log;
  launch(1);
  spec_load l;
  l.verified = "\5", l.accepted = std::string(1, '\0'), l.confidences = pack_f32({.9f, .9f, .9f, .9f, .9f});
  const auto blocks = [&](int count) {
    for (int i = 0; i < count; ++i)
      send(self, l);
  };
  blocks(10);
  BOOST_TEST(log.text() == "");
  l.not_finite = 2;
  blocks(2);
  BOOST_TEST(log.count("event=confidences_not_finite") == 1u);
  BOOST_TEST(log.count("event=drafter_useless") == 0u);
  blocks(1);
  BOOST_TEST(log.count("event=drafter_useless") == 1u);
  l.accepted = "\1";
  blocks(1);
  BOOST_TEST(!report().useless);
  l.accepted = std::string(1, '\0');
  blocks(static_cast<int>(calibration::alarm_blocks));
  BOOST_TEST(report().useless);
  BOOST_TEST(log.count("event=confidences_not_finite") == 1u);
  BOOST_TEST(log.count("event=drafter_useless") == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verifier_outcomes)

// Steps end while no other is planned, in pairs, and last of all: nothing of them is lost.
BOOST_AUTO_TEST_CASE(the_reliability_curve_has_every_draft_that_the_engine_counted) {
  for (const bool async : {false, true})
    for (const bool varlen : {false, true}) {
      stub_process w;
      scheduler_limits limits;
      limits.max_num_seqs = 1;
      limits.max_num_batched_tokens = 64;
      limits.max_model_len = 600;
      limits.kv_blocks = 11;
      limits.nextn = 5;
      limits.async = async;
      limits.varlen = varlen;
      w.setup.speculation.curve = curve;
      w.launch(limits);
      w.engines[0]->model.right = .8;
      w.engines[0]->model.vary = true;
      for (int i = 0; i < 40; ++i)
        w.open("r" + std::to_string(i), stub_prompt(10 + i, i), endless(8));
      w.sched.run();
      const auto& e = w.parts.engines[0];
      const draft_counters counted = w.query<scheduler_report>(e.scheduler, scheduler_query{}).metrics.speculation;
      const auto known = w.query<spec_report>(e.verifier, spec_query{});
      BOOST_TEST(counted.accepted_tokens > 40u);
      BOOST_TEST(known.drafts == counted.draft_tokens);
      BOOST_TEST(known.accepted == counted.accepted_tokens);
      BOOST_REQUIRE(known.positions.size() == counted.accepted_at.size());
      for (std::size_t j = 0; j < known.positions.size(); ++j)
        BOOST_TEST(known.positions[j].accepted() == counted.accepted_at[j]);
      w.expect_quiet();
      w.finish();
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verifier_groups)

namespace {

// Compares the decode steps of one engine of a group with what the group's verifier gave them.
class advice_check {
public:
  advice_check(const started& parts, std::size_t engine)
      : scheduler_(state_behind<scheduler_state>(parts.engines[engine].scheduler)),
        group_(*state_behind<spec_verifier_state>(parts.engines[engine].verifier).group), rank_(engine) {}

  // After each message.
  void look() {
    const group_planner::rank_state& own = group_.ranks()[rank_];
    if (group_.decisions() != decisions_ && group_.advises(static_cast<std::uint32_t>(rank_)))
      decided_[own.last.round] = {own.last.round, own.last.sequences, own.total_q};
    decisions_ = group_.decisions();
    if (const std::uint64_t round = scheduler_.core->draft_round(); round != round_) { // a step was asked for
      round_ = round;
      in_time_ = scheduler_.advice.round + 1 == round;
    }
    if (scheduler_.steps_sent == sent_)
      return;
    sent_ = scheduler_.steps_sent;
    const auto& trips = scheduler_.trips;
    const step_plan& plan = *trips[(scheduler_.next_trip + trips.size() - 1) % trips.size()].plan;
    const auto d = decided_.find(round_ - 1);
    if (plan.kind != step_kind::decode || !in_time_ || d == decided_.end())
      return;
    const draft_advice& a = d->second;
    const auto sequences = std::ssize(plan.sequences);
    if (a.sequences != sequences)
      return;
    const std::int64_t most = sequences + std::ssize(scheduler_.core->planner().survivals());
    followed += std::ssize(plan.tokens) == std::min(a.total_rows, most);
    ++advised;
    cut += a.total_rows < most;
  }
  std::uint64_t followed = 0, advised = 0, cut = 0; // cut: fewer rows than there were drafts for

private:
  scheduler_state& scheduler_;
  const group_planner& group_;
  std::size_t rank_;
  std::map<std::uint64_t, draft_advice> decided_; // by round
  std::uint64_t decisions_ = 0, round_ = 0;
  std::size_t sent_ = 0;
  bool in_time_ = false;
};

} // namespace

// Engines that share experts wait for one another: they have one verifier, and each of its decisions divides one
// budget, the best one for the loads of both, among them.
BOOST_FIXTURE_TEST_CASE(engines_that_share_experts_share_one_budget, stub_process) {
  setup.exchange = std::make_shared<expert_group>();
  setup.experts = {std::make_shared<no_experts>(), std::make_shared<no_experts>()};
  setup.speculation.curve = {{1, 10.0}, {2, 11.0}, {4, 14.0}, {8, 22.0}, {16, 40.0}, {24, 60.0}}; // rows cost something
  scheduler_limits limits;
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 64;
  limits.max_model_len = 600;
  limits.kv_blocks = 41;
  limits.nextn = 3;
  limits.async = false; // the stub needs no time for a step, advice for two steps out would come too late
  launch(limits, 2);
  BOOST_REQUIRE((parts.engines[0].verifier == parts.engines[1].verifier));
  for (const auto& e : engines) {
    e->model.right = .7;
    e->model.vary = true;
  }
  std::vector<std::string> ids;
  for (int i = 0; i < 10; ++i) { // some much longer than others, so that the engines' loads differ
    ids.push_back("r" + std::to_string(i));
    open(ids.back(), stub_prompt(20, i), endless(i % 4 == 0 ? 150 : 30));
  }
  const group_planner& group = *state_behind<spec_verifier_state>(parts.engines[0].verifier).group;
  BOOST_REQUIRE(group.ranks().size() == 2u);
  advice_check advice[] = {{parts, 0}, {parts, 1}};
  std::uint64_t seen = 0, checked = 0, uneven = 0;
  std::mt19937_64 random(1);
  for (bool more = true; more;) {
    if (!sched.jobs.empty())
      std::swap(sched.jobs.front(), sched.jobs[random() % sched.jobs.size()]);
    more = turn(1);
    for (advice_check& a : advice)
      a.look();
    if (group.decisions() == seen)
      continue;
    BOOST_REQUIRE(group.decisions() == seen + 1); // for both at once
    seen = group.decisions();
    if (std::ranges::any_of(group.ranks(), [](const auto& r) { return r.missed > 0; }))
      continue; // one of them is idle or late
    std::vector<rank_load> loads;
    std::vector<std::int64_t> rows;
    const std::vector<timed_size> times[] = {group.times(0), group.times(1)};
    std::int64_t most = 0;
    for (const auto& r : group.ranks()) {
      loads.push_back({r.last.sequences, r.last.survivals, times[loads.size()]});
      rows.push_back(r.total_q);
      BOOST_TEST((r.total_q >= r.last.sequences && r.total_q <= (1 + limits.nextn) * r.last.sequences));
      most += r.last.sequences + std::ssize(r.last.survivals);
    }
    const group_budget budget = best_group_budget(loads);
    BOOST_TEST(rows == budget.rows, boost::test_tools::per_element());
    BOOST_TEST(rows[0] + rows[1] <= most);
    ++checked;
    uneven += rows[0] != rows[1];
  }
  BOOST_TEST(checked > 10u);
  BOOST_TEST(uneven > 0u);
  for (const std::string& id : ids)
    BOOST_REQUIRE(results[id].size() == 1u);
  const auto report = query<spec_report>(parts.engines[1].verifier, spec_query{});
  BOOST_TEST(report.decisions == seen);
  BOOST_TEST(report.drafts > 0u);
  for (std::size_t i = 0; i < 2; ++i) {
    const draft_counters c = query<scheduler_report>(parts.engines[i].scheduler, scheduler_query{}).metrics.speculation;
    BOOST_TEST(c.draft_tokens > 0u);
    BOOST_TEST_MESSAGE("engine " << i << ": " << advice[i].followed << " of " << advice[i].advised
                                 << " steps followed their advice, " << advice[i].cut << " of fewer rows, counted "
                                 << c.advised_steps << ", stale " << c.stale_advice);
    BOOST_TEST(advice[i].followed == advice[i].advised);
    BOOST_TEST(c.advised_steps >= advice[i].followed);
  }
  BOOST_TEST(advice[0].advised + advice[1].advised > 10u);
  BOOST_TEST(advice[0].cut + advice[1].cut > 5u);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verifier_death)

// Before the third decode step of an engine that has heard of the new verifier, a budget of that one is there
// (speculation.md §13.12), and budgets are followed again.
BOOST_FIXTURE_TEST_CASE(a_group_has_budgets_again_within_two_rounds, stub_process) {
  setup.exchange = std::make_shared<expert_group>();
  setup.experts = {std::make_shared<no_experts>(), std::make_shared<no_experts>()};
  setup.speculation.curve = curve;
  scheduler_limits limits;
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 64;
  limits.max_model_len = 600;
  limits.kv_blocks = 41;
  limits.nextn = 3;
  limits.async = false; // the stub needs no time for a step, advice for two steps out would come too late
  launch(limits, 2);
  for (const auto& e : engines)
    e->model.right = 1;
  for (int i = 0; i < 4; ++i)
    open("r" + std::to_string(i), stub_prompt(20, i), endless(500));
  const auto scheduler = [&](std::size_t engine) -> scheduler_state& {
    return state_behind<scheduler_state>(parts.engines[engine].scheduler);
  };
  const auto advised = [&](std::size_t engine) { return scheduler(engine).metrics.speculation.advised_steps; };
  while (advised(0) + advised(1) < 4)
    BOOST_REQUIRE(turn(1));
  for (const std::size_t at : {0u, 7u, 19u}) { // messages before it dies
    BOOST_REQUIRE(turn(at));
    const spec_verifier_actor dead = scheduler(0).setup.verifier;
    caf::anon_send_exit(dead, caf::exit_reason::kill);
    std::optional<std::uint64_t> heard[2]; // in which round
    std::uint64_t before = 0;              // steps that followed advice by then
    for (std::size_t told = 0; told < 2 || advised(0) + advised(1) == before;) {
      BOOST_REQUIRE(turn(1));
      told = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        const scheduler_state& s = scheduler(i);
        const std::uint64_t round = s.core->draft_round();
        if (!heard[i] && s.setup.verifier != dead) {
          heard[i] = round;
          before = advised(0) + advised(1);
        }
        const bool has_one = heard[i] && s.advice.round > *heard[i];
        BOOST_REQUIRE_MESSAGE(has_one || !heard[i] || round <= *heard[i] + 2,
                              "engine " << i << " in round " << round << ", heard in " << *heard[i]);
        told += has_one;
      }
    }
  }
  for (int i = 0; i < 4; ++i)
    abort("r" + std::to_string(i));
  sched.run();
  expect_quiet();
  finish();
}

// Killed once the engine has handled `at` messages: no token changes, another one takes its place, and after too many
// deaths the engine goes on without any.
BOOST_AUTO_TEST_CASE(a_dead_verifier_is_replaced_and_no_token_changes) {
  std::uint64_t decisions = 0; // of verifiers that took the place of dead ones
  for (const std::size_t at : {0u, 3u, 10u, 25u, 40u}) {
    stub_process w;
    w.setup.speculation.curve = curve;
    scheduler_limits limits;
    limits.max_num_seqs = 4;
    limits.max_num_batched_tokens = 64;
    limits.max_model_len = 600;
    limits.kv_blocks = 21;
    limits.nextn = 3;
    w.launch(limits, 2);
    for (const auto& e : w.engines)
      e->model.right = 1;
    const std::vector<std::int32_t> prompt = stub_prompt(40, 0);
    const sampling_params p = endless(60);
    std::vector<std::string> ids;
    spec_verifier_actor before = w.parts.engines[0].verifier;
    for (int death = 0; death < 5; ++death) {
      for (const char* id : {"a", "b", "c"}) {
        ids.push_back(id + std::to_string(death));
        w.open(ids.back(), prompt, p);
      }
      w.turn(at);
      caf::anon_send_exit(before, caf::exit_reason::kill);
      w.turn(20);
      const started now = w.query<started>(w.root, start{});           // when the requests have ended
      BOOST_TEST((now.engines[0].verifier == before) == (death >= 3)); // three restarts
      BOOST_TEST((now.engines[1].verifier == w.parts.engines[1].verifier));
      before = now.engines[0].verifier;
      if (death < 3) {
        const auto report = w.query<spec_report>(before, spec_query{});
        BOOST_TEST(report.ranks.size() == 1u);
        decisions += report.decisions;
      }
    }
    w.sched.run();
    for (const std::string& id : ids) {
      sequence_spec spec;
      spec.params = p;
      spec.prompt_tokens = 40;
      spec.seq_seed = branch_seed(derived_seed(0, id), 0);
      spec.eos_ids = {test_vocabulary()->eos_id()};
      BOOST_REQUIRE(w.results[id].size() == 1u);
      BOOST_TEST(w.results[id][0].token_ids == stub_alone(spec, prompt, test_vocabulary()->vocab_size(), 600).output,
                 boost::test_tools::per_element());
    }
    w.expect_quiet();
    before = nullptr;
    w.finish();
  }
  BOOST_TEST(decisions > 0u);
}

BOOST_AUTO_TEST_SUITE_END()
