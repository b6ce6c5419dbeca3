// What a process of engines counts, from requests to Prometheus text.
#include "actors/llm.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/metric_text.hpp"
#include "tests/support/stub_process.hpp"
#include <condition_variable>
#include <mutex>

using namespace troupe;
using test_support::metric;

namespace {

engine_options tiny(int engines) {
  engine_options o = embedded_options();
  o.model += '/'; // is no part of the name in metrics
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 32;
  o.max_model_len = 512;
  o.engines = engines;
  o.nextn = 0; // drafts are rows too
  return o;
}

generation_request ids(const std::string& id, std::vector<std::int32_t> prompt) {
  return {.id = id, .prompt = {}, .prompt_ids = std::move(prompt), .logit_rows = {}};
}

} // namespace

BOOST_AUTO_TEST_SUITE(process_metrics)

BOOST_AUTO_TEST_CASE(a_batch_is_counted_exactly) {
  LLM llm(tiny(2));
  BOOST_TEST(metric(llm.metrics(), "request_success_total") == 0);
  std::vector<generation_request> requests;
  for (int i = 0; i < 5; ++i)
    requests.push_back(
        ids("r" + std::to_string(i), std::vector<std::int32_t>(static_cast<std::size_t>(10 + i), 300 + i)));
  BOOST_TEST(llm.generate(requests, {.temperature = 0, .max_tokens = 7, .ignore_eos = true}).size() == 5u);
  std::string text = llm.metrics();
  // Rows of all steps: every prompt token, and every output token but the last of each request.
  BOOST_TEST(metric(text, "iteration_tokens_total_sum") == 60 + 5 * 6);
  BOOST_TEST(metric(text, "iteration_tokens_total_count") == metric(text, "steps_total"));
  BOOST_TEST(metric(text, "step_time_seconds_count", "phase=\"run\"") == metric(text, "steps_total"));
  BOOST_TEST(metric(text, "step_time_seconds_sum", "phase=\"run\"") > 0);

  const auto two =
      llm.generate({ids("two", {300, 301})}, {.temperature = 0, .max_tokens = 3, .ignore_eos = true, .n = 2});
  // A stop id that is the first token drawn.
  const auto stopped = llm.generate(
      {ids("stop", {300, 301})},
      {.temperature = 0, .max_tokens = 3, .ignore_eos = true, .stop_token_ids = {two.at(0).token_ids.at(0)}});
  BOOST_TEST(stopped.at(0).finish_reason == "stop");
  // Refused before it was queued: an error, but not a request that any engine ended.
  BOOST_TEST(llm.generate({ids("bad", {-1})}, sampling_params{}).at(0).finish_reason == "error");

  text = llm.metrics();
  BOOST_TEST(metric(text, "request_success_total", "finished_reason=\"length\"") == 5 + 2);
  BOOST_TEST(metric(text, "request_success_total", "finished_reason=\"stop\"") == 1);
  BOOST_TEST(metric(text, "request_success_total", "finished_reason=\"error\"") == 0);
  BOOST_TEST(metric(text, "request_errors_total", "code=\"invalid_prompt\"") == 1);
  BOOST_TEST(metric(text, "prompt_tokens_total") == 60 + 2 * 2 + 2);
  BOOST_TEST(metric(text, "generation_tokens_total") == 5 * 7 + 2 * 3 + 1);
  BOOST_TEST(metric(text, "request_success_total", "engine=\"0\"") > 0);
  BOOST_TEST(metric(text, "request_success_total", "engine=\"1\"") > 0);
  BOOST_TEST(metric(text, "request_params_n_sum") == 5 + 2 + 1);
  BOOST_TEST(metric(text, "request_params_n_count") == 7);
  BOOST_TEST(metric(text, "request_params_max_tokens_sum") == 5 * 7 + 3 * 3);
  BOOST_TEST(metric(text, "time_to_first_token_seconds_count") == 8);
  BOOST_TEST(metric(text, "inter_token_latency_seconds_count") == 5 * 6 + 2 * 2);
  BOOST_TEST(metric(text, "request_time_per_output_token_seconds_count") == 7);
  BOOST_TEST(metric(text, "e2e_request_latency_seconds_count") == 8);
  BOOST_TEST(metric(text, "request_queue_time_seconds_count") == 8);
  BOOST_TEST(metric(text, "request_prefill_time_seconds_count") == 8);
  BOOST_TEST(metric(text, "e2e_request_latency_seconds_sum") >= metric(text, "time_to_first_token_seconds_sum"));
  BOOST_TEST(metric(text, "num_requests_running") == 0);
  BOOST_TEST(metric(text, "state_slots") > 0);
  BOOST_TEST(text.find("model_name=\"tiny-v41\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_abort_is_counted_with_its_cause) {
  LLM llm(tiny(1));
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t length = 0;
  bool ended = false;
  BOOST_REQUIRE(llm.submit(ids("a", {1, 2, 3}), {.temperature = 0, .max_tokens = 400, .ignore_eos = true},
                           [&](const generation_event& e) {
                             const std::lock_guard lock(mutex);
                             length += e.text.size();
                             ended = ended || e.result;
                             changed.notify_all();
                           }));
  std::unique_lock lock(mutex);
  BOOST_REQUIRE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return length > 0 || ended; }));
  lock.unlock();
  BOOST_TEST(metric(llm.metrics(), "num_requests_running") == 1);
  BOOST_TEST(llm.abort("a"));
  lock.lock();
  BOOST_REQUIRE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return ended; }));
  lock.unlock();
  const std::string text = llm.metrics();
  BOOST_TEST(metric(text, "request_success_total", "finished_reason=\"abort\"") == 1);
  BOOST_TEST(metric(text, "request_aborts_total", "cause=\"caller\"") == 1);
  BOOST_TEST(metric(text, "prompt_tokens_total") == 3);
}

