// Prompts on one worker, outputs on others, here as several actor systems of one process: the bytes are those of one
// engine, whatever is handed over, refused, lost or given up, and nothing stays behind.
#include "tests/support/sanitizers.hpp"
#include "tests/support/small_cluster.hpp"
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

// Rank 0 computes prompts, `outputs` others go on behind them.
struct divided_cluster : small_cluster {
  explicit divided_cluster(std::uint32_t outputs = 2, const engine_options& output_options = embedded_options(),
                           bool shared = true) {
    shared_memory = shared;
    kinds[0] = engine_kind::prompt;
    for (std::uint32_t rank = 1; rank <= outputs; ++rank)
      kinds[rank] = engine_kind::completion;
    start(0);
    for (std::uint32_t rank = 1; rank <= outputs; ++rank)
      start(rank, output_options);
  }
  handoff_counters counters(std::uint32_t rank) const { return workers.at(rank)->report().handoffs; }
  std::uint64_t received() const {
    std::uint64_t sum = 0;
    for (const auto& [rank, w] : workers)
      sum += w->report().handoffs.received;
    return sum;
  }
  // Once all requests have ended: no lease, no block, no sequence.
  void expect_nothing_held() const {
    for (const auto& [rank, w] : workers) {
      scheduler_report r;
      for (int i = 0; i < 600; ++i) {
        r = w->report();
        if (r.live == 0 && r.running == 0 && r.handoffs.sending + r.handoffs.receiving == 0)
          break;
        std::this_thread::sleep_for(50ms);
      }
      BOOST_TEST_INFO("rank " << rank);
      BOOST_TEST(r.live == 0u);
      BOOST_TEST(r.running == 0u);
      BOOST_TEST(r.handoffs.sending + r.handoffs.receiving == 0u);
    }
  }
};

std::size_t divided(const std::vector<asked>& all) {
  return static_cast<std::size_t>(std::ranges::count_if(all, [](const asked& a) { return !a.params.prompt_logprobs; }));
}

} // namespace

BOOST_AUTO_TEST_SUITE(prompt_handoffs)

BOOST_AUTO_TEST_CASE(a_prompt_is_computed_here_and_its_output_there) {
  std::vector<asked> one(1);
  one[0].request.id = "one";
  one[0].request.prompt = std::string(200, 'x') + " the quick brown fox";
  one[0].params.temperature = 0;
  one[0].params.seq_seed = 1;
  one[0].params.max_tokens = 20;
  const auto expected = alone(one);
  divided_cluster c(1);
  LLM llm(c.access());
  check_equal(run(llm, one), expected);
  c.expect_nothing_held(); // a sender hears of its last delivery after the output has begun
  BOOST_TEST(c.counters(0).sent == 1u);
  BOOST_TEST(c.counters(1).received == 1u);
  BOOST_TEST(c.counters(0).sent_bytes == c.counters(1).received_bytes);
  BOOST_TEST(c.counters(0).sent_bytes > 0u);
  BOOST_TEST(c.workers.at(0)->report().metrics.decode_steps == 0u);
  BOOST_TEST(c.workers.at(1)->report().metrics.prefill_steps == 0u);
}

// Drafts included: the drafter's part of the cache is handed over, too.
BOOST_AUTO_TEST_CASE(c21_requests_of_every_kind_give_the_bytes_of_one_process) {
  const auto all = mixed_requests(test::by_build(24, 10, 6));
  const auto expected = alone(all);
  for (const bool shared : {true, false}) {
    divided_cluster c(2, embedded_options(), shared);
    LLM llm(c.access());
    check_equal(run(llm, all), expected);
    c.expect_nothing_held();
    BOOST_TEST(c.counters(0).sent == divided(all));
    BOOST_TEST(c.received() == divided(all));
  }
}

