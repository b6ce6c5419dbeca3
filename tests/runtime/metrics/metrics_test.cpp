#include "runtime/metrics/exposition.hpp"
#include "runtime/metrics/metrics_text.hpp"
#include "runtime/metrics/token_counters.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <sstream>

using namespace troupe;

namespace {

constexpr std::array small_bounds{0.3, 1.0, 20.0};

// The lines of one family, header included.
std::string family(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# HELP "))
      inside = line.starts_with("# HELP " + name + " ");
    if (inside && !line.starts_with("# HELP "))
      out += line + "\n";
  }
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(a_bucket_takes_values_up_to_its_bound) {
  histogram<small_bounds> h;
  for (const double v : {0.0, 0.3, 0.30000000000000004, 1.0, 5.0, 20.0, 20.5, 1e9})
    h.observe(v);
  BOOST_TEST((h.counts == std::array<std::uint64_t, 4>{2, 2, 2, 2}));
  BOOST_TEST(h.count() == 8u);
  BOOST_TEST(h.sum == 0.0 + 0.3 + 0.30000000000000004 + 1.0 + 5.0 + 20.0 + 20.5 + 1e9);
  histogram<small_bounds> twice = h;
  twice.add(h);
  BOOST_TEST((twice.counts == std::array<std::uint64_t, 4>{4, 4, 4, 4}));
  BOOST_TEST(twice.sum == 2 * h.sum);
}

BOOST_AUTO_TEST_CASE(the_text_is_exactly_this) {
  histogram<small_bounds> h;
  for (const double v : {0.25, 0.5, 0.75, 100.0})
    h.observe(v);
  exposition out;
  out.family("troupe:a_total", exposition::type::counter, "Back\\slash, \"quotes\" and a\nline.");
  out.sample({}, std::uint64_t{18446744073709551615u});
  out.sample({{"id", "a\\b\"c\nd"}, {"x", ""}}, std::uint64_t{0});
  out.family("troupe:b", exposition::type::gauge, "b");
  out.sample({{"n", "1"}}, 0.1);
  out.sample({{"n", "2"}}, -std::numeric_limits<double>::infinity());
  out.sample({{"n", "3"}}, std::numeric_limits<double>::quiet_NaN());
  out.family("troupe:c_seconds", exposition::type::histogram, "c");
  out.sample({}, h);
  out.sample({{"engine", "0"}}, histogram<small_bounds>{});
  BOOST_TEST(out.text() == R"(# HELP troupe:a_total Back\\slash, "quotes" and a\nline.
# TYPE troupe:a_total counter
troupe:a_total 18446744073709551615
troupe:a_total{id="a\\b\"c\nd",x=""} 0
# HELP troupe:b b
# TYPE troupe:b gauge
troupe:b{n="1"} 0.1
troupe:b{n="2"} -Inf
troupe:b{n="3"} NaN
# HELP troupe:c_seconds c
# TYPE troupe:c_seconds histogram
troupe:c_seconds_bucket{le="0.3"} 1
troupe:c_seconds_bucket{le="1.0"} 3
troupe:c_seconds_bucket{le="20.0"} 3
troupe:c_seconds_bucket{le="+Inf"} 4
troupe:c_seconds_sum 101.5
troupe:c_seconds_count 4
troupe:c_seconds_bucket{engine="0",le="0.3"} 0
troupe:c_seconds_bucket{engine="0",le="1.0"} 0
troupe:c_seconds_bucket{engine="0",le="20.0"} 0
troupe:c_seconds_bucket{engine="0",le="+Inf"} 0
troupe:c_seconds_sum{engine="0"} 0
troupe:c_seconds_count{engine="0"} 0
)");
}

BOOST_AUTO_TEST_CASE(branches_count_by_how_they_ended) {
  request_metrics m;
  branch_record r;
  r.finish_reason = "length";
  r.prompt_tokens = 100;
  r.output_tokens = 5;
  r.max_tokens = 5;
  r.first_token = 0.02;
  r.last_token = 0.42;
  r.end = 0.5;
  for (int i = 0; i < 4; ++i)
    r.gaps.observe(0.1);
  m.take(r);
  r.finish_reason = "stop";
  r.output_tokens = 1;
  r.first_token = r.last_token = 3;
  r.gaps = {};
  m.take(r);
  branch_record refused;
  refused.finish_reason = "error";
  refused.cause = "no_space";
  refused.prompt_tokens = 1000;
  m.take(refused);
  m.take(refused);
  refused.finish_reason = "abort";
  refused.cause = "caller";
  m.take(refused);
  BOOST_TEST((m.stop == 1 && m.length == 1 && m.abort == 1 && m.error == 2));
  BOOST_TEST(m.error_codes.at("no_space") == 2u);
  BOOST_TEST(m.abort_causes.at("caller") == 1u);
  BOOST_TEST(m.request_prompt_tokens.count() == 5u);
  BOOST_TEST(m.request_prompt_tokens.sum == 3200);
  BOOST_TEST(m.time_to_first_token.count() == 2u);
  BOOST_TEST(m.time_to_first_token.counts[3] == 1u); // 0.02 belongs to the bucket of 0.02
  BOOST_TEST(m.inter_token_latency.count() == 4u);
  BOOST_TEST(m.time_per_output_token.count() == 1u); // one token has no time behind it
  BOOST_TEST(m.time_per_output_token.sum == (0.42 - 0.02) / 4);
  BOOST_TEST(m.decode_time.count() == 2u);
  BOOST_TEST(m.end_to_end.count() == 5u);
}

BOOST_AUTO_TEST_CASE(tokens_count_as_they_come) {
  token_counters c;
  c.take(0, 0, 10);
  BOOST_TEST(c.prompt.load() == 0u); // no output yet
  c.take(0, 2, 10);
  c.take(2, 5, 10);
  c.take(5, 5, 10);
  c.take(0, 1, 7);
  BOOST_TEST(c.prompt.load() == 17u);
  BOOST_TEST(c.generation.load() == 6u);
}

BOOST_AUTO_TEST_CASE(a_known_sequence_gives_this_text) {
  std::vector<engine_snapshot> engines(2);
  engine_snapshot& e = engines[1];
  e.running = 3;
  e.waiting = 2;
  e.waits_for = "blocks";
  e.kv_blocks = 40;
  e.kv.used_blocks = 10;
  e.kv.cached_blocks = 6;
  e.state_slots = 8;
  e.kv.used_slots = 3;
  e.kv.queried_tokens = 256;
  e.kv.hit_tokens = 128;
  e.kv.snapshots_kept = 5;
  e.steps.take_step(true, 96, 0.004);
  e.steps.take_step(false, 3, 0.0011);
  e.steps.take_step(false, 8, 0.0009);
  e.steps.speculation.take_sequence(2, 1);
  e.steps.speculation.take_sequence(1, 1);
  e.preemptions = 1;
  e.requests.stop = 4;
  e.requests.abort = 2;
  e.requests.abort_causes = {{"caller", 1}, {"shutdown", 1}};
  e.steps.masks.in_time = 30;
  e.steps.masks.late = 2;
  e.steps.masks.fill_time.observe(3e-6);
  e.steps.masks.fill_time.observe(4e-4);
  grammar_report grammars{
      .waiting = 4, .queued = 1, .compiled = 9, .refused = 3, .hits = 12, .kept_bytes = 5000, .compile_time = {}};
  grammars.compile_time.observe(0.0015);
  grammars.compile_time.observe(0.7);
  const std::string text = metrics_text("tiny \"v41\"", engines, {.grammars = &grammars, .verifiers = nullptr});
  const std::string both = R"(troupe:NAME{model_name="tiny \"v41\"",engine="0"} FIRST
troupe:NAME{model_name="tiny \"v41\"",engine="1"} SECOND
)";
  const auto two = [&](const std::string& name, const std::string& type, const std::string& first,
                       const std::string& second) {
    std::string want = "# TYPE troupe:" + name + " " + type + "\n" + both;
    for (const auto& [mark, value] :
         {std::pair(std::string("NAME"), name), {"NAME", name}, {"FIRST", first}, {"SECOND", second}})
      want.replace(want.find(mark), mark.size(), value);
    BOOST_TEST(family(text, "troupe:" + name) == want);
  };
  two("num_requests_running", "gauge", "0", "3");
  two("num_requests_waiting", "gauge", "0", "2");
  two("kv_cache_usage_perc", "gauge", "0", "0.25");
  two("kv_blocks", "gauge", "0", "40");
  two("kv_blocks_cached", "gauge", "0", "6");
  two("state_slot_usage_perc", "gauge", "0", "0.375");
  two("prefix_cache_queries_total", "counter", "0", "256");
  two("prefix_cache_hits_total", "counter", "0", "128");
  two("num_preemptions_total", "counter", "0", "1");
  const std::string waiting = family(text, "troupe:num_requests_waiting_by_reason");
  BOOST_TEST(waiting.find(R"(engine="1",reason="blocks"} 2)") != std::string::npos, waiting);
  BOOST_TEST(waiting.find(R"(engine="1",reason="turn"} 0)") != std::string::npos, waiting);
  BOOST_TEST(family(text, "troupe:mask_windows_total") == R"(# TYPE troupe:mask_windows_total counter
troupe:mask_windows_total{model_name="tiny \"v41\"",engine="0",made="in_time"} 0
troupe:mask_windows_total{model_name="tiny \"v41\"",engine="0",made="late"} 0
troupe:mask_windows_total{model_name="tiny \"v41\"",engine="1",made="in_time"} 30
troupe:mask_windows_total{model_name="tiny \"v41\"",engine="1",made="late"} 2
)");
  const std::string fills = family(text, "troupe:mask_fill_seconds");
  BOOST_TEST(fills.find(R"(engine="1",le="2e-06"} 0)") != std::string::npos, fills);
  BOOST_TEST(fills.find(R"(engine="1",le="5e-06"} 1)") != std::string::npos);
  BOOST_TEST(fills.find(R"(mask_fill_seconds_count{model_name="tiny \"v41\"",engine="1"} 2)") != std::string::npos);
  const auto one = [&](const std::string& name, const std::string& type, const std::string& value) {
    BOOST_TEST(family(text, "troupe:" + name) == "# TYPE troupe:" + name + " " + type + "\ntroupe:" + name +
                                                     R"({model_name="tiny \"v41\""} )" + value + "\n");
  };
  one("grammar_requests_waiting", "gauge", "4");
  one("grammar_compilations_queued", "gauge", "1");
  one("grammar_compiled_total", "counter", "9");
  one("grammar_refused_total", "counter", "3");
  one("grammar_cache_hits_total", "counter", "12");
  one("grammar_cache_bytes", "gauge", "5000");
  const std::string compiles = family(text, "troupe:grammar_compile_seconds");
  BOOST_TEST(compiles.find(R"({model_name="tiny \"v41\"",le="0.002"} 1)") != std::string::npos, compiles);
  BOOST_TEST(compiles.find(R"({model_name="tiny \"v41\"",le="1.0"} 2)") != std::string::npos);
  BOOST_TEST(family(text, "troupe:request_aborts_total") == R"(# TYPE troupe:request_aborts_total counter
troupe:request_aborts_total{model_name="tiny \"v41\"",engine="1",cause="caller"} 1
troupe:request_aborts_total{model_name="tiny \"v41\"",engine="1",cause="shutdown"} 1
)");
  const std::string ends = family(text, "troupe:request_success_total");
  for (const char* line : {R"({model_name="tiny \"v41\"",engine="1",finished_reason="stop"} 4)",
                           R"({model_name="tiny \"v41\"",engine="1",finished_reason="abort"} 2)",
                           R"({model_name="tiny \"v41\"",engine="0",finished_reason="length"} 0)"})
    BOOST_TEST(ends.find(line) != std::string::npos, line);
  BOOST_TEST(family(text, "troupe:state_snapshots_total").find(R"(engine="1",event="kept"} 5)") != std::string::npos);
  const std::string steps = family(text, "troupe:steps_total");
  BOOST_TEST(steps.find(R"(engine="1",kind="prefill"} 1)") != std::string::npos);
  BOOST_TEST(steps.find(R"(engine="1",kind="decode"} 2)") != std::string::npos);
  BOOST_TEST(family(text, "troupe:spec_decode_num_accepted_tokens_per_pos_total") ==
             R"(# TYPE troupe:spec_decode_num_accepted_tokens_per_pos_total counter
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="tiny \"v41\"",engine="1",position="0"} 2
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="tiny \"v41\"",engine="1",position="1"} 0
)");
  const std::string rows = family(text, "troupe:iteration_tokens_total");
  BOOST_TEST(rows.find(R"(engine="1",le="1.0"} 0)") != std::string::npos);
  BOOST_TEST(rows.find(R"(engine="1",le="8.0"} 2)") != std::string::npos);
  BOOST_TEST(rows.find(R"(engine="1",le="64.0"} 2)") != std::string::npos);
  BOOST_TEST(rows.find(R"(engine="1",le="128.0"} 3)") != std::string::npos);
  BOOST_TEST(rows.find(R"(iteration_tokens_total_sum{model_name="tiny \"v41\"",engine="1"} 107)") != std::string::npos);
  BOOST_TEST(family(text, "troupe:step_time_seconds").find(R"(engine="1",phase="run",le="0.001"} 1)") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_that_dashboards_look_for_are_there) {
  const grammar_report grammars;
  const std::vector<std::vector<reliability>> verifiers(1);
  const std::string text =
      metrics_text("m", std::vector<engine_snapshot>(1), {.grammars = &grammars, .verifiers = &verifiers});
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "num_requests_waiting_by_reason",
                           "kv_cache_usage_perc",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "num_preemptions_total",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "request_success_total",
                           "iteration_tokens_total_bucket",
                           "request_prompt_tokens_bucket",
                           "request_generation_tokens_bucket",
                           "time_to_first_token_seconds_bucket",
                           "inter_token_latency_seconds_bucket",
                           "request_time_per_output_token_seconds_bucket",
                           "e2e_request_latency_seconds_bucket",
                           "request_queue_time_seconds_bucket",
                           "request_prefill_time_seconds_bucket",
                           "request_decode_time_seconds_bucket",
                           "request_params_n_bucket",
                           "request_params_max_tokens_bucket",
                           "spec_decode_num_drafts_total",
                           "spec_decode_num_draft_tokens_total",
                           "spec_decode_num_accepted_tokens_total"})
    BOOST_TEST(text.find("\ntroupe:" + std::string(name) + "{model_name=\"m\",engine=\"0\"") != std::string::npos,
               name);
  // Every family has one header, and no line stands outside a family.
  std::istringstream in(text);
  std::string name;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# TYPE "))
      name = line.substr(7, line.find(' ', 7) - 7);
    else if (!line.starts_with("# HELP "))
      BOOST_TEST(line.starts_with(name));
  }
}