BOOST_FIXTURE_TEST_CASE(errors_and_refusals_are_counted_by_code, stub_process) {
  scheduler_limits l;
  l.max_num_seqs = 2;
  l.max_num_batched_tokens = 32;
  l.max_model_len = 100;
  l.kv_blocks = 5;
  launch(l);
  const auto front = [&] { return query<gateway_report>(parts.front, gateway_query{}).metrics.at(0); };
  engines[0]->failures = 1;
  open("broken", {1, 2, 3}, {.max_tokens = 2});
  sched.run();
  open("good", {1, 2, 3}, {.max_tokens = 2});
  sched.run();
  request_metrics m = front();
  BOOST_TEST(m.error == 1u);
  BOOST_TEST(m.error_codes.at("device_error") == 1u);
  BOOST_TEST(m.prompt_tokens == 3u); // the broken one had no output
  tell_from_outside(parts.engines[0].scheduler, rank_lost{0, "pulled out"});
  tell_from_outside(parts.front, rank_lost{0, "pulled out"});
  sched.run();
  sampling_params two;
  two.n = 2;
  open("late", {1, 2, 3}, two);
  sched.run();
  m = front();
  BOOST_TEST(m.error == 3u);
  BOOST_TEST(m.error_codes.at("engine_lost") == 2u);
  BOOST_TEST(m.request_generation_tokens.count() == 4u);
  finish();
}

// While it runs: tokens count as they come, and what the others wait for is told.
BOOST_FIXTURE_TEST_CASE(a_request_is_seen_before_its_end, stub_process) {
  scheduler_limits l;
  l.max_num_seqs = 1;
  l.max_model_len = 1000;
  l.kv_blocks = 20;
  launch(l);
  open("first", stub_prompt(10, 1), endless(900));
  open("second", stub_prompt(12, 2), endless(5));
  BOOST_REQUIRE(turn(600));
  const auto peek = [&](const auto& to, const auto& question, auto report) {
    auto answer = ask(self.ptr(), to, std::chrono::milliseconds(1000), question);
    BOOST_REQUIRE(turn(60));
    answer.receive([&](const decltype(report)& r) { report = r; }, [](caf::error&) { BOOST_FAIL("no answer"); });
    return report;
  };
  const auto now = peek(parts.front, gateway_query{}, gateway_report{}).metrics.at(0);
  BOOST_TEST(now.generation_tokens > 0u);
  BOOST_TEST(now.generation_tokens < 900u);
  BOOST_TEST(now.prompt_tokens == 10u);
  BOOST_TEST(now.length == 0u);
  const auto& engine = parts.engines[0].scheduler;
  BOOST_TEST(peek(engine, scheduler_query{}, scheduler_report{}).waits_for == "places");
  sched.run();
  const auto end = query<gateway_report>(parts.front, gateway_query{}).metrics.at(0);
  BOOST_TEST(end.generation_tokens == 905u);
  BOOST_TEST(end.prompt_tokens == 22u);
  BOOST_TEST(query<scheduler_report>(engine, scheduler_query{}).waits_for == "");
  finish();
}

BOOST_AUTO_TEST_CASE(constraints_and_their_masks_are_counted) {
  LLM llm(tiny(1));
  BOOST_TEST(metric(llm.metrics(), "grammar_compiled_total") == 0);
  sampling_params p{.temperature = 0, .max_tokens = 5};
  p.so_args = structured_output_args{.schema_type = "regex", .schema = "[a-z]{60}"};
  BOOST_TEST(llm.generate({ids("a", {300, 301}), ids("b", {302})}, p).at(1).token_ids.size() == 5u);
  p.so_args->schema = "[a-z";
  BOOST_TEST(llm.generate({ids("bad", {300})}, p).at(0).finish_reason == "error");
  const std::string text = llm.metrics();
  BOOST_TEST(metric(text, "grammar_requests_waiting") == 0);
  BOOST_TEST(metric(text, "grammar_compiled_total") == 1);
  BOOST_TEST(metric(text, "grammar_refused_total") == 1);
  BOOST_TEST(metric(text, "grammar_cache_entries") == 2);
  BOOST_TEST(metric(text, "grammar_compile_seconds_count") == 2);
  BOOST_TEST(metric(text, "grammar_compile_seconds_sum") > 0);
  BOOST_TEST(metric(text, "mask_windows_total") == 2 * 5); // one for each token
  BOOST_TEST(metric(text, "mask_fill_seconds_count") == 2 * 5 + metric(text, "mask_windows_total", "made=\"late\""));
  BOOST_TEST(metric(text, "mask_fill_seconds_sum") > 0);
}

BOOST_AUTO_TEST_SUITE_END()
