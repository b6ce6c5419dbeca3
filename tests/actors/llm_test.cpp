// The public API on the embedded model: real tokenizer, real weights, real threads.
#include "actors/llm.hpp"
#include "actors/model_process.hpp"
#include "runtime/model/config.hpp"
#include "runtime/request/seeds.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/metric_text.hpp"
#include "tests/support/sanitizers.hpp"
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

using namespace troupe;

namespace {

sampling_params greedy(std::int32_t max_tokens) {
  sampling_params p;
  p.temperature = 0;
  p.max_tokens = max_tokens;
  return p;
}

// Everything of a result that is a function of the request.
std::string line_of(generation_result r) {
  r.usage = {};
  r.cached_tokens = 0;
  std::string line = result_line(r);
  for (const float x : r.logits)
    line += ' ' + std::to_string(std::bit_cast<std::uint32_t>(x));
  return line;
}

} // namespace

BOOST_AUTO_TEST_SUITE(llm_api)

BOOST_AUTO_TEST_CASE(generates_text_and_refuses_bad_requests_one_by_one) {
  LLM llm(embedded_options());
  BOOST_TEST(llm.description().find("cpu-1") != std::string::npos);
  std::vector<generation_request> requests(8);
  requests[0].prompt = "def main():";
  requests[1].prompt = "";
  requests[2].prompt_ids = std::vector<std::int32_t>{};
  requests[3].prompt_ids = std::vector<std::int32_t>{0, 8192};
  requests[4].prompt_ids = std::vector<std::int32_t>(1025, 5);
  requests[5].prompt = "a \xff b";
  requests[6].prompt = "x";
  requests[6].prompt_ids = std::vector<std::int32_t>{1};
  requests[7].prompt = "x";
  requests[7].logit_rows = {2};
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].id = "q" + std::to_string(i);
  const auto results = llm.generate(requests, greedy(8));
  BOOST_REQUIRE(results.size() == 8u);
  BOOST_TEST(results[0].finish_reason == "length");
  BOOST_TEST(results[0].token_ids.size() == 8u);
  BOOST_TEST(results[0].text == llm.vocabulary().decode(results[0].token_ids));
  BOOST_TEST(results[0].prompt_tokens ==
             static_cast<int>(llm.vocabulary().encode("def main():", encode_mode::plain).size()) + 1);
  const std::vector<std::string> codes{"",
                                       "empty_prompt",
                                       "empty_prompt",
                                       "invalid_prompt",
                                       "prompt_too_long",
                                       "invalid_prompt",
                                       "invalid_prompt",
                                       "invalid_params"};
  for (std::size_t i = 1; i < results.size(); ++i) {
    BOOST_TEST(results[i].id == requests[i].id);
    BOOST_REQUIRE(results[i].failure.has_value());
    BOOST_TEST(results[i].failure->code == codes[i]);
  }
  BOOST_TEST(results[4].failure->message.find("1025") != std::string::npos);
  BOOST_TEST(results[4].failure->message.find("1024") != std::string::npos);
  auto bad = greedy(0);
  BOOST_TEST(llm.generate({requests[0]}, bad)[0].failure->code == "invalid_params");
  const std::string metrics = llm.metrics();
  BOOST_TEST(test_support::metric(metrics, "request_success_total", "finished_reason=\"error\"") == 0);
  BOOST_TEST(test_support::metric(metrics, "request_errors_total") == 8);
  BOOST_TEST(test_support::metric(metrics, "request_errors_total", "code=\"empty_prompt\"") == 2);
  BOOST_TEST(test_support::metric(metrics, "request_errors_total", "code=\"prompt_too_long\"") == 1);
}

BOOST_AUTO_TEST_CASE(streams_aborts_and_refuses_duplicates) {
  LLM llm(embedded_options());
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  std::vector<generation_result> ends;
  const auto listen = [&](const generation_event& e) {
    const std::lock_guard lock(mutex);
    text += e.text;
    if (e.result)
      ends.push_back(*e.result);
    changed.notify_all();
  };
  generation_request r;
  r.id = "one";
  r.prompt = "Once upon a time";
  auto p = greedy(900);
  p.ignore_eos = true;
  BOOST_REQUIRE(llm.submit(r, p, listen));
  const auto again = llm.submit(r, p, listen);
  BOOST_REQUIRE(!again);
  BOOST_TEST(again.failure().code == "duplicate_id");
  {
    std::unique_lock lock(mutex);
    BOOST_REQUIRE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return text.size() > 20; }));
    BOOST_TEST(ends.empty());
  }
  BOOST_TEST(llm.abort("one"));
  BOOST_TEST(!llm.abort("two"));
  std::unique_lock lock(mutex);
  BOOST_REQUIRE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return !ends.empty(); }));
  BOOST_TEST(ends[0].finish_reason == "abort");
  BOOST_TEST(ends[0].text == text);
  BOOST_TEST(ends.size() == 1u);
  BOOST_TEST(llm.vocabulary().decode(ends[0].token_ids) == text);
}