BOOST_AUTO_TEST_CASE(what_a_process_does_not_know_is_left_out) {
  const grammar_report grammars;
  const std::vector<std::vector<reliability>> verifiers(1);
  const std::vector<engine_snapshot> engines(1);
  const auto has = [](const std::string& text, const std::string& name) {
    return text.find("troupe:" + name) != std::string::npos;
  };
  const std::string none = metrics_text("m", engines, {}),
                    compiling = metrics_text("m", engines, {.grammars = &grammars, .verifiers = nullptr}),
                    verifying = metrics_text("m", engines, {.grammars = nullptr, .verifiers = &verifiers});
  for (const char* of_pool : {"grammar_requests_waiting", "grammar_compiled_total", "grammar_compile_seconds"})
    BOOST_TEST((!has(none, of_pool) && has(compiling, of_pool) && !has(verifying, of_pool)), of_pool);
  for (const char* of_verifier : {"spec_decode_tokens_per_step", "spec_decode_budget_rows", "spec_decode_useless",
                                  "spec_decode_calibration_error", "spec_decode_reliability_drafts_total"})
    BOOST_TEST((!has(none, of_verifier) && !has(compiling, of_verifier) && has(verifying, of_verifier)), of_verifier);
  for (const char* of_engines : {"mask_windows_total", "mask_fill_seconds", "spec_decode_num_draft_tokens_total",
                                 "decode_steps_by_size_total", "num_requests_running"})
    BOOST_TEST((has(none, of_engines) && has(compiling, of_engines) && has(verifying, of_engines)), of_engines);
  BOOST_TEST(!has(none, "grammar_"));
}

