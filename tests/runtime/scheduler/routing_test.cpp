#include "runtime/kv/block_pool.hpp"
#include "runtime/scheduler/routing.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

using hashes = std::vector<std::uint64_t>;

engine_load load(std::int64_t tokens, std::int32_t free_blocks = 1000) {
  return {.accepting = true, .outstanding_tokens = tokens, .free_blocks = free_blocks, .blocks = 1000};
}

hashes chain_of(std::uint64_t family, std::size_t blocks) {
  hashes h(blocks);
  for (std::size_t i = 0; i < blocks; ++i)
    h[i] = family * 1000 + i;
  return h;
}

// Sizes by Zipf's law: size k * unit with weight 1 / k, k = 1..sizes.
std::int64_t zipf(std::mt19937_64& random, int sizes, int unit) {
  double sum = 0;
  for (int k = 1; k <= sizes; ++k)
    sum += 1.0 / k;
  double at = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
  for (int k = 1; k < sizes; ++k)
    if ((at -= 1.0 / k) < 0)
      return std::int64_t{k} * unit;
  return std::int64_t{sizes} * unit;
}

// Engines that compute the same number of tokens per unit of time, each its requests in order; `route` chooses.
struct outcome {
  double worst = 0;   // max / mean of outstanding tokens, where the mean is above the largest request
  double average = 0; // over the trace
  double found = 0;   // share of requests with a common prefix that met it
  std::int64_t count = 0;
};

template <class Route> outcome run_trace(unsigned seed, bool families, Route route) {
  constexpr std::size_t n = 8;
  constexpr std::int64_t largest = 64 * 128;
  std::mt19937_64 random(seed);
  std::vector<std::deque<std::int64_t>> queues(n);
  std::vector<std::map<std::uint64_t, int>> seen(n);
  outcome o;
  std::int64_t with_family = 0, met = 0, samples = 0;
  for (int request = 0; request < 6000; ++request) {
    std::vector<engine_load> loads;
    std::int64_t sum = 0;
    for (const auto& q : queues) {
      loads.push_back(load(std::accumulate(q.begin(), q.end(), std::int64_t{0}), 100000));
      sum += loads.back().outstanding_tokens;
    }
    const double mean = static_cast<double>(sum) / n;
    if (mean > largest) {
      const auto most = std::max_element(loads.begin(), loads.end(), [](const auto& a, const auto& b) {
        return a.outstanding_tokens < b.outstanding_tokens;
      });
      const double ratio = static_cast<double>(most->outstanding_tokens) / mean;
      o.worst = std::max(o.worst, ratio);
      o.average += ratio;
      ++samples;
    }
    const std::int64_t tokens = zipf(random, 64, 128);
    // some families of prompts are far more frequent than others
    const std::uint64_t family = static_cast<std::uint64_t>(zipf(random, 2000, 1));
    const hashes chain = families ? chain_of(family, static_cast<std::size_t>(tokens / 128)) : hashes{};
    const std::size_t chosen = route(loads, tokens, chain);
    BOOST_REQUIRE(chosen < n);
    if (families) {
      ++with_family;
      met += seen[chosen][family]++ > 0 ? 1 : 0;
    }
    queues[chosen].push_back(tokens);
    // the engines work a little less than what comes in, then catch up
    const std::int64_t step = request % 2000 < 1500 ? 180 : 500;
    for (auto& q : queues)
      for (std::int64_t work = step; work > 0 && !q.empty();) {
        const std::int64_t done = std::min(work, q.front());
        work -= done;
        if ((q.front() -= done) == 0)
          q.pop_front();
      }
  }
  o.average /= static_cast<double>(std::max<std::int64_t>(samples, 1));
  o.count = samples;
  o.found = with_family > 0 ? static_cast<double>(met) / static_cast<double>(with_family) : 0;
  return o;
}

} // namespace

BOOST_AUTO_TEST_SUITE(routing)

