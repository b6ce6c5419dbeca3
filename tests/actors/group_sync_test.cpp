// Steps of data-parallel engines under one coordinator, on a hand-driven scheduler with the stub model.
#include "runtime/request/seeds.hpp"
#include "tests/support/stub_process.hpp"
#include <algorithm>

using namespace troupe;

namespace {

constexpr std::int32_t most_tokens = 600;

scheduler_limits limits_of(bool async = true) {
  scheduler_limits l;
  l.max_num_seqs = 4;
  l.max_num_batched_tokens = 64;
  l.max_model_len = most_tokens;
  l.kv_blocks = 21;
  l.async = async;
  return l;
}

// Several engines in one group, by hand.
struct group_process : stub_process {
  std::vector<std::pair<std::vector<std::int32_t>, std::int32_t>> work; // prompt and max_tokens, by request

  void launch_group(std::size_t count, const scheduler_limits& limits = limits_of(), std::int32_t decode_run = 1) {
    setup.group_sync = step_group_settings{.rule = rule_of(limits), .decode_run = decode_run};
    launch(limits, count);
  }
  void ask_for(std::int32_t prompt, std::int32_t tokens) {
    const auto n = static_cast<std::int32_t>(work.size());
    work.emplace_back(stub_prompt(prompt, n), tokens);
    open("r" + std::to_string(n), work.back().first, endless(tokens));
  }
  // Two engines with four requests of different lengths.
  void launch_four() {
    launch_group(2);
    for (int i = 0; i < 4; ++i)
      ask_for(40 + 50 * i, 30);
  }
  const generation_result& result(std::size_t n) { return results["r" + std::to_string(n)].at(0); }
  std::vector<std::int32_t> expected(std::size_t n) const {
    sequence_spec spec;
    spec.params = endless(work[n].second);
    spec.prompt_tokens = static_cast<std::int32_t>(work[n].first.size());
    spec.seq_seed = branch_seed(derived_seed(0, "r" + std::to_string(n)), 0);
    spec.eos_ids = {test_vocabulary()->eos_id()};
    return stub_alone(spec, work[n].first, test_vocabulary()->vocab_size(), most_tokens).output;
  }
  void expect_all() {
    for (std::size_t n = 0; n < work.size(); ++n)
      BOOST_TEST(result(n).token_ids == expected(n), boost::test_tools::per_element());
  }
  // Kinds by step number, of all engines: they have to agree.
  std::map<std::uint64_t, step_kind> kinds() const {
    std::map<std::uint64_t, step_kind> all;
    for (const auto& e : engines)
      for (const auto& [number, kind] : e->kinds)
        BOOST_TEST((all.emplace(number, kind).first->second == kind), "step " << number);
    return all;
  }
  const step_group& group() {
    auto* g = dynamic_cast<group_sync_actor::stateful_pointer<group_sync_state>>(
        caf::actor_cast<caf::abstract_actor*>(parts.group_sync));
    BOOST_REQUIRE(g);
    return *state_of(g).group;
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(group_sync_protocol, group_process)

BOOST_AUTO_TEST_CASE(c08_engines_take_steps_of_one_kind) {
  for (const bool async : {true, false})
    for (const std::int32_t decode_run : {1, 8}) {
      group_process w;
      w.launch_group(3, limits_of(async), decode_run);
      for (int i = 0; i < 12; ++i) {
        w.ask_for(20 + 37 * i % 150, 5 + 11 * i % 40);
        w.turn(static_cast<std::size_t>(40 * i));
      }
      w.sched.run();
      w.expect_all();
      std::size_t plans = 0;
      for (const auto& e : w.engines) {
        BOOST_TEST(e->kinds.size() > 20u);
        plans += e->kinds.size();
      }
      const auto kinds = w.kinds();
      BOOST_TEST(kinds.size() < plans); // they did run side by side
      BOOST_TEST(std::ranges::count(kinds, step_kind::prefill, [](const auto& k) { return k.second; }) > 3);
      BOOST_TEST(w.group().idle());
      w.expect_quiet();
      w.finish();
    }
}

BOOST_AUTO_TEST_CASE(c22_an_engine_without_work_holds_up_nobody_and_computes_nothing) {
  launch_group(3);
  ask_for(200, 50);
  sched.run();
  expect_all();
  const std::size_t busy =
      static_cast<std::size_t>(std::ranges::count_if(engines, [](const auto& e) { return e->steps > 0; }));
  BOOST_TEST(busy == 1u); // nothing stands in for rows
  for (const auto& e : engines)
    BOOST_TEST((e->steps == 0 || e->steps == 4 + 49));
  // An idle group: no step, no timer, no message.
  BOOST_TEST(group().idle());
  const std::uint64_t steps = group().next_step();
  sched.advance_time(setup.step_limit);
  sched.run();
  const std::size_t later = [&] {
    sched.advance_time(10 * setup.step_limit);
    return sched.run();
  }();
  BOOST_TEST(later == 0u);
  BOOST_TEST(group().next_step() == steps);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c09_prompts_of_one_engine_leave_decode_steps_to_the_others) {
  launch_group(2);
  ask_for(10, 200);
  turn(200);
  for (int i = 0; i < 8; ++i)
    ask_for(400, 2);
  sched.run();
  expect_all();
  const auto kinds = this->kinds();
  const auto decodes = [&](const auto& e) { return e->kinds.size() > 150; };
  BOOST_REQUIRE(std::ranges::any_of(engines, decodes));
  std::uint64_t last = 0;
  for (const auto& e : engines)
    if (!e->kinds.empty())
      last = last == 0 ? e->kinds.back().first : std::min(last, e->kinds.back().first);
  int in_a_row = 0, prefills = 0;
  for (const auto& [number, kind] : kinds) {
    in_a_row = kind == step_kind::prefill ? in_a_row + 1 : 0;
    prefills += kind == step_kind::prefill;
    if (number > 3 && number < last)
      BOOST_TEST(in_a_row <= 1, "step " << number);
  }
  BOOST_TEST(prefills > 20);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(d18_an_engine_whose_step_does_not_end_is_left_behind) {
  setup.step_limit = std::chrono::seconds(20);
  launch_group(3);
  for (int i = 0; i < 6; ++i)
    ask_for(30, 300);
  turn(400);
  engines[1]->hold = true;
  for (int seconds = 0; seconds < 60; ++seconds) {
    for (int i = 0; i < 300 && !sched.jobs.empty();
         ++i) { // the executor looks at its device for ever: others in between
      std::rotate(sched.jobs.begin(), sched.jobs.begin() + 1, sched.jobs.end());
      sched.try_run_once();
    }
    sched.advance_time(std::chrono::seconds(1));
  }
  engines[1]->hold = false;
  sched.run();
  int lost = 0;
  for (std::size_t n = 0; n < work.size(); ++n) {
    if (!result(n).failure) {
      BOOST_TEST(result(n).token_ids == expected(n), boost::test_tools::per_element());
      continue;
    }
    ++lost;
    BOOST_TEST(result(n).failure->code == "engine_lost");
    BOOST_TEST(result(n).failure->message.find("engine 1 cannot go on") != std::string::npos);
  }
  BOOST_TEST(lost == 2);
  BOOST_TEST(group().members().size() == 2u);
  finish();
}

BOOST_AUTO_TEST_CASE(c19_a_scheduler_killed_at_any_message_stops_no_other_engine) {
  for (std::size_t when = 0; when < 700; when += 17) {
    group_process w;
    w.launch_four();
    w.turn(when);
    caf::anon_send_exit(w.parts.engines[1].scheduler, caf::exit_reason::kill);
    w.sched.run();
    for (std::size_t n = 0; n < w.work.size(); ++n) {
      BOOST_REQUIRE(w.results["r" + std::to_string(n)].size() == 1u);
      if (w.result(n).failure)
        BOOST_TEST(w.result(n).failure->code == "engine_lost");
      else
        BOOST_TEST(w.result(n).token_ids == w.expected(n), boost::test_tools::per_element());
    }
    const auto ended_well = [&](int n) { return !w.result(static_cast<std::size_t>(n)).failure; };
    const std::array all{0, 1, 2, 3};
    BOOST_TEST(std::ranges::count_if(all, ended_well) >= 2); // those of the other engine
    w.ask_for(20, 5);
    w.sched.run();
    BOOST_TEST(w.result(4).token_ids == w.expected(4), boost::test_tools::per_element());
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(c19_a_coordinator_killed_at_any_message_is_replaced) {
  for (std::size_t when = 0; when < 700; when += 17) {
    group_process w;
    w.launch_four();
    w.turn(when);
    caf::anon_send_exit(w.parts.group_sync, caf::exit_reason::kill);
    w.sched.run();
    w.expect_all();
    w.expect_quiet();
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(c19_an_engine_without_parts_leaves_the_group) {
  launch_four();
  turn(500);
  caf::anon_send_exit(parts.engines[0].executor, caf::exit_reason::kill);
  sched.run();
  BOOST_TEST((group().members() == std::vector{rank_id{1}}));
  ask_for(20, 5);
  sched.run();
  BOOST_TEST(result(4).token_ids == expected(4), boost::test_tools::per_element());
  finish();
}

BOOST_AUTO_TEST_SUITE_END()