BOOST_AUTO_TEST_CASE(confidences_stand_beside_what_was_accepted) {
  calibration c;
  const float block[] = {.95f, .45f, 1.f};
  for (const std::int32_t accepted : {3, 1, 0, 2})
    c.observe({block, accepted});
  const std::vector<std::vector<reliability>> verifiers{{}, {c.positions().begin(), c.positions().end()}};
  const std::string text =
      metrics_text("m", std::vector<engine_snapshot>(2), {.grammars = nullptr, .verifiers = &verifiers});
  const auto value = [&](const std::string& name, const std::string& position, const std::string& bin) {
    const std::string labels =
        R"({model_name="m",engine="1",position=")" + position + R"(",confidence=")" + bin + R"("} )";
    const std::string all = family(text, "troupe:spec_decode_reliability_" + name + "_total");
    const std::size_t at = all.find(labels);
    BOOST_REQUIRE_MESSAGE(at != std::string::npos, name << " lacks " << labels);
    return all.substr(at + labels.size(), all.find('\n', at) - at - labels.size());
  };
  // Of drafts that verification reached: four, the three behind an accepted one, the two behind two.
  BOOST_TEST(value("drafts", "0", "0.9-1.0") == "4");
  BOOST_TEST(value("accepted", "0", "0.9-1.0") == "3");
  BOOST_TEST(std::stod(value("confidence", "0", "0.9-1.0")) == 3.8, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(value("drafts", "1", "0.4-0.5") == "3");
  BOOST_TEST(value("accepted", "1", "0.4-0.5") == "2");
  BOOST_TEST(value("drafts", "2", "0.9-1.0") == "2");
  BOOST_TEST(value("accepted", "2", "0.9-1.0") == "1");
  BOOST_TEST(value("drafts", "2", "0.0-0.1") == "0");
  const std::string drafts = family(text, "troupe:spec_decode_reliability_drafts_total");
  BOOST_TEST(std::ranges::count(drafts, '\n') == 1 + 3 * 10); // nothing of an engine whose verifier knows nothing
}

BOOST_AUTO_TEST_CASE(drafts_count_by_position) {
  draft_counters c;
  c.take_sequence(5, 3);
  c.take_sequence(2, 2);
  c.take_sequence(0, 0);
  c.take_sequence(1, 0);
  BOOST_TEST((c.drafts == 3 && c.draft_tokens == 8 && c.accepted_tokens == 5));
  BOOST_TEST(c.verified_at == (std::vector<std::uint64_t>{3, 2, 1, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST(c.accepted_at == (std::vector<std::uint64_t>{2, 2, 1, 0, 0}), boost::test_tools::per_element());
  BOOST_TEST(
      (c.verified_drafts.counts[0] == 1 && c.verified_drafts.counts[1] == 1 && c.verified_drafts.counts[5] == 1));
  c.take_step(16, 7.5, 12, 8, 15);
  c.take_step(16, 0, 0, 4, 15); // nothing was foretold
  c.take_step(8, 2.5, 4, 3, 5);
  BOOST_TEST((c.steps_by_size == std::map<std::int32_t, std::uint64_t>{{8, 1}, {16, 2}}));
  BOOST_TEST((c.expected_tokens == 10 && c.emitted_tokens == 11));
  BOOST_TEST(c.expected_seconds == .016, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(c.measured_seconds == .02, boost::test_tools::tolerance(1e-12));

  std::vector<engine_snapshot> engines(1);
  engines[0].steps.speculation = c;
  engines[0].verifier.calibration_error = {.25, .125};
  const std::vector<std::vector<reliability>> verifiers(1);
  const std::string text = metrics_text("m", engines, {.grammars = nullptr, .verifiers = &verifiers});
  BOOST_TEST(family(text, "troupe:spec_decode_num_accepted_tokens_per_pos_total") ==
             R"(# TYPE troupe:spec_decode_num_accepted_tokens_per_pos_total counter
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",engine="0",position="0"} 2
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",engine="0",position="1"} 2
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",engine="0",position="2"} 1
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",engine="0",position="3"} 0
troupe:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",engine="0",position="4"} 0
)");
  BOOST_TEST(family(text, "troupe:spec_decode_calibration_error") ==
             R"(# TYPE troupe:spec_decode_calibration_error gauge
troupe:spec_decode_calibration_error{model_name="m",engine="0",position="0"} 0.25
troupe:spec_decode_calibration_error{model_name="m",engine="0",position="1"} 0.125
)");
  BOOST_TEST(family(text, "troupe:decode_steps_by_size_total") == R"(# TYPE troupe:decode_steps_by_size_total counter
troupe:decode_steps_by_size_total{model_name="m",engine="0",rows="8"} 1
troupe:decode_steps_by_size_total{model_name="m",engine="0",rows="16"} 2
)");
}

BOOST_AUTO_TEST_SUITE_END()