BOOST_AUTO_TEST_CASE(least_tokens_then_free_kv_then_the_lower_index) {
  engine_router r;
  BOOST_TEST(r.choose_engine(std::vector{load(30), load(10), load(20)}, 100, {}) == 1u);
  BOOST_TEST(r.choose_engine(std::vector{load(10, 50), load(10, 60), load(10, 60)}, 100, {}) == 1u);
  std::vector<engine_load> engines{load(30), load(10), load(20)};
  engines[1].accepting = false;
  BOOST_TEST(r.choose_engine(engines, 100, {}) == 2u);
  BOOST_TEST(r.choose_engine(std::vector<engine_load>{}, 100, {}) == no_engine);
  engines[0].accepting = engines[2].accepting = false;
  BOOST_TEST(r.choose_engine(engines, 100, chain_of(1, 3)) == no_engine);
  BOOST_TEST(r.remembered() == 0u);
}

BOOST_AUTO_TEST_CASE(an_engine_without_room_is_passed_over_while_another_is_not_much_busier) {
  engine_router r;
  BOOST_TEST(r.choose_engine(std::vector{load(0, 9), load(500, 10)}, 1280, {}) == 1u);
  BOOST_TEST(r.choose_engine(std::vector{load(0, 9), load(50000, 10)}, 1280, {}) == 0u);
  BOOST_TEST(r.choose_engine(std::vector{load(10, 9), load(5, 3)}, 1280, {}) == 1u); // none has room
}

BOOST_AUTO_TEST_CASE(a_prefix_goes_where_it_was_within_the_bound) {
  engine_router r({.remembered_blocks = 100, .max_over_mean = 1.5, .slack_tokens = 500});
  BOOST_TEST(r.choose_engine(std::vector{load(0), load(5)}, 600, chain_of(7, 4)) == 0u);
  // 1700 + 600 <= 1.5 * (1700 + 100 + 600) / 2 + 500; two tokens more are too many
  BOOST_TEST(r.choose_engine(std::vector{load(1700), load(100)}, 600, chain_of(7, 6)) == 0u);
  BOOST_TEST(r.choose_engine(std::vector{load(1702), load(100)}, 600, chain_of(7, 2)) == 1u);
  // now the first two blocks are at 1, and the deeper ones still at 0
  BOOST_TEST(r.choose_engine(std::vector{load(0), load(100)}, 600, chain_of(7, 2)) == 1u);
  BOOST_TEST(r.choose_engine(std::vector{load(100), load(0)}, 600, chain_of(7, 3)) == 0u);
  // no room for what must be computed, no hit
  BOOST_TEST(r.choose_engine(std::vector{load(100, 1), load(0)}, 600, chain_of(7, 3)) == 1u);
  std::vector<engine_load> gone{load(100), load(0)};
  gone[0].accepting = false;
  BOOST_TEST(r.choose_engine(gone, 600, chain_of(7, 6)) == 1u);
}

