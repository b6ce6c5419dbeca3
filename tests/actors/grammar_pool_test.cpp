// Requests with constraints through the actors, message by message: compiling beside the steps, one compilation for
// equal constraints, aborts, time limits, and the loss of what compiles.
#include "actors/grammar_pool.hpp"
#include "actors/processor_time.hpp"
#include "runtime/request/seeds.hpp"
#include "tests/support/stub_process.hpp"
#include <regex>

using namespace troupe;

namespace {

scheduler_limits limits_of(std::int32_t seqs = 8, std::int32_t nextn = 0) {
  scheduler_limits l;
  l.max_num_seqs = seqs;
  l.max_num_batched_tokens = 64;
  l.max_model_len = 400;
  l.kv_blocks = 65;
  l.async = true;
  l.nextn = nextn;
  return l;
}

sampling_params within(const std::string& pattern, std::int32_t max_tokens = 40) {
  sampling_params p;
  p.max_tokens = max_tokens;
  p.so_args = structured_output_args{.schema_type = "regex", .schema = pattern};
  return p;
}

std::vector<std::int32_t> alone(const std::string& id, const std::vector<std::int32_t>& prompt,
                                const sampling_params& params, std::uint32_t branch = 0) {
  static const auto vocabulary = token_vocabulary::of(*test_vocabulary(), test_vocabulary()->vocab_size());
  sequence_spec spec;
  spec.params = params;
  spec.prompt_tokens = static_cast<std::int32_t>(prompt.size());
  spec.seq_seed = branch_seed(derived_seed(0, id), branch);
  spec.eos_ids = {test_vocabulary()->eos_id()};
  const sequence_constraint c{compile_constraint(constraint_of(*params.so_args), vocabulary).value(),
                              {params.so_args->trigger_token_ids, params.so_args->bound_token_id}};
  return stub_alone(spec, prompt, test_vocabulary()->vocab_size(), 400, &c).output;
}

struct world : stub_process {
  grammar_pool_actor pool() { return query<started>(root, start{}).grammars; }
  grammar_report report() { return query<grammar_report>(pool(), grammar_query{}); }
  const generation_result& only(const std::string& id) {
    BOOST_REQUIRE_MESSAGE(results[id].size() == 1u, id << " ended " << results[id].size() << " times");
    return results[id][0];
  }
  void expect_nobody_waits() {
    expect_quiet();
    if (const auto p = pool())
      BOOST_TEST(query<grammar_report>(p, grammar_query{}).waiting == 0u);
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(grammar_pools, world)

BOOST_AUTO_TEST_CASE(a_constrained_request_runs_through_all_actors) {
  for (const std::int32_t nextn : {0, 5}) {
    world w;
    w.launch(limits_of(8, nextn));
    w.open("word", stub_prompt(20, 1), within("[a-z]{3,9}"));
    w.open("free", stub_prompt(20, 2), endless(30));
    auto four = within("[A-Z][a-z]{2,30}");
    four.n = 4;
    w.open("four", stub_prompt(30, 3), four);
    w.sched.run();
    BOOST_TEST(w.only("word").finish_reason == "stop");
    BOOST_TEST(std::regex_match(w.only("word").text, std::regex("[a-z]{3,9}")), w.only("word").text);
    BOOST_TEST(w.only("word").token_ids == alone("word", stub_prompt(20, 1), within("[a-z]{3,9}")),
               boost::test_tools::per_element());
    BOOST_TEST(w.only("free").token_ids.size() == 30u);
    BOOST_REQUIRE(w.results["four"].size() == 4u);
    for (const auto& r : w.results["four"])
      BOOST_TEST(r.token_ids == alone("four", stub_prompt(30, 3), four, static_cast<std::uint32_t>(r.index)),
                 boost::test_tools::per_element());
    w.expect_nobody_waits();
    w.finish();
  }
}

// Masks that are more work than a step has for them are made beside the steps; the scheduler hears of it by a message.
BOOST_AUTO_TEST_CASE(late_masks_change_no_token) {
  for (const std::int32_t nextn : {0, 5}) {
    world w;
    auto l = limits_of(8, nextn);
    l.mask_work = 1;
    w.launch(l);
    const auto text = within("([a-m]{1,6}, ){1,9}[n-z0-9]{2,20}");
    for (int i = 0; i < 6; ++i)
      w.open("r" + std::to_string(i), stub_prompt(20 + i, i), text);
    w.open("free", stub_prompt(20, 2), endless(30));
    w.sched.run();
    for (int i = 0; i < 6; ++i) {
      const std::string id = "r" + std::to_string(i);
      BOOST_TEST(w.only(id).token_ids == alone(id, stub_prompt(20 + i, i), text), boost::test_tools::per_element());
    }
    BOOST_TEST(w.only("free").token_ids.size() == 30u);
    const mask_counters masks =
        w.query<scheduler_report>(w.parts.engines[0].scheduler, scheduler_query{}).metrics.masks;
    BOOST_TEST(masks.late > 6u);
    BOOST_TEST(masks.fill_time.count() > masks.late);
    const grammar_report g = w.report();
    BOOST_TEST(g.compiled == 1u);
    BOOST_TEST(g.compile_time.count() == 1u);
    BOOST_TEST(g.waiting == 0u);
    w.expect_nobody_waits();
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(equal_constraints_that_are_wanted_at_once_are_compiled_once) {
  launch(limits_of());
  for (int i = 0; i < 1000; ++i)
    open("r" + std::to_string(i), stub_prompt(5, i), within("(ab|cd){1,4}", 3));
  sched.run();
  for (int i = 0; i < 1000; ++i)
    BOOST_TEST(!only("r" + std::to_string(i)).failure);
  BOOST_TEST(report().compiled == 1u);
  open("later", stub_prompt(5, 1), within("(ab|cd){1,4}", 3));
  sched.run();
  BOOST_TEST(report().compiled == 1u);
  BOOST_TEST(report().hits == 1u);
  BOOST_TEST(report().kept == 1u);
  open("another tenant", stub_prompt(5, 1), within("(ab|cd){1,4}", 3), true, "salt");
  sched.run();
  BOOST_TEST(report().compiled == 2u);
  expect_nobody_waits();
  finish();
}

BOOST_AUTO_TEST_CASE(a_refused_constraint_ends_its_request_with_code_and_reason) {
  launch(limits_of());
  auto twice = within("(a");
  twice.n = 2;
  open("bad", stub_prompt(5, 1), twice);
  open("good", stub_prompt(5, 2), within("[ab]{2}"));
  open("bad again", stub_prompt(5, 3), within("(a"));
  sched.run();
  BOOST_REQUIRE(results["bad"].size() == 2u);
  for (const auto& r : results["bad"]) {
    BOOST_TEST(r.finish_reason == "error");
    BOOST_TEST(r.failure->code == "so_syntax");
    BOOST_TEST(r.failure->message.starts_with("so_args.schema: "), r.failure->message);
  }
  BOOST_TEST(only("bad again").failure->message == results["bad"][0].failure->message);
  BOOST_TEST(only("good").finish_reason == "stop");
  BOOST_TEST(report().refused == 1u);
  expect_nobody_waits();
  finish();
}

// While a constraint waits for a compiler everybody else goes on, and its own request holds nothing of the engine.
BOOST_AUTO_TEST_CASE(others_do_not_wait_for_a_compilation_and_its_time_is_limited) {
  setup.grammars.compilers = 0; // nothing is ever compiled
  launch(limits_of(1));
  open("waits", stub_prompt(5, 1), within("a"));
  open("free", stub_prompt(5, 2), endless(20));
  sched.run();
  BOOST_TEST(only("free").token_ids.size() == 20u);
  BOOST_TEST(results["waits"].empty());
  BOOST_TEST(report().waiting == 1u);
  BOOST_TEST(query<scheduler_report>(parts.engines[0].scheduler, scheduler_query{}).live == 0u);
  sched.advance_time(std::chrono::seconds(19));
  sched.run();
  BOOST_TEST(results["waits"].empty());
  sched.advance_time(std::chrono::seconds(2));
  sched.run();
  BOOST_TEST(only("waits").failure->code == "so_timeout");
  BOOST_TEST(only("waits").failure->message.find("20000 ms") != std::string::npos, only("waits").failure->message);
  BOOST_TEST(report().given_up == 1u);
  BOOST_TEST(report().queued == 0u);
  expect_nobody_waits();
  finish();
}

BOOST_AUTO_TEST_CASE(an_abort_at_any_message_leaves_nothing_behind) {
  for (std::size_t k = 0; k < 60; ++k) {
    world w;
    w.launch(limits_of());
    w.open("goes", stub_prompt(5, 1), within("[ab]{20,30}"));
    w.open("stays", stub_prompt(5, 2), within("[ab]{2,3}"));
    w.turn(k);
    w.abort("goes");
    w.sched.run();
    const auto& r = w.only("goes");
    BOOST_TEST((r.finish_reason == "abort" || r.finish_reason == "stop"), r.finish_reason);
    BOOST_TEST(w.only("stays").finish_reason == "stop");
    w.expect_nobody_waits();
    w.finish();
  }
}

// A limit of no time is over when the compiler asks about it for the first time.
BOOST_AUTO_TEST_CASE(a_compilation_ends_with_its_processor_time_and_its_compiler_takes_the_next_one) {
  setup.grammars.compilers = 1;
  setup.grammars.compile_seconds = 0;
  launch(limits_of());
  std::string words = "w0";
  for (int i = 1; i < 2000; ++i)
    words += "|w" + std::to_string(i);
  open("long", stub_prompt(5, 1), within(words));
  open("next", stub_prompt(5, 2), within("[ab]{2,3}"));
  open("long again", stub_prompt(5, 3), within(words));
  sched.run();
  for (const char* id : {"long", "long again"}) {
    BOOST_TEST(only(id).failure->code == "so_too_complex");
    BOOST_TEST(only(id).failure->message.find("compiling it takes more than 0.0 s of processor time; simplify it") !=
                   std::string::npos,
               only(id).failure->message);
  }
  BOOST_TEST(only("next").finish_reason == "stop");
  const grammar_report g = report();
  BOOST_TEST((g.refused == 1 && g.compiled == 1 && g.lost == 0 && g.given_up == 0 && g.running == 0 && g.queued == 0));
  open("later", stub_prompt(5, 4), within(words)); // another time it may be quick enough, so nothing is kept
  sched.run();
  BOOST_TEST(only("later").failure->code == "so_too_complex");
  BOOST_TEST(report().refused == 2u);
  BOOST_TEST(report().kept == 1u);
  expect_nobody_waits();
  finish();
}

// The texts of all tokens take seconds at the first constraint of a large vocabulary, which are not its own.
BOOST_AUTO_TEST_CASE(the_vocabulary_is_made_in_no_constraints_time) {
  setup.grammars.compile_seconds = 0.2;
  setup.grammars.vocabulary = std::make_shared<lazy_vocabulary>([] {
    for (const double start = thread_seconds(); thread_seconds() - start < 0.3;)
      continue;
    return token_vocabulary::of(*test_vocabulary(), test_vocabulary()->vocab_size());
  });
  launch(limits_of());
  std::string words = "w0"; // so much that its compiler looks at the clock
  for (int i = 1; i < 2000; ++i)
    words += "|w" + std::to_string(i);
  open("first", stub_prompt(5, 1), within(words));
  sched.run();
  BOOST_TEST(!only("first").failure);
  expect_nobody_waits();
  finish();
}

BOOST_AUTO_TEST_CASE(what_fails_for_want_of_memory_is_tried_again_when_it_is_asked_for_again) {
  setup.grammars.vocabulary = std::make_shared<lazy_vocabulary>([first = true]() mutable {
    if (std::exchange(first, false))
      throw std::bad_alloc();
    return token_vocabulary::of(*test_vocabulary(), test_vocabulary()->vocab_size());
  });
  launch(limits_of());
  open("first", stub_prompt(5, 1), within("[ab]{2,3}"));
  sched.run();
  BOOST_TEST(only("first").failure->code == "so_internal");
  open("again", stub_prompt(5, 1), within("[ab]{2,3}"));
  sched.run();
  BOOST_TEST(!only("again").failure);
  BOOST_TEST(only("again").finish_reason == "stop");
  expect_nobody_waits();
  finish();
}

// vllm-project/vllm issue 54003
BOOST_AUTO_TEST_CASE(schemas_that_are_too_deep_leave_the_compilers_to_others) {
  setup.grammars.compilers = 1;
  launch(limits_of());
  const auto nested = [](int depth) {
    std::string s = R"({"type":"integer"})";
    for (int i = 0; i < depth; ++i)
      s = R"({"oneOf":[)" + s + R"(,{"type":"object","properties":{"k":)" + s + "}}]}";
    auto p = within("");
    p.so_args = structured_output_args{.schema_type = "json", .schema = s};
    return p;
  };
  for (int i = 0; i < 6; ++i) {
    open("deep" + std::to_string(i), stub_prompt(5, i), nested(i % 2 == 0 ? 8 : 10), true,
         "tenant" + std::to_string(i));
    open("plain" + std::to_string(i), stub_prompt(5, i), within("[a-f]{" + std::to_string(i + 1) + "}"));
  }
  sched.run();
  for (int i = 0; i < 6; ++i) {
    BOOST_TEST(only("deep" + std::to_string(i)).failure->code == "so_too_complex");
    BOOST_TEST(only("plain" + std::to_string(i)).finish_reason == "stop");
  }
  const grammar_report g = report();
  BOOST_TEST((g.refused == 6 && g.compiled == 6 && g.running == 0 && g.queued == 0));
  expect_nobody_waits();
  finish();
}

// The one that is left still waits when the other no longer does.
BOOST_AUTO_TEST_CASE(a_compilation_is_given_up_when_its_last_waiter_leaves) {
  setup.grammars.compilers = 0;
  launch(limits_of());
  for (const char* id : {"a", "b"})
    open(id, stub_prompt(5, 1), within("x"));
  sched.run();
  abort("a");
  sched.run();
  BOOST_TEST(report().given_up == 0u);
  BOOST_TEST(report().queued == 1u);
  abort("b");
  sched.run();
  BOOST_TEST(report().given_up == 1u);
  BOOST_TEST(report().queued == 0u);
  expect_nobody_waits();
  finish();
}

BOOST_AUTO_TEST_CASE(c10_a_pool_killed_at_any_message_is_replaced_and_requests_go_on) {
  for (std::size_t k = 0; k < 60; ++k) {
    world w;
    w.launch(limits_of());
    w.open("one", stub_prompt(5, 1), within("[ab]{5,30}"));
    w.open("other", stub_prompt(5, 2), within("[cd]{2,3}"));
    w.open("free", stub_prompt(5, 3), endless(10));
    w.turn(k);
    caf::anon_send_exit(w.parts.grammars, caf::exit_reason::kill);
    w.sched.run();
    BOOST_TEST(w.only("one").token_ids == alone("one", stub_prompt(5, 1), within("[ab]{5,30}")),
               boost::test_tools::per_element());
    BOOST_TEST(w.only("other").finish_reason == "stop");
    BOOST_TEST(w.only("free").token_ids.size() == 10u);
    w.open("later", stub_prompt(5, 4), within("[cd]{2,3}"));
    w.sched.run();
    BOOST_TEST(w.only("later").finish_reason == "stop");
    w.expect_nobody_waits();
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(a_pool_lost_too_often_is_missed_by_constrained_requests_only) {
  setup.grammars.compilers = 0;
  launch(limits_of());
  open("waits", stub_prompt(5, 1), within("a"));
  for (int i = 0; i < 4; ++i) {
    sched.run();
    BOOST_TEST(results["waits"].empty());
    caf::anon_send_exit(pool(), caf::exit_reason::kill);
  }
  sched.run();
  BOOST_TEST(only("waits").failure->code == "so_internal");
  open("refused", stub_prompt(5, 2), within("a"));
  open("free", stub_prompt(5, 3), endless(10));
  sched.run();
  BOOST_TEST(only("refused").failure->code == "so_internal");
  BOOST_TEST(only("refused").failure->message.find("restart the process") != std::string::npos);
  BOOST_TEST(only("free").token_ids.size() == 10u);
  expect_nobody_waits();
  finish();
}

BOOST_AUTO_TEST_CASE(a_compiler_that_ends_is_replaced_once_for_a_constraint) {
  for (const int losses : {1, 2}) {
    world w;
    w.setup.grammars.compilers = 1;
    w.setup.grammars.vocabulary = std::make_shared<lazy_vocabulary>([left = losses]() mutable {
      if (left-- > 0)
        throw 7; // what nobody catches ends the actor
      return token_vocabulary::of(*test_vocabulary(), test_vocabulary()->vocab_size());
    });
    w.launch(limits_of());
    w.open("r", stub_prompt(5, 1), within("[ab]{2,3}"));
    w.sched.run();
    if (losses == 1)
      BOOST_TEST(w.only("r").finish_reason == "stop");
    else
      BOOST_TEST(w.only("r").failure->code == "so_internal");
    BOOST_TEST(w.report().lost == static_cast<std::uint64_t>(losses));
    w.open("later", stub_prompt(5, 2), within("[cd]{2,3}"));
    w.sched.run();
    BOOST_TEST(w.only("later").finish_reason == "stop");
    w.expect_nobody_waits();
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(an_engine_lost_while_a_constraint_is_compiled_ends_the_request) {
  setup.grammars.compilers = 0;
  launch(limits_of());
  open("waits", stub_prompt(5, 1), within("a"));
  sched.run();
  caf::anon_send_exit(parts.engines[0].scheduler, caf::exit_reason::kill);
  sched.run();
  BOOST_TEST(only("waits").failure->code == "engine_lost");
  sched.advance_time(std::chrono::seconds(21)); // whom nobody can tell is forgotten with its time limit
  sched.run();
  BOOST_TEST(report().waiting == 0u);
  finish();
}

BOOST_AUTO_TEST_SUITE_END()
