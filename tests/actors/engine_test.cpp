// The engine's protocols on a hand-driven scheduler with the stub model.
#include "runtime/request/seeds.hpp"
#include "tests/support/stub_process.hpp"
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

scheduler_limits limits_of(std::int32_t seqs, std::int32_t rows, bool chunked = true) {
  scheduler_limits l;
  l.max_num_seqs = seqs;
  l.max_num_batched_tokens = rows;
  l.chunked_prefill = chunked;
  l.max_model_len = 600;
  l.kv_blocks = 1 + seqs * 5;
  return l;
}

std::vector<std::int32_t> prompt_of(std::int32_t length, std::int32_t first) {
  std::vector<std::int32_t> p;
  for (std::int32_t i = 0; i < length; ++i)
    p.push_back((first * 31 + 7 * i) % 500);
  return p;
}

sampling_params params_of(std::int32_t max_tokens) {
  sampling_params p;
  p.max_tokens = max_tokens;
  return p;
}

// What a branch must give, by the oracle.
stub_expectation expected(const std::string& id, const std::vector<std::int32_t>& prompt, const sampling_params& params,
                          std::uint32_t branch = 0) {
  sequence_spec spec;
  spec.params = params;
  spec.prompt_tokens = static_cast<std::int32_t>(prompt.size());
  spec.seq_seed = branch_seed(derived_seed(0, id), branch);
  spec.eos_ids = {test_vocabulary()->eos_id()};
  return stub_alone(spec, prompt, test_vocabulary()->vocab_size(), 600);
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(engine_protocols, stub_process)

BOOST_AUTO_TEST_CASE(one_request_from_the_front_to_its_end) {
  launch(limits_of(4, 64));
  const auto prompt = prompt_of(100, 3);
  auto p = params_of(12);
  p.prompt_logprobs = true;
  open("a", prompt, p);
  BOOST_TEST(live->find("a").has_value());
  sched.run();
  BOOST_REQUIRE(results["a"].size() == 1u);
  const auto& r = results["a"][0];
  const auto want = expected("a", prompt, p);
  BOOST_TEST(r.token_ids == want.output, boost::test_tools::per_element());
  BOOST_TEST(r.finish_reason == "length");
  BOOST_TEST(r.text == test_vocabulary()->decode(want.output));
  BOOST_TEST((streamed[{"a", 0}]) == r.text);
  BOOST_TEST(r.logprobs.size() == 12u);
  BOOST_TEST(r.logprobs[3] == -static_cast<float>(want.output[3]) / 8);
  BOOST_REQUIRE(r.prompt_logprobs.size() == 99u); // two chunks
  for (std::size_t i = 0; i < 99; ++i)
    BOOST_TEST(r.prompt_logprobs[i] == static_cast<float>(prompt[i + 1]));
  BOOST_TEST(r.prompt_tokens == 100);
  BOOST_TEST(r.seq_seed == derived_seed(0, "a"));
  BOOST_TEST(r.usage.steps == 2 + 11); // two chunks, the second with a token, then eleven decode steps
  expect_quiet();
  finish();
}

// A broken drafter's confidences are clamped before anybody else sees them.
BOOST_AUTO_TEST_CASE(confidences_that_are_no_numbers_are_reported_by_the_verifier) {
  auto limits = limits_of(4, 64);
  limits.nextn = 5;
  launch(limits);
  engines[0]->model.right = std::numeric_limits<double>::quiet_NaN();
  open("a", prompt_of(100, 3), params_of(13));
  sched.run();
  BOOST_REQUIRE(results["a"].size() == 1u);
  const auto counted = query<scheduler_report>(parts.engines[0].scheduler, scheduler_query{}).metrics.speculation;
  const auto reported = query<spec_report>(parts.engines[0].verifier, spec_query{});
  BOOST_TEST(reported.not_finite > 0u);
  BOOST_TEST(reported.not_finite == counted.not_finite);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(drafts_are_verified_counted_and_reported) {
  auto limits = limits_of(4, 64);
  limits.nextn = 5;
  launch(limits);
  engines[0]->model.right = 1;
  const auto prompt = prompt_of(100, 3);
  const auto p = params_of(13);
  open("a", prompt, p);
  sched.run();
  BOOST_REQUIRE(results["a"].size() == 1u);
  const auto& r = results["a"][0];
  BOOST_TEST(r.token_ids == expected("a", prompt, p).output, boost::test_tools::per_element());
  BOOST_TEST(r.text == test_vocabulary()->decode(r.token_ids));
  BOOST_TEST((streamed[{"a", 0}]) == r.text);
  BOOST_REQUIRE(r.logprobs.size() == 13u);
  for (std::size_t i = 0; i < 13; ++i)
    BOOST_TEST(r.logprobs[i] == -static_cast<float>(r.token_ids[i]) / 8);
  BOOST_TEST(r.usage.steps == 2 + 2); // two chunks, the second with a token, then six tokens twice
  BOOST_TEST(r.usage.drafted == 10);
  BOOST_TEST(r.usage.accepted == 10);
  const auto counted = query<scheduler_report>(parts.engines[0].scheduler, scheduler_query{}).metrics.speculation;
  BOOST_TEST(counted.drafts == 2u);
  BOOST_TEST(counted.draft_tokens == 10u);
  BOOST_TEST(counted.accepted_tokens == 10u);
  BOOST_TEST(counted.accepted_at == (std::vector<std::uint64_t>{2, 2, 2, 2, 2}), boost::test_tools::per_element());
  BOOST_TEST(counted.not_finite == 0u);
  const auto verifier = query<spec_report>(parts.engines[0].verifier, spec_query{});
  BOOST_TEST(verifier.decisions > 0u);
  BOOST_TEST(verifier.drafts == 10u);
  BOOST_TEST(verifier.accepted == verifier.drafts);
  expect_quiet();
  finish();
}

// speculation.md §8.2. Every draft is right, so that outputs are the prompt's token and blocks of five drafts and one.
BOOST_AUTO_TEST_CASE(drafts_behind_a_stop_count_as_verified_only) {
  for (const bool async : {false, true}) {
    stub_process w;
    auto limits = limits_of(4, 64);
    limits.nextn = 5;
    limits.varlen = false;
    limits.async = async;
    w.launch(limits);
    w.engines[0]->model.right = 1;
    std::uint64_t accepted = 0, cut = 0;
    for (std::int32_t last = 0; last < 14; ++last) {
      const std::string id = "s" + std::to_string(last);
      const auto prompt = prompt_of(30, last);
      auto p = params_of(40);
      p.ignore_eos = true;
      const auto all = expected(id, prompt, p).output;
      p.stop_token_ids = {all[static_cast<std::size_t>(last)]};
      const auto want = expected(id, prompt, p).output;
      w.open(id, prompt, p);
      w.sched.run();
      const auto& r = w.results[id].at(0);
      BOOST_TEST(r.token_ids == want, boost::test_tools::per_element());
      const auto behind_prompt = static_cast<std::int64_t>(want.size()) - 1;
      const auto kept = behind_prompt / 6 * 5 + std::min<std::int64_t>(behind_prompt % 6, 5);
      BOOST_TEST(r.usage.accepted == kept, id);
      accepted += static_cast<std::uint64_t>(kept);
      cut += behind_prompt % 6 > 0 && behind_prompt % 6 < 5;
    }
    const auto counted = w.query<scheduler_report>(w.parts.engines[0].scheduler, scheduler_query{}).metrics.speculation;
    BOOST_TEST(counted.accepted_tokens == accepted);
    BOOST_TEST(std::accumulate(counted.accepted_at.begin(), counted.accepted_at.end(), std::uint64_t{0}) == accepted);
    // Confidences are judged by all of the block.
    BOOST_TEST(w.query<spec_report>(w.parts.engines[0].verifier, spec_query{}).accepted > accepted);
    BOOST_TEST(cut > 5u);
    w.expect_quiet();
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(the_loss_of_the_verifier_changes_nothing) { // speculation.md §13, test 12
  auto limits = limits_of(8, 64);
  limits.nextn = 3;
  setup.speculation.curve = {{1, 1}, {8, 1.2}, {16, 2}, {32, 5}};
  launch(limits);
  engines[0]->model.right = 0.7;
  engines[0]->model.vary = true;
  for (int i = 0; i < 12; ++i)
    open("r" + std::to_string(i), prompt_of(10 + 20 * i, i), params_of(40));
  for (int death = 0; death < 6; ++death) { // more often than it is started again
    turn(150);
    tell_from_outside(parts.engines[0].verifier, stop{});
  }
  sched.run();
  for (int i = 0; i < 12; ++i) {
    const std::string id = "r" + std::to_string(i);
    BOOST_REQUIRE(results[id].size() == 1u);
    BOOST_TEST(results[id][0].token_ids == expected(id, prompt_of(10 + 20 * i, i), params_of(40)).output,
               boost::test_tools::per_element());
  }
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(branches_have_their_own_seeds_and_ends) {
  launch(limits_of(4, 64), 2);
  auto p = params_of(5);
  p.n = 3;
  p.seq_seed = 42;
  const auto prompt = prompt_of(10, 1);
  open("b", prompt, p);
  sched.run();
  BOOST_REQUIRE(results["b"].size() == 3u);
  std::sort(results["b"].begin(), results["b"].end(), [](const auto& x, const auto& y) { return x.index < y.index; });
  for (std::uint32_t j = 0; j < 3; ++j) {
    const auto& r = results["b"][j];
    BOOST_TEST(r.index == static_cast<int>(j));
    BOOST_TEST(r.seq_seed == branch_seed(42, j));
    sequence_spec spec;
    spec.params = p;
    spec.prompt_tokens = 10;
    spec.seq_seed = branch_seed(42, j);
    BOOST_TEST(r.token_ids == stub_alone(spec, prompt, test_vocabulary()->vocab_size(), 600).output,
               boost::test_tools::per_element());
  }
  BOOST_TEST(results["b"][0].token_ids != results["b"][1].token_ids, boost::test_tools::per_element());
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(d10_requests_of_equal_parameters_have_seeds_of_their_own) {
  launch(limits_of(4, 64));
  std::uint64_t drawn = 0x1234567890abcdef;
  setup.front.random_bits = [&drawn] { return drawn += 0x9e3779b97f4a7c15; };
  setup.front.schedulers = {parts.engines[0].scheduler};
  setup.front.limits = setup.limits;
  setup.front.kv = setup.kv;
  tell_from_outside(parts.front, stop{});
  sched.run();
  parts.front = sys.spawn(gateway, setup.front);
  live = std::make_shared<live_requests>(); // the one of the lost gateway takes nothing any more
  for (const char* id : {"a", "b"})
    open(id, prompt_of(10, 1), params_of(20), false);
  sched.run();
  BOOST_TEST(results["a"].at(0).seq_seed != results["b"].at(0).seq_seed);
  BOOST_TEST(results["a"].at(0).token_ids != results["b"].at(0).token_ids, boost::test_tools::per_element());
  tell_from_outside(parts.front, stop{});
  finish();
}

BOOST_AUTO_TEST_CASE(a_stop_string_ends_the_branch_and_the_sequence) {
  launch(limits_of(4, 64));
  const auto prompt = prompt_of(20, 5);
  auto p = params_of(40);
  const auto free_run = expected("s", prompt, p);
  // the text of output tokens 3 and 4 as stop string; it completes in token 4 unless it occurs earlier
  const auto text_of = [&](std::size_t from, std::size_t to) {
    return test_vocabulary()->decode(std::span(free_run.output).subspan(from, to - from));
  };
  const std::string whole = test_vocabulary()->decode(free_run.output), stop_text = text_of(3, 5);
  BOOST_REQUIRE(!stop_text.empty());
  p.stop = {"never in the text \x01", stop_text};
  open("s", prompt, p);
  sched.run();
  BOOST_REQUIRE(results["s"].size() == 1u);
  const auto& r = results["s"][0];
  BOOST_TEST(r.finish_reason == "stop");
  BOOST_TEST(r.stop_text == stop_text);
  BOOST_TEST(!r.stop_id.has_value());
  BOOST_TEST(r.text == whole.substr(0, whole.find(stop_text)));
  BOOST_TEST((streamed[{"s", 0}]) == r.text);
  BOOST_TEST(r.token_ids.size() <= 5u); // the completing token is kept, later ones are not
  BOOST_TEST(std::equal(r.token_ids.begin(), r.token_ids.end(), free_run.output.begin()));
  BOOST_TEST(engines[0]->steps < 12); // the engine was told
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(eos_and_stop_ids_have_no_text) {
  launch(limits_of(4, 64));
  const auto prompt = prompt_of(20, 5);
  auto p = params_of(40);
  const auto free_run = expected("e", prompt, p);
  p.golden_token_ids = {free_run.output[0], test_vocabulary()->eos_id()};
  open("e", prompt, p);
  p.golden_token_ids = {free_run.output[0], 77};
  p.stop_token_ids = {77};
  open("i", prompt, p);
  sched.run();
  for (const char* id : {"e", "i"}) {
    const auto& r = results[id].at(0);
    BOOST_TEST(r.finish_reason == "stop");
    BOOST_TEST(r.token_ids.size() == 2u);
    BOOST_TEST(r.stop_id.value_or(-1) == r.token_ids[1]);
    BOOST_TEST(r.text == test_vocabulary()->decode(std::span(r.token_ids).first(1)));
  }
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(refusals_of_the_scheduler_end_the_request) {
  auto l = limits_of(2, 64);
  l.kv_blocks = 3;
  launch(l);
  open("big", prompt_of(300, 1), params_of(200));
  open("ok", prompt_of(30, 1), params_of(2));
  sched.run();
  BOOST_TEST(results["big"].at(0).finish_reason == "error");
  BOOST_TEST(results["big"].at(0).failure->code == "no_space");
  BOOST_TEST(results["ok"].at(0).finish_reason == "length");
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(d19_a_failed_step_and_a_bad_row_end_only_their_sequences) {
  launch(limits_of(4, 64));
  engines[0]->failures = 1;
  open("first", prompt_of(10, 1), params_of(3));
  sched.run();
  BOOST_TEST(results["first"].at(0).failure->code == "device_error");
  BOOST_TEST(results["first"].at(0).failure->message.find("injected") != std::string::npos);
  engines[0]->bad_sequence = 3; // sequences count from 1
  open("second", prompt_of(10, 2), params_of(3));
  open("third", prompt_of(10, 3), params_of(3));
  sched.run();
  BOOST_TEST(results["second"].at(0).finish_reason == "length");
  BOOST_TEST(results["third"].at(0).failure->message.find("NaN") != std::string::npos);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(a_lost_executor_ends_every_live_request_of_its_engine) {
  launch(limits_of(2, 64), 2);
  auto sixty = params_of(60);
  sixty.ignore_eos = true;
  for (int i = 0; i < 8; ++i)
    open("r" + std::to_string(i), prompt_of(50, i), sixty);
  turn(120);
  caf::anon_send_exit(parts.engines[0].executor, caf::exit_reason::kill);
  sched.run();
  int lost = 0, fine = 0;
  for (int i = 0; i < 8; ++i) {
    const auto& list = results["r" + std::to_string(i)];
    BOOST_REQUIRE(list.size() == 1u);
    lost += list[0].finish_reason == "error" && list[0].failure->code == "engine_lost";
    fine += list[0].finish_reason == "length" && list[0].token_ids.size() == 60u;
  }
  BOOST_TEST(lost == 4);
  BOOST_TEST(fine == 4);
  open("later", prompt_of(5, 1), params_of(2)); // goes to the other engine
  sched.run();
  BOOST_TEST(results["later"].at(0).finish_reason == "length");
  caf::anon_send_exit(parts.engines[1].scheduler, caf::exit_reason::kill);
  sched.run();
  open("last", prompt_of(5, 1), params_of(2));
  sched.run();
  BOOST_TEST(results["last"].at(0).failure->code == "engine_lost");
  BOOST_TEST(live->size() == 0u);
  finish();
}

BOOST_AUTO_TEST_CASE(a_lost_scheduler_or_kv_manager_ends_every_live_request) {
  launch(limits_of(2, 64), 2);
  auto sixty = params_of(60);
  sixty.ignore_eos = true;
  for (int i = 0; i < 4; ++i)
    open("r" + std::to_string(i), prompt_of(50, i), sixty);
  turn(80);
  caf::anon_send_exit(parts.engines[0].scheduler, caf::exit_reason::kill);
  caf::anon_send_exit(parts.engines[1].kv, caf::exit_reason::kill);
  sched.run();
  for (int i = 0; i < 4; ++i) {
    const auto& list = results["r" + std::to_string(i)];
    BOOST_REQUIRE(list.size() == 1u);
    BOOST_TEST(list[0].failure->code == "engine_lost");
  }
  BOOST_TEST(live->size() == 0u);
  finish();
}

BOOST_AUTO_TEST_CASE(abort_at_every_message) {
  for (std::size_t when = 0; when < 160; when += 3) {
    stub_process w;
    w.launch(limits_of(1, 32));
    auto p = params_of(6);
    p.n = 2; // the second branch waits for the first
    w.open("x", prompt_of(80, 2), p);
    w.open("y", prompt_of(10, 4), params_of(4));
    w.turn(when);
    const bool was_live = w.live->find("x").has_value();
    w.abort("x");
    w.sched.run();
    BOOST_REQUIRE(w.results["x"].size() == 2u);
    if (was_live && when < 30)
      BOOST_TEST(w.results["x"][1].finish_reason == "abort");
    BOOST_TEST(w.results["y"].at(0).token_ids == expected("y", prompt_of(10, 4), params_of(4)).output,
               boost::test_tools::per_element());
    w.expect_quiet();
    w.finish();
  }
}

// What counts is what an engine has to do still: neither what a request might ask for beyond the model's length, nor
// what is computed already (C23).
BOOST_AUTO_TEST_CASE(c23_work_is_what_is_left_to_do) {
  for (const bool nearly_done : {false, true}) {
    stub_process w;
    const scheduler_limits limits = limits_of(8, 32);
    w.launch(limits, 2);
    w.open("long", prompt_of(10, 2), endless(std::numeric_limits<std::int32_t>::max()));
    const auto booked = [&] { return w.query<gateway_report>(w.parts.front, gateway_query{}).outstanding; };
    while (nearly_done && w.engines[0]->steps < limits.max_model_len - 60)
      BOOST_REQUIRE(w.turn(1));
    w.open("first", prompt_of(10, 3), endless(8)); // has the engines asked
    while (w.results["first"].empty())
      BOOST_REQUIRE(w.turn(1));
    BOOST_TEST(w.results["long"].empty());
    w.turn(20);
    BOOST_TEST(booked().at(0) <= (nearly_done ? 60 : limits.max_model_len));
    const int small = nearly_done ? 12 : 2 * limits.max_model_len / 18;
    for (int i = 0; i < small; ++i)
      w.open("r" + std::to_string(i), prompt_of(10, 4 + i), endless(8));
    w.sched.run();
    std::vector<std::uint64_t> ended;
    for (const request_metrics& m : w.query<gateway_report>(w.parts.front, gateway_query{}).metrics)
      ended.push_back(m.length);
    BOOST_REQUIRE(ended.size() == 2u);
    BOOST_TEST(ended[0] + ended[1] == static_cast<std::uint64_t>(small) + 2);
    BOOST_TEST(std::min(ended[0], ended[1]) >= static_cast<std::uint64_t>(small) / 4);
    for (const std::int64_t left : booked())
      BOOST_TEST(left == 0);
    w.finish();
  }
}

// The caller's abort goes past the request on its way.
BOOST_AUTO_TEST_CASE(an_abort_before_the_request_is_known_counts) {
  stub_process w;
  w.launch(limits_of(1, 32));
  const auto r = w.claim("x", prompt_of(10, 2), params_of(50));
  w.abort("x");
  w.sched.run();
  w.open(r);
  w.sched.run();
  BOOST_REQUIRE(w.results["x"].size() == 1u);
  BOOST_TEST(w.results["x"][0].finish_reason == "abort");
  BOOST_TEST(w.live->size() == 0u);
  w.expect_quiet();
  w.finish();
}

BOOST_AUTO_TEST_CASE(stop_ends_live_requests_with_abort_and_all_actors) {
  launch(limits_of(2, 64), 2);
  auto sixty = params_of(60);
  sixty.ignore_eos = true;
  for (int i = 0; i < 6; ++i)
    open("r" + std::to_string(i), prompt_of(50, i), sixty);
  turn(150);
  const auto before = sys.registry().running();
  finish();
  for (int i = 0; i < 6; ++i) {
    BOOST_REQUIRE(results["r" + std::to_string(i)].size() == 1u);
    BOOST_TEST(results["r" + std::to_string(i)][0].finish_reason == "abort");
  }
  BOOST_TEST(before > 10u);
  BOOST_TEST(sys.registry().running() == 1u); // the test's own
}

BOOST_AUTO_TEST_CASE(a_reader_that_throws_harms_nobody) {
  launch(limits_of(2, 64));
  auto r = std::make_shared<request_record>();
  r->id = "bad";
  r->req = {1, 99};
  r->prompt = {1, 2};
  r->params = params_of(3);
  r->live = live;
  r->on_event = [](const generation_event&) { throw std::runtime_error("reader"); };
  BOOST_REQUIRE(live->add("bad", r->req));
  tell_from_outside(parts.front, open_request{r});
  open("good", prompt_of(5, 1), params_of(3));
  sched.run();
  BOOST_TEST(results["good"].size() == 1u);
  expect_quiet();
  finish();
}

namespace {

caf::behavior reader_of(caf::event_based_actor*, std::vector<std::uint32_t>* begun_attempts, std::size_t* outputs) {
  return {
      [=](const ack&) {},
      [=](const begun& b) { begun_attempts->push_back(b.attempt); },
      [=](const tokens& t) {
        *outputs += t.ids.size();
        return tok_ack{t.attempt, t.first_pos + std::ssize(t.ids), t.attempt}; // which is its sequence, too
      },
  };
}

} // namespace

// With the second request behind the first: an engine that ends has not tried what waits there.
BOOST_AUTO_TEST_CASE(who_asks_hears_that_a_request_is_begun_before_its_first_step_ends) {
  launch(limits_of(1, 64));
  std::vector<std::uint32_t> begun_attempts;
  std::size_t outputs = 0;
  const auto reader = sys.spawn(reader_of, &begun_attempts, &outputs);
  const auto submit_attempt = [&](std::uint32_t attempt) {
    submit s;
    s.work.req = {1, attempt};
    s.work.sequence = attempt;
    s.work.attempt = attempt;
    s.work.request_id = std::to_string(attempt);
    s.work.tokens = prompt_of(100, 3);
    s.work.params = params_of(3);
    s.work.params.ignore_eos = true;
    tell_as(caf::actor_cast<session_actor>(caf::actor_cast<caf::strong_actor_ptr>(reader)), parts.engines[0].scheduler,
            std::move(s));
    for (int i = 0; i < 300 && !sched.jobs.empty(); ++i) { // the executor looks at its device for ever
      std::rotate(sched.jobs.begin(), sched.jobs.begin() + 1, sched.jobs.end());
      sched.try_run_once();
    }
  };
  engines[0]->hold = true;
  submit_attempt(7);
  submit_attempt(9);
  BOOST_TEST(begun_attempts == (std::vector<std::uint32_t>{7}), boost::test_tools::per_element());
  BOOST_TEST(outputs == 0u);
  engines[0]->hold = false;
  sched.run();
  BOOST_TEST(outputs == 6u);
  BOOST_TEST(begun_attempts == (std::vector<std::uint32_t>{7, 9}), boost::test_tools::per_element());
  caf::anon_send_exit(reader, caf::exit_reason::user_shutdown);
  finish();
}

BOOST_AUTO_TEST_CASE(a_lost_session_gives_an_end_and_frees_the_engine) {
  launch(limits_of(2, 64));
  auto p = params_of(200);
  p.ignore_eos = true;
  open("a", prompt_of(20, 1), p);
  turn(60);
  auto* g =
      dynamic_cast<gateway_actor::stateful_pointer<gateway_state>>(caf::actor_cast<caf::abstract_actor*>(parts.front));
  BOOST_REQUIRE(g);
  BOOST_REQUIRE(state_of(g).live.size() == 1u);
  caf::anon_send_exit(state_of(g).live.begin()->second.session, caf::exit_reason::kill);
  sched.run();
  BOOST_REQUIRE(results["a"].size() == 1u);
  BOOST_TEST(results["a"][0].failure->code == "internal");
  BOOST_TEST(engines[0]->steps < 100);
  expect_quiet();
  finish();
}

BOOST_AUTO_TEST_CASE(a_lost_gateway_leaves_nobody_waiting) {
  for (std::size_t when = 0; when < 200; when += 7) {
    stub_process w;
    w.launch(limits_of(2, 64), 2);
    auto p = params_of(40);
    p.n = 2;
    for (int i = 0; i < 3; ++i)
      w.open("r" + std::to_string(i), prompt_of(30, i), p);
    w.turn(when);
    for (int i = 3; i < 6; ++i) // in the mailbox when it ends
      w.open("r" + std::to_string(i), prompt_of(30, i), p);
    caf::anon_send_exit(w.parts.front, caf::exit_reason::kill);
    w.sched.run();
    for (int i = 0; i < 6; ++i) {
      const auto& list = w.results["r" + std::to_string(i)];
      BOOST_REQUIRE(list.size() == 2u);
      for (const auto& r : list)
        BOOST_TEST((!r.failure || r.failure->code == "engine_lost"));
    }
    BOOST_TEST(w.live->size() == 0u);
    BOOST_TEST(w.live->add("later", {1, 99}).failure().code == "engine_lost");
    for (const auto& e : w.parts.engines)
      BOOST_TEST(w.query<scheduler_report>(e.scheduler, scheduler_query{}).live == 0u);
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(a_lost_verifier_is_replaced_and_decoding_never_stops) {
  auto limits = limits_of(2, 64);
  limits.nextn = 3;
  launch(limits);
  engines[0]->model.right = 1;
  auto p = params_of(500);
  p.ignore_eos = true;
  open("a", prompt_of(20, 1), p);
  auto* r =
      dynamic_cast<worker_root_actor::stateful_pointer<worker_root_state>>(caf::actor_cast<caf::abstract_actor*>(root));
  BOOST_REQUIRE(r);
  for (int lost = 0; lost < 3; ++lost) {
    turn(100);
    caf::anon_send_exit(state_of(r).parts.engines[0].verifier, caf::exit_reason::kill);
  }
  sched.run();
  BOOST_TEST(results["a"].at(0).token_ids == expected("a", prompt_of(20, 1), p).output,
             boost::test_tools::per_element());
  const spec_verifier_actor last = state_of(r).parts.engines[0].verifier;
  BOOST_TEST((last != parts.engines[0].verifier));
  const auto report = query<spec_report>(last, spec_query{}); // it answers
  BOOST_TEST(report.ranks.size() == 1u);
  BOOST_TEST(report.decisions > 0u); // and was asked by the engine
  expect_quiet();
  finish();
}

// Whatever the engine was at: what it has begun it ends, then nothing is planned, and nothing is computed twice.
BOOST_AUTO_TEST_CASE(steps_that_are_held_keep_everything_and_go_on_where_they_were) {
  const auto prompt = prompt_of(100, 3);
  const auto p = params_of(12);
  for (const bool async : {false, true})
    for (std::size_t messages = 0;; ++messages) {
      stub_process w;
      auto limits = limits_of(4, 64);
      limits.async = async;
      w.launch(limits);
      w.open("a", prompt, p);
      const bool under_way = w.turn(messages);
      const scheduler_actor engine = w.parts.engines[0].scheduler;
      tell_from_outside(engine, hold_steps{true});
      w.sched.run();
      const auto held = w.query<scheduler_report>(engine, scheduler_query{});
      w.open("b", prompt, p); // comes meanwhile, and waits
      w.sched.run();
      const auto later = w.query<scheduler_report>(engine, scheduler_query{});
      BOOST_TEST(later.steps == held.steps);
      BOOST_TEST(later.running == held.running);
      BOOST_TEST(later.free_blocks == held.free_blocks);
      BOOST_TEST(later.able);
      BOOST_TEST(w.results["b"].empty());
      tell_from_outside(engine, hold_steps{false});
      w.sched.run();
      for (const char* id : {"a", "b"}) {
        BOOST_REQUIRE(w.results[id].size() == 1u);
        BOOST_TEST(w.results[id][0].token_ids == expected(id, prompt, p).output, boost::test_tools::per_element());
        BOOST_TEST(w.results[id][0].usage.attempts == 1);
        BOOST_TEST(w.results[id][0].usage.preemptions == 0);
      }
      const auto all = w.query<scheduler_report>(engine, scheduler_query{}).metrics;
      BOOST_TEST(all.iteration_tokens.sum == 2 * (100 + 11)); // every row once
      w.expect_quiet();
      w.finish();
      if (!under_way)
        break;
    }
}

BOOST_AUTO_TEST_CASE(what_ends_while_steps_are_held_gives_its_blocks_back) {
  for (const bool lost : {false, true}) {
    stub_process w;
    w.launch(limits_of(4, 64));
    const scheduler_actor engine = w.parts.engines[0].scheduler;
    w.open("a", prompt_of(100, 3), params_of(12));
    w.turn(40);
    tell_from_outside(engine, hold_steps{true});
    w.sched.run();
    const auto held = w.query<scheduler_report>(engine, scheduler_query{});
    BOOST_TEST(held.running == 1u);
    if (lost)
      tell_from_outside(engine, rank_lost{0, "pulled out"});
    else
      w.abort("a");
    w.sched.run();
    BOOST_REQUIRE(w.results["a"].size() == 1u);
    BOOST_TEST(w.results["a"][0].finish_reason == (lost ? "error" : "abort"));
    BOOST_TEST(w.query<scheduler_report>(engine, scheduler_query{}).running == 0u);
    if (lost) // as with every loss, once there is something to do
      tell_from_outside(engine, rank_back{});
    w.sched.run();
    w.expect_quiet();
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(a_deadline_ends_a_request_with_what_it_has) {
  launch(limits_of(2, 64));
  auto p = params_of(100);
  p.ignore_eos = true;
  open("late", prompt_of(20, 1), p, true, {}, 0, 10);
  open("free", prompt_of(20, 1), p);
  open("done", prompt_of(20, 2), params_of(3), true, {}, 0, 10000);
  sched.run();
  const auto& late = results["late"].at(0);
  BOOST_TEST(late.finish_reason == "error");
  BOOST_REQUIRE(late.failure.has_value());
  BOOST_TEST(late.failure->code == "deadline");
  BOOST_TEST(late.failure->message.find("request late") != std::string::npos);
  const auto want = expected("late", prompt_of(20, 1), p).output;
  BOOST_TEST(late.token_ids.size() >= 8u);
  BOOST_TEST(late.token_ids.size() <= 10u);
  BOOST_TEST(std::equal(late.token_ids.begin(), late.token_ids.end(), want.begin()));
  BOOST_TEST(results["free"].at(0).token_ids.size() == 100u);
  BOOST_TEST(results["done"].at(0).token_ids.size() == 3u);
  expect_quiet();
  finish();
}

// Sessions are many and run on several threads; the engine still serves requests in the order of their arrival.
BOOST_AUTO_TEST_CASE(requests_of_one_client_reach_the_engine_in_order) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    stub_process w;
    w.launch(limits_of(1, 64));
    std::mt19937 random(seed);
    for (int i = 0; i < 8; ++i)
      w.open("r" + std::to_string(i), prompt_of(5, i), params_of(2));
    std::vector<std::string> ends;
    while (!w.sched.jobs.empty()) {
      std::swap(w.sched.jobs.front(), w.sched.jobs[random() % w.sched.jobs.size()]);
      w.sched.try_run_once();
      for (const auto& [id, list] : w.results)
        if (!list.empty() && std::ranges::find(ends, id) == ends.end())
          ends.push_back(id);
    }
    BOOST_TEST(w.engines[0]->order == (std::vector<std::string>{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}),
               boost::test_tools::per_element());
    BOOST_TEST(ends.size() == 8u);
    w.finish();
  }
}

BOOST_AUTO_TEST_CASE(the_load_reaches_the_placement) {
  launch(limits_of(2, 64));
  open("a", prompt_of(5, 1), params_of(40));
  sched.run();
  const auto t = query<slot_table>(parts.placement, slots{});
  BOOST_TEST(t.pver == 1u);
  BOOST_TEST(t.expert_of == (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(t.steps_seen == 32u); // one load message of 40 steps
  BOOST_TEST(t.rows == std::vector<std::uint64_t>(8, 32), boost::test_tools::per_element());
  BOOST_TEST(t.balancedness == 1.0);
  finish();
}

BOOST_AUTO_TEST_CASE(d18_a_silent_executor_ends_the_requests_at_the_time_limit) {
  auto silent = sys.spawn([](executor_actor::pointer me) -> executor_actor::behavior_type {
    return {[=](const step&) -> caf::result<step_done> { return me->make_response_promise<step_done>(); },
            [](const device_check&) {}, [=](const stop&) { me->quit(); }};
  });
  launch(limits_of(2, 64));
  scheduler_setup s;
  s.limits = limits_of(2, 64);
  s.kv = parts.engines[0].kv;
  s.executor = silent;
  s.verifier = parts.engines[0].verifier;
  s.step_limit = std::chrono::seconds(5);
  gateway_setup g = setup.front;
  g.schedulers = {sys.spawn(scheduler, s)};
  parts.front = sys.spawn(gateway, g);
  open("a", prompt_of(5, 1), params_of(2));
  sched.run();
  BOOST_TEST(results["a"].empty());
  for (int limits = 0; limits < 2; ++limits) { // the first may begin before the step does
    sched.advance_time(std::chrono::seconds(6));
    sched.run();
  }
  BOOST_REQUIRE(results["a"].size() == 1u);
  BOOST_TEST(results["a"][0].failure->code == "engine_lost");
  tell_from_outside(parts.front, stop{});
  tell_from_outside(g.schedulers[0], stop{});
  tell_from_outside(silent, stop{});
  finish();
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(engine_properties)

namespace {

struct mixed_request {
  std::string id;
  std::vector<std::int32_t> prompt;
  sampling_params params;
};

std::vector<mixed_request> mixed_requests() {
  std::mt19937_64 random(7);
  const auto pick = [&](std::int32_t lo, std::int32_t hi) {
    return lo + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(hi - lo + 1));
  };
  std::vector<mixed_request> all;
  for (int i = 0; i < 64; ++i) {
    mixed_request r{"m" + std::to_string(i), prompt_of(pick(1, pick(0, 3) ? 40 : 500), pick(0, 99)),
                    params_of(pick(1, 40))};
    r.params.ignore_eos = pick(0, 1) != 0;
    r.params.prompt_logprobs = pick(0, 3) == 0;
    r.params.n = pick(0, 7) == 0 ? 2 : 1;
    if (pick(0, 3) == 0)
      r.params.stop = {"e", "th"};
    if (pick(0, 3) == 0)
      r.params.golden_token_ids = {pick(0, 400), pick(0, 400)};
    if (pick(0, 3) == 0)
      r.params.seq_seed = random();
    all.push_back(std::move(r));
  }
  return all;
}

// All result lines without their usage, by id and branch.
std::map<std::pair<std::string, int>, std::string> run_mixed(std::vector<mixed_request> requests,
                                                             const scheduler_limits& limits, std::size_t engine_count,
                                                             unsigned seed, bool one_by_one, bool group = false,
                                                             bool any_order = false) {
  stub_process w;
  if (group)
    w.setup.group_sync = step_group_settings{.rule = rule_of(limits), .decode_run = seed % 2 == 0 ? 1 : 4};
  w.launch(limits, engine_count);
  std::mt19937_64 random(seed);
  if (seed > 0)
    std::shuffle(requests.begin(), requests.end(), random);
  for (const auto& r : requests) {
    w.open(r.id, r.prompt, r.params);
    if (one_by_one)
      w.sched.run();
    else
      w.turn(random() % 50);
  }
  if (any_order)
    w.run_in_any_order(random);
  w.sched.run();
  w.expect_quiet();
  std::map<std::pair<std::string, int>, std::string> lines;
  for (auto& [id, list] : w.results)
    for (auto& r : list) {
      BOOST_TEST((w.streamed[{id, r.index}]) == r.text);
      r.usage = {}, r.cached_tokens = 0;
      BOOST_TEST(lines.emplace(std::make_pair(id, r.index), result_line(r)).second);
    }
  w.finish();
  return lines;
}

} // namespace

BOOST_AUTO_TEST_CASE(mixed_requests_give_the_same_lines_however_they_are_run) {
  const auto requests = mixed_requests();
  auto whole = limits_of(1, 600, false);
  const auto alone = run_mixed(requests, whole, 1, 0, true);
  std::size_t branches = 0, stopped = 0;
  for (const auto& r : requests)
    branches += static_cast<std::size_t>(r.params.n);
  BOOST_TEST(alone.size() == branches);
  for (const auto& [key, line] : alone)
    stopped += line.find("\"stop\"") != std::string::npos;
  BOOST_TEST(stopped > 5u);
  for (const auto& r : requests) { // the oracle, where no text rule ends the branch
    if (!r.params.stop.empty() || r.params.seq_seed)
      continue;
    generation_result want;
    const auto e = expected(r.id, r.prompt, r.params);
    std::string ids = "\"token_ids\": [";
    const std::string& line = alone.at({r.id, 0});
    for (std::size_t i = 0; i < e.output.size(); ++i)
      ids += (i ? ", " : "") + std::to_string(e.output[i]);
    std::string compact = ids + "]";
    std::erase(compact, ' ');
    std::string bare = line;
    std::erase(bare, ' ');
    BOOST_TEST(bare.find(compact) != std::string::npos);
  }
  unsigned seed = 1;
  for (const std::int32_t chunk : {16, 64, 0})
    for (const std::size_t engine_count : {1u, 2u})
      for (const std::int32_t seqs : {3, 64}) {
        const auto l = chunk > 0 ? limits_of(seqs, chunk) : limits_of(seqs, 600, false);
        for (const bool group : {false, true}) {
          if (group && engine_count == 1)
            continue;
          const auto lines = run_mixed(requests, l, engine_count, seed++, false, group, seqs == 3);
          BOOST_TEST((lines == alone),
                     "chunk " << chunk << " engines " << engine_count << " sequences " << seqs << " group " << group);
        }
      }
}

BOOST_AUTO_TEST_SUITE_END()