// However long it is: where all are idle nothing speaks against the engine that has the prefix.
BOOST_AUTO_TEST_CASE(a_long_request_goes_where_its_prefix_is) {
  for (const std::size_t engines : {2u, 4u, 8u}) {
    engine_router r;
    std::vector<engine_load> loads(engines, load(0));
    for (std::uint64_t family = 0; family < engines; ++family) {
      loads[family].outstanding_tokens = -1; // so that it is chosen
      BOOST_REQUIRE(r.choose_engine(loads, 60'000, chain_of(family, 60)) == family);
      loads[family].outstanding_tokens = 0;
    }
    for (std::uint64_t family = 0; family < engines; ++family) {
      BOOST_TEST(r.choose_engine(loads, 60'000, chain_of(family, 60)) == family);
      loads[family].outstanding_tokens = 512;
      BOOST_TEST(r.choose_engine(loads, 60'000, chain_of(family, 60)) == family);
      loads[family].outstanding_tokens = 90'000; // much busier than the others
      const std::size_t other = r.choose_engine(loads, 60'000, chain_of(family, 60));
      BOOST_TEST(other != family);
      loads[family].outstanding_tokens = 0;
    }
  }
}

BOOST_AUTO_TEST_CASE(memory_is_bounded_and_the_beginning_of_chains_stays_longest) {
  engine_router r({.remembered_blocks = 4, .max_over_mean = 2, .slack_tokens = 1 << 20});
  const std::vector<engine_load> first{load(0), load(10)}, second{load(10), load(0)};
  BOOST_TEST(r.choose_engine(first, 10, chain_of(1, 3)) == 0u);
  BOOST_TEST(r.choose_engine(first, 10, chain_of(2, 3)) == 0u); // two of the first are forgotten
  BOOST_TEST(r.remembered() == 4u);
  BOOST_TEST(r.choose_engine(second, 10, chain_of(1, 1)) == 0u);
  BOOST_TEST(r.choose_engine(second, 10, hashes{1002}) == 1u);
  r.forget(0);
  BOOST_TEST(r.remembered() == 1u);
  BOOST_TEST(r.choose_engine(second, 10, chain_of(1, 1)) == 1u);
  BOOST_TEST(r.choose_engine(first, 10, chain_of(5, 50)) == 0u); // longer than the memory
  BOOST_TEST(r.remembered() == 4u);
  engine_router none({.remembered_blocks = 0, .max_over_mean = 2, .slack_tokens = 0});
  BOOST_TEST(none.choose_engine(first, 10, chain_of(1, 3)) == 0u);
  BOOST_TEST(none.choose_engine(second, 10, chain_of(1, 3)) == 1u);
}

// Eight engines, 6000 requests of 128 to 8192 tokens.
BOOST_AUTO_TEST_CASE(c23_outstanding_tokens_stay_even_on_a_skewed_trace) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    engine_router plain, with_prefixes;
    std::size_t turn = 0;
    const outcome even =
        run_trace(seed, false, [&](const auto& l, auto t, const auto& c) { return plain.choose_engine(l, t, c); });
    const outcome shared = run_trace(
        seed, true, [&](const auto& l, auto t, const auto& c) { return with_prefixes.choose_engine(l, t, c); });
    const outcome round_robin = run_trace(seed, true, [&](const auto&, auto, const auto&) { return turn++ % 8; });
    BOOST_TEST_MESSAGE("max/mean: tokens " << even.worst << " (average " << even.average << "), with prefixes "
                                           << shared.worst << " (" << shared.average << ", found " << shared.found
                                           << "), round robin " << round_robin.worst << " (" << round_robin.average
                                           << ", found " << round_robin.found << "), " << even.count << " samples");
    BOOST_REQUIRE(even.count > 1000);
    BOOST_TEST(even.worst < 1.8); // the largest request is as long as the mean where the samples begin
    BOOST_TEST(even.average < 1.2);
    BOOST_TEST(shared.worst < 1.8);
    BOOST_TEST(shared.average < 1.35);
    BOOST_TEST(shared.found > round_robin.found + 0.1); // prefixes are met more often, at that price
    BOOST_TEST(round_robin.average > 1.5);
  }
}

BOOST_AUTO_TEST_CASE(the_same_calls_give_the_same_answers) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::vector<std::size_t> answers[2];
    for (auto& list : answers) {
      std::mt19937_64 random(seed);
      engine_router r({.remembered_blocks = 50, .max_over_mean = 1.25, .slack_tokens = 500});
      for (int i = 0; i < 200; ++i) {
        std::vector<engine_load> loads;
        for (int e = 0; e < 4; ++e)
          loads.push_back(load(static_cast<std::int64_t>(random() % 4000), static_cast<std::int32_t>(random() % 40)));
        list.push_back(
            r.choose_engine(loads, static_cast<std::int64_t>(random() % 3000), chain_of(random() % 9, random() % 8)));
      }
    }
    BOOST_TEST(answers[0] == answers[1], boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