BOOST_AUTO_TEST_CASE(destruction_ends_live_requests_with_abort) {
  std::mutex mutex;
  std::vector<std::string> ends;
  {
    LLM llm(embedded_options());
    auto p = greedy(900);
    p.ignore_eos = true;
    for (int i = 0; i < 3; ++i) {
      generation_request r;
      r.prompt = "Once";
      BOOST_REQUIRE(llm.submit(r, p, [&](const generation_event& e) {
        const std::lock_guard lock(mutex);
        if (e.result)
          ends.push_back(e.result->finish_reason);
      }));
    }
  }
  BOOST_TEST(ends == std::vector<std::string>(3, "abort"), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(wrong_options_name_key_value_and_remedy) {
  const auto message_of = [](auto change) {
    auto o = embedded_options();
    change(o);
    try {
      LLM llm(o);
    } catch (const config_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  BOOST_TEST(message_of([](auto& o) { o.ep = 1000; }).find("ep = 1000") != std::string::npos);
  BOOST_TEST(message_of([](auto& o) { o.engines = 0; }).find("engines = 0") != std::string::npos);
  BOOST_TEST(message_of([](auto& o) { o.max_model_len = 16385; }).find("16384") != std::string::npos);
  BOOST_TEST(message_of([](auto& o) { o.roundings = "none"; }).find("serving, model or off") != std::string::npos);
  BOOST_TEST(message_of([](auto& o) { o.device = "abacus"; }).find("abacus") != std::string::npos);
  BOOST_TEST(message_of([](auto& o) { o.model = "/nowhere"; }).find("/nowhere") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(d17_engines_of_one_process_share_nothing) {
  auto small = embedded_options();
  small.max_num_seqs = 1;
  LLM first(embedded_options()), second(small);
  const generation_request one{.id = "r", .prompt = "def main():", .prompt_ids = {}, .logit_rows = {}};
  std::vector<generation_result> a, b;
  std::thread other([&] { b = second.generate({one, one}, greedy(24)); });
  a = first.generate({one}, greedy(24));
  other.join();
  BOOST_TEST(a.at(0).text == b.at(0).text);
  BOOST_TEST(b.at(1).failure.value().code == "duplicate_id"); // of the same engine; the other one's is no duplicate
}

BOOST_AUTO_TEST_CASE(d12_sizes_of_caches_and_cores) {
  BOOST_TEST(kv_blocks_for(1024, 4, 1000, 1 << 30) == 33);
  BOOST_TEST(kv_blocks_for(1024, 4, 1000, 21000) == 21);
  BOOST_TEST(kv_blocks_for(1024, 4, 1000, 10) == 9); // one sequence always fits
  const auto p = share_cores({2, 3, 5, 7}, 2, 2, 2);
  BOOST_TEST(p.engines[1] == std::vector<int>{3}, boost::test_tools::per_element());
  BOOST_TEST(p.experts[1] == std::vector<int>{7}, boost::test_tools::per_element());
  BOOST_TEST(share_cores({0, 1}, 1, 1, 0).engines[0].empty()); // a process that leaves cores to others pins nothing
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(llm_exactness)

namespace {

constexpr int request_count = test::by_build(64, 12, 6);

struct mixed {
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
};

// Requests of many kinds over golden-like texts.
mixed mixed_requests(std::int32_t vocab) {
  std::mt19937_64 random(11);
  const auto pick = [&](std::int32_t lo, std::int32_t hi) {
    return lo + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(hi - lo + 1));
  };
  const char* texts[] = {"def main():",          "Once upon a time there was",
                         "The weather today is", "SELECT name FROM",
                         "1, 2, 3, 4,",          "{\"a\": [1,"};
  mixed m;
  for (int i = 0; i < request_count; ++i) {
    generation_request r;
    r.id = "m" + std::to_string(i);
    r.seed_from_id = true;
    sampling_params p;
    if (pick(0, 3) == 0) {
      std::vector<std::int32_t> ids;
      for (std::int32_t k = pick(1, pick(0, 2) ? 60 : 300); k > 0; --k)
        ids.push_back(pick(3, vocab - 1));
      r.prompt_ids = ids;
    } else {
      r.prompt = texts[pick(0, 5)];
    }
    p.max_tokens = pick(1, 12);
    p.temperature = pick(0, 2) == 0 ? 0.0f : 0.5f + 0.25f * static_cast<float>(pick(0, 4));
    p.top_p = pick(0, 1) ? 1.0f : 0.9f;
    p.top_k = pick(0, 2) ? -1 : pick(1, 50);
    p.min_p = pick(0, 3) ? 0.0f : 0.05f;
    p.top_logprobs = pick(0, 2) ? 0 : pick(1, 5);
    p.logprobs_mode = pick(0, 2) ? logprobs_source::raw : logprobs_source::processed;
    p.prompt_logprobs = pick(0, 3) == 0;
    p.min_tokens = std::min(pick(0, 3), p.max_tokens);
    p.ignore_eos = pick(0, 1) != 0;
    p.n = pick(0, 9) == 0 ? 2 : 1;
    if (pick(0, 3) == 0)
      p.stop = {"e", "ing"};
    if (pick(0, 5) == 0)
      p.logit_bias = {{pick(3, vocab - 1), 8.0f}};
    if (pick(0, 5) == 0)
      p.golden_token_ids = {pick(3, vocab - 1), pick(3, vocab - 1)};
    if (pick(0, 5) == 0)
      r.logit_rows = {0};
    m.requests.push_back(std::move(r));
    m.params.push_back(std::move(p));
  }
  return m;
}

std::map<std::pair<std::string, int>, std::string> run(const engine_options& o, const mixed& m, unsigned seed,
                                                       bool one_by_one) {
  LLM llm(o);
  std::vector<std::size_t> order(m.requests.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::mt19937_64 random(seed);
  if (seed > 0)
    std::shuffle(order.begin(), order.end(), random);
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
  std::map<std::pair<std::string, int>, std::string> lines;
  for (const std::size_t i : order) {
    requests.push_back(m.requests[i]);
    params.push_back(m.params[i]);
    if (!one_by_one && requests.size() < order.size())
      continue;
    for (const auto& r : llm.generate(requests, params)) {
      BOOST_TEST(!r.failure.has_value(), r.id << ": " << (r.failure ? r.failure->message : ""));
      lines[{r.id, r.index}] = line_of(r);
    }
    requests.clear(), params.clear();
  }
  return lines;
}

} // namespace

BOOST_AUTO_TEST_CASE(mixed_requests_are_byte_identical_in_every_setting) {
  auto o = embedded_options();
  o.chunked_prefill = false;
  o.max_num_batched_tokens = 512;
  const mixed m = mixed_requests(8192);
  o.async = o.prefix_cache = false;
  const auto alone = run(o, m, 0, true);
  BOOST_TEST(alone.size() >= static_cast<std::size_t>(request_count));
  struct setting {
    int chunk, threads, engines, ep, seqs;
    bool async, prefix_cache;
    int kv_blocks, cp;
  };
  std::vector<setting> settings{
      {16, 1, 1, 1, 64, true, true, 0, 1}, {64, 2, 1, 1, 64, false, true, 0, 2},  {0, 2, 2, 1, 5, true, false, 0, 1},
      {64, 1, 2, 2, 64, true, true, 8, 1}, {16, 2, 1, 4, 7, false, false, 10, 1}, {128, 1, 1, 1, 3, true, true, 4, 2},
      {0, 1, 2, 3, 64, true, true, 0, 2},  {0, 1, 1, 1, 9, true, true, 0, 4},     {128, 1, 1, 1, 64, true, true, 0, 2}};
  if (test::thread_sanitizer)
    settings = {{64, 2, 2, 2, 64, true, true, 8, 2}};
  unsigned seed = 1;
  for (const setting& s : settings) {
    auto v = embedded_options();
    v.chunked_prefill = s.chunk > 0;
    v.max_num_batched_tokens = s.chunk > 0 ? s.chunk : 512;
    v.threads = s.threads;
    v.engines = s.engines;
    v.ep = s.ep;
    v.cp = s.cp;
    v.max_num_seqs = s.seqs;
    v.async = s.async;
    v.prefix_cache = s.prefix_cache;
    v.kv_blocks = s.kv_blocks;
    const auto lines = run(v, m, seed++, false);
    BOOST_TEST(lines.size() == alone.size());
    for (const auto& [key, line] : alone)
      BOOST_TEST(lines.at(key) == line, "setting " << seed - 1 << ": " << key.first);
  }
}

BOOST_AUTO_TEST_SUITE_END()