BOOST_AUTO_TEST_CASE(prompts_that_begin_alike_are_found_where_prompts_are_computed) {
  std::vector<asked> all;
  for (int i = 0; i < 6; ++i) {
    asked a;
    a.request.id = "r" + std::to_string(i);
    for (int k = 0; k < 30; ++k)
      a.request.prompt = a.request.prompt.value_or("") + "The quick brown fox jumps over the lazy dog. ";
    *a.request.prompt += std::to_string(i);
    a.params.max_tokens = 10;
    a.params.temperature = i % 2 == 0 ? 0 : 0.9f;
    a.params.seq_seed = 5;
    all.push_back(a);
  }
  const auto expected = alone(all);
  divided_cluster c;
  LLM llm(c.access());
  check_equal(run(llm, {all[0]}), {*expected.find("r0/0")});
  std::int64_t cached = 0;
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
  for (std::size_t i = 1; i < all.size(); ++i)
    requests.push_back(all[i].request), params.push_back(all[i].params);
  for (const generation_result& r : llm.generate(requests, params)) {
    BOOST_TEST(bytes_of(r) == expected.at(r.id + "/0"));
    cached += r.cached_tokens;
  }
  BOOST_TEST(cached >= 5 * 128);
}

BOOST_AUTO_TEST_CASE(without_room_requests_wait_for_it) {
  auto small = embedded_options();
  small.max_num_seqs = 2;
  small.kv_blocks = 9;
  const auto all = mixed_requests(test::by_build(24, 10, 6));
  const auto expected = alone(all);
  divided_cluster c(2, small);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
  BOOST_TEST(c.received() >= divided(all) / 2); // branches of a request may take the place of others
  c.expect_nothing_held();
}

BOOST_AUTO_TEST_CASE(workers_for_outputs_end_and_start_anew_while_requests_run) {
  divided_cluster c;
  check_through_restarts(c, mixed_requests(test::by_build(24, 12, 6)), 4, 1);
  c.expect_nothing_held();
}

BOOST_AUTO_TEST_CASE(the_worker_for_prompts_ends_and_starts_anew_while_requests_run) {
  const auto all = mixed_requests(test::by_build(24, 12, 6));
  const auto expected = alone(all);
  divided_cluster c;
  LLM llm(c.access());
  check_equal(run(llm, all,
                  [&](std::size_t step) {
                    if (step >= 3)
                      return;
                    c.workers.erase(0);
                    c.start(0);
                  }),
              expected);
  c.expect_nothing_held();
  for (int i = 0; i < 100 && c.counters(0).sent == 0; ++i) // it takes part again once the gateway has heard of it
    check_equal(run(llm, all), expected);
  BOOST_TEST(c.counters(0).sent > 0u);
}

BOOST_AUTO_TEST_CASE(without_a_worker_for_prompts_the_others_compute_everything) {
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  divided_cluster c;
  c.workers.erase(0);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
  BOOST_TEST(c.received() == 0u);
  c.expect_nothing_held();
}

// Leases end what nothing else would end, and the request is computed by one engine.
BOOST_AUTO_TEST_CASE(a_cache_that_never_arrives_is_given_up_by_both_sides) {
  const auto all = mixed_requests(6);
  const auto expected = alone(all);
  divided_cluster c(0);
  c.workers.clear();
  c.senders_known = false;
  c.times = {200, 60, 400};
  c.kinds[1] = engine_kind::completion;
  c.start(0);
  c.start(1);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
  c.expect_nothing_held();
  BOOST_TEST(c.received() == 0u);
  BOOST_TEST(c.counters(1).expired + c.counters(0).expired >= 1u);
}

BOOST_AUTO_TEST_CASE(requests_that_are_given_up_anywhere_leave_nothing) {
  divided_cluster c;
  LLM llm(c.access());
  const int count = test::by_build(60, 20, 10);
  std::atomic<int> left{count};
  for (int i = 0; i < count; ++i) {
    generation_request r;
    r.id = "r" + std::to_string(i);
    r.prompt = std::string(static_cast<std::size_t>(100 + 9 * i), static_cast<char>('a' + i % 20));
    sampling_params p;
    p.max_tokens = 200;
    p.ignore_eos = true;
    p.n = i % 5 == 0 ? 2 : 1;
    left += p.n - 1;
    BOOST_REQUIRE(llm.submit(r, p, [&](const generation_event& e) { left -= e.result ? 1 : 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (i % 7)));
    if (i >= 3)
      llm.abort("r" + std::to_string(i - i % 4));
  }
  for (int i = 0; i < count; ++i)
    llm.abort("r" + std::to_string(i));
  for (int i = 0; i < 600 && left > 0; ++i)
    std::this_thread::sleep_for(50ms);
  BOOST_TEST(left == 0);
  c.expect_nothing_held();
}

BOOST_AUTO_TEST_SUITE_END()
