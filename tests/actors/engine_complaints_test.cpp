// What users of other engines complain about (engine.md §19), through the actors on the stub model.
#include "actors/kv_manager.hpp"
#include "runtime/request/seeds.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/stub_process.hpp"
#include <algorithm>
#include <fstream>
#include <unistd.h>

using namespace troupe;

namespace {

constexpr std::int32_t most_tokens = 1400;

// Blocks beside the dummy.
scheduler_limits limits_of(std::int32_t seqs, std::int32_t blocks, bool async = true, bool prefix_cache = true) {
  scheduler_limits l;
  l.max_num_seqs = seqs;
  l.max_num_batched_tokens = 64;
  l.max_model_len = most_tokens;
  l.kv_blocks = 1 + blocks;
  l.async = async;
  l.prefix_cache = prefix_cache;
  return l;
}

std::vector<std::int32_t> alone(const std::string& id, const std::vector<std::int32_t>& prompt,
                                const sampling_params& params, std::uint32_t branch = 0) {
  sequence_spec spec;
  spec.params = params;
  spec.prompt_tokens = static_cast<std::int32_t>(prompt.size());
  spec.seq_seed = branch_seed(params.seq_seed.value_or(derived_seed(0, id)), branch);
  spec.eos_ids = {test_vocabulary()->eos_id()};
  return stub_alone(spec, prompt, test_vocabulary()->vocab_size(), most_tokens).output;
}

kv_statistics cache_of(const started& parts) {
  auto* m = dynamic_cast<kv_manager_actor::stateful_pointer<kv_manager_state>>(
      caf::actor_cast<caf::abstract_actor*>(parts.engines[0].kv));
  return state_of(m).cache->statistics();
}

std::size_t resident_kib() {
  std::ifstream f("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  f >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(engine_complaints, stub_process)

BOOST_AUTO_TEST_CASE(c01_a_request_that_can_never_fit_is_refused_and_blocks_nobody) {
  launch(limits_of(2, 8));
  open("nine blocks", stub_prompt(1030, 1), endless(20));
  for (int i = 0; i < 4; ++i)
    open("small" + std::to_string(i), stub_prompt(200 + i, i), endless(30));
  sched.run();
  BOOST_REQUIRE(results["nine blocks"].size() == 1u);
  BOOST_TEST(results["nine blocks"][0].failure->code == "no_space");
  BOOST_TEST(results["nine blocks"][0].failure->message.find("kv_blocks") != std::string::npos);
  for (int i = 0; i < 4; ++i) {
    const std::string id = "small" + std::to_string(i);
    BOOST_TEST(results[id].at(0).token_ids == alone(id, stub_prompt(200 + i, i), endless(30)),
               boost::test_tools::per_element());
  }
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c03_what_was_streamed_stays_when_a_request_loses_its_cache) {
  for (const bool async : {true, false})
    for (const bool prefix_cache : {true, false}) {
      stub_process w;
      w.launch(limits_of(6, 9, async, prefix_cache));
      for (int i = 0; i < 6; ++i)
        w.open("r" + std::to_string(i), stub_prompt(60 + 20 * i, i), endless(200));
      w.sched.run();
      std::int64_t preemptions = 0;
      for (int i = 0; i < 6; ++i) {
        const std::string id = "r" + std::to_string(i);
        const auto& r = w.results[id].at(0);
        BOOST_TEST(!r.failure.has_value());
        BOOST_TEST(r.token_ids == alone(id, stub_prompt(60 + 20 * i, i), endless(200)),
                   boost::test_tools::per_element());
        BOOST_TEST(r.logprobs.size() == 200u);
        BOOST_TEST((w.streamed[{id, 0}]) == r.text);
        preemptions += r.usage.preemptions;
      }
      BOOST_TEST(preemptions > 0);
      w.expect_quiet();
      w.finish();
    }
}

BOOST_AUTO_TEST_CASE(c07_what_an_aborted_request_held_is_free_within_two_steps) {
  launch(limits_of(4, 20, true, false));
  open("gone", stub_prompt(500, 1), endless(600));
  open("stays", stub_prompt(20, 2), endless(600));
  while (engines[0]->steps < 40)
    BOOST_REQUIRE(turn(1));
  BOOST_TEST(cache_of(parts).used_blocks == 5 + 1); // of some 530 and some 50 positions
  abort("gone");
  while (results["gone"].empty()) // the engine is told in the same moment
    BOOST_REQUIRE(turn(1));
  const int before = engines[0]->steps;
  while (cache_of(parts).used_blocks > 1 && engines[0]->steps <= before + 2)
    BOOST_REQUIRE(turn(1));
  BOOST_TEST(cache_of(parts).used_blocks == 1);
  BOOST_TEST(engines[0]->steps <= before + 2);
  abort("stays");
  sched.run();
  BOOST_TEST(results["gone"].at(0).finish_reason == "abort");
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c13_branches_share_a_prompt_and_differ) {
  launch(limits_of(8, 40));
  auto p = endless(50);
  p.n = 4;
  p.seq_seed = 42;
  const auto prompt = stub_prompt(300, 3);
  open("four", prompt, p);
  sched.run();
  BOOST_REQUIRE(results["four"].size() == 4u);
  for (const auto& r : results["four"])
    BOOST_TEST(r.token_ids == alone("four", prompt, p, static_cast<std::uint32_t>(r.index)),
               boost::test_tools::per_element());
  BOOST_TEST(results["four"][0].token_ids != results["four"][1].token_ids, boost::test_tools::per_element());
  BOOST_TEST(engines[0]->model.rows == 300 + 3 + 4 * 49); // the prompt once, its last row for each branch, outputs
  BOOST_TEST(cache_of(parts).forks == 3u);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c15_a_later_request_starts_where_an_earlier_one_left_the_cache) {
  launch(limits_of(4, 40));
  const auto prompt = stub_prompt(300, 4);
  open("cold", prompt, endless(20));
  sched.run();
  const auto rows = engines[0]->model.rows;
  open("warm", prompt, endless(20));
  sched.run();
  BOOST_TEST(results["cold"].at(0).cached_tokens == 0);
  BOOST_TEST(results["warm"].at(0).cached_tokens == 256);
  BOOST_TEST(engines[0]->model.rows - rows < 44 + 20 + 2);
  BOOST_TEST(results["warm"][0].token_ids == alone("warm", prompt, endless(20)), boost::test_tools::per_element());
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c15_tenants_do_not_find_each_others_prompts) {
  launch(limits_of(4, 40));
  const auto prompt = stub_prompt(300, 4);
  for (const auto& [id, salt] : {std::pair("a", "x"), std::pair("b", "y"), std::pair("c", "x")}) {
    open(id, prompt, endless(5), true, salt);
    sched.run();
  }
  BOOST_TEST(results["a"].at(0).cached_tokens == 0);
  BOOST_TEST(results["b"].at(0).cached_tokens == 0);
  BOOST_TEST(results["c"].at(0).cached_tokens == 256);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c16_a_lower_number_is_served_first) {
  launch(limits_of(1, 12));
  open("runs", stub_prompt(20, 1), endless(30));
  turn(60);
  open("late", stub_prompt(20, 2), endless(3), true, "", 1);
  open("first", stub_prompt(20, 3), endless(3), true, "", -1);
  std::vector<std::string> ends;
  while (turn(1))
    for (const char* id : {"first", "late"})
      if (!results[id].empty() && std::find(ends.begin(), ends.end(), id) == ends.end())
        ends.emplace_back(id);
  BOOST_TEST(ends == (std::vector<std::string>{"first", "late"}), boost::test_tools::per_element());
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(c17_memory_stays_flat) {
  launch(limits_of(8, 24));
  const auto round = [&] {
    for (int i = 0; i < 200; ++i)
      open("r" + std::to_string(i), stub_prompt(10 + i % 150, i % 7), endless(1 + i % 5));
    sched.run();
    for (int i = 0; i < 200; ++i)
      BOOST_REQUIRE(results["r" + std::to_string(i)].size() == 1u);
    results.clear(), streamed.clear(), late_events.clear();
    sched.advance_time(std::chrono::seconds(60)); // time limits of requests that were answered
    sched.run();
  };
  for (int i = 0; i < 10; ++i)
    round();
  const std::size_t before = resident_kib();
  for (int i = 0; i < 20; ++i)
    round();
  const std::size_t after = resident_kib();
  // The sanitizers keep freed memory, and shadows of what was touched.
  const std::size_t more = test::any_sanitizer ? 512 * 1024 : 1024;
  BOOST_TEST(after < before + more, before << " KiB, after 4000 requests more " << after);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(a_part_killed_at_any_message_ends_every_request_once) {
  for (std::size_t when = 0; when < 120; when += 3)
    for (const bool kv : {true, false}) {
      stub_process w;
      w.launch(limits_of(3, 6));
      for (int i = 0; i < 4; ++i)
        w.open("r" + std::to_string(i), stub_prompt(100 + 30 * i, i), endless(60));
      w.turn(when);
      if (kv)
        caf::anon_send_exit(w.parts.engines[0].kv, caf::exit_reason::kill);
      else
        caf::anon_send_exit(w.parts.engines[0].executor, caf::exit_reason::kill);
      w.sched.run();
      for (int i = 0; i < 4; ++i) {
        const auto& list = w.results["r" + std::to_string(i)];
        BOOST_REQUIRE(list.size() == 1u);
        BOOST_TEST(list[0].failure->code == "engine_lost");
      }
      BOOST_TEST(w.live->size() == 0u);
      w.finish();
    }
}

BOOST_AUTO_TEST_SUITE_END()
