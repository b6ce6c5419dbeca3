// What the cache does for requests on the embedded model: prefix hits, forks and preemption change speed, never bytes.
#include "actors/llm.hpp"
#include "runtime/request/seeds.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/sanitizers.hpp"
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <set>

using namespace troupe;

namespace {

engine_options options_with(int kv_blocks, bool prefix_cache, bool async) {
  engine_options o = embedded_options();
  o.kv_blocks = kv_blocks;
  o.prefix_cache = prefix_cache;
  o.async = async;
  return o;
}

sampling_params params_of(std::int32_t max_tokens, std::uint64_t seed) {
  sampling_params p;
  p.max_tokens = max_tokens;
  p.temperature = 0.8f;
  p.ignore_eos = true;
  p.seq_seed = seed;
  p.top_logprobs = 3;
  return p;
}

generation_request request_of(std::vector<std::int32_t> ids) {
  generation_request r;
  r.prompt_ids = std::move(ids);
  return r;
}

std::vector<std::int32_t> ids_of(std::int32_t count, std::int32_t first) {
  std::vector<std::int32_t> ids{0};
  for (std::int32_t i = 1; i < count; ++i)
    ids.push_back(3 + (first * 977 + i * 31 + i * i % 101) % 8000);
  return ids;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& v) {
  std::vector<std::uint32_t> bits;
  for (const float x : v)
    bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

void check_same(const generation_result& a, const generation_result& b, const std::string& what) {
  BOOST_TEST_CONTEXT(what) {
    BOOST_TEST(!a.failure.has_value());
    BOOST_TEST(a.token_ids == b.token_ids, boost::test_tools::per_element());
    BOOST_TEST(a.text == b.text);
    BOOST_TEST(bits_of(a.logprobs) == bits_of(b.logprobs), boost::test_tools::per_element());
    BOOST_TEST((a.top_logprobs == b.top_logprobs));
    BOOST_TEST(a.finish_reason == b.finish_reason);
    BOOST_TEST(a.seq_seed == b.seq_seed);
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(llm_cache)

BOOST_AUTO_TEST_CASE(c15_a_prefix_hit_gives_the_bytes_of_a_cold_run) {
  const auto base = ids_of(300, 1);
  auto longer = base;
  for (const std::int32_t id : ids_of(200, 2))
    longer.push_back(id);
  auto other = longer;
  other[290] += 1; // shares two blocks and differs in the third
  const std::vector<std::vector<std::int32_t>> prompts{base, base, longer, longer, other};
  for (const auto& [yoco, hits] : {std::pair("compact", std::vector<int>{0, 128, 128, 256, 256}),
                                   std::pair("off", std::vector<int>{0, 256, 256, 384, 256})}) {
    engine_options without = options_with(0, false, false), with = options_with(0, true, true);
    without.yoco = with.yoco = yoco;
    without.nextn = with.nextn = 0; // how many drafts a step verifies depends on measured times, and so do steps
    LLM cold(without), warm(with);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto p = params_of(12, 5 + i);
      const auto expected = cold.generate({request_of(prompts[i])}, p),
                 seen = warm.generate({request_of(prompts[i])}, p);
      check_same(seen[0], expected[0], std::string(yoco) + ", request " + std::to_string(i));
      BOOST_TEST(expected[0].cached_tokens == 0);
      BOOST_TEST(seen[0].cached_tokens == hits[i], yoco << ", request " << i << ": " << seen[0].cached_tokens);
      BOOST_TEST(seen[0].usage.steps <= expected[0].usage.steps);
    }
  }
}

// By default, and with one sequence at a time too, states are kept for several prompts, and for where they part.
BOOST_AUTO_TEST_CASE(c15_a_common_beginning_is_found_from_the_third_prompt_on) {
  engine_options without = options_with(0, false, false), with = options_with(0, true, true);
  without.max_num_seqs = with.max_num_seqs = 1;
  LLM cold(without), warm(with);
  for (int i = 0; i < 4; ++i) {
    auto prompt = ids_of(400, 1);
    for (const std::int32_t id : ids_of(300, i == 3 ? 2 : 2 + i)) // the last is the first once more
      prompt.push_back(id);
    const auto p = params_of(12, 5);
    const auto expected = cold.generate({request_of(prompt)}, p), seen = warm.generate({request_of(prompt)}, p);
    check_same(seen[0], expected[0], "request " + std::to_string(i));
    BOOST_TEST(seen[0].cached_tokens == (std::array{0, 0, 384, 512}[static_cast<std::size_t>(i)]));
  }
}

BOOST_AUTO_TEST_CASE(every_row_of_a_prompt_is_computed_when_it_is_asked_for) {
  LLM cold(options_with(0, false, false)), warm(options_with(0, true, true));
  const auto prompt = ids_of(300, 3);
  auto p = params_of(4, 9);
  warm.generate({request_of(prompt)}, p);
  p.prompt_logprobs = true;
  auto r = request_of(prompt);
  r.logit_rows = {5, 299};
  const auto expected = cold.generate({r}, p), seen = warm.generate({r}, p);
  check_same(seen[0], expected[0], "with prompt log-probabilities");
  BOOST_TEST(seen[0].cached_tokens == 0);
  BOOST_TEST(seen[0].prompt_logprobs.size() == 299u);
  BOOST_TEST(bits_of(seen[0].prompt_logprobs) == bits_of(expected[0].prompt_logprobs),
             boost::test_tools::per_element());
  BOOST_TEST(bits_of(seen[0].logits) == bits_of(expected[0].logits), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(c02_preemption_changes_no_byte) {
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(request_of(ids_of(90 + 9 * i, i)));
    params.push_back(params_of(160, 70 + static_cast<std::uint64_t>(i)));
  }
  LLM roomy(options_with(0, false, false));
  const auto expected = roomy.generate(requests, params);
  std::vector<bool> values{true};
  if (!test::thread_sanitizer)
    values.push_back(false); // without it there are fewer hand-overs
  for (const bool async : values)
    for (const bool prefix_cache : values) {
      LLM tight(options_with(6, prefix_cache, async)); // each needs up to three blocks
      const auto seen = tight.generate(requests, params);
      BOOST_REQUIRE(seen.size() == expected.size());
      std::int64_t preemptions = 0;
      for (std::size_t i = 0; i < seen.size(); ++i) {
        check_same(seen[i], expected[i], "request " + std::to_string(i));
        BOOST_TEST(expected[i].usage.preemptions == 0);
        preemptions += seen[i].usage.preemptions;
      }
      BOOST_TEST(preemptions > 0);
    }
}

BOOST_AUTO_TEST_CASE(c13_branches_are_what_their_seeds_say_alone) {
  LLM llm(options_with(0, true, true)), alone(options_with(0, false, false));
  for (const std::int32_t length : {1, 128, 200}) {
    auto p = params_of(20, 42);
    p.n = 4;
    const auto forked = llm.generate({request_of(ids_of(length, 4))}, p);
    BOOST_REQUIRE(forked.size() == 4u);
    std::set<std::vector<std::int32_t>> different;
    for (std::uint32_t j = 0; j < 4; ++j) {
      auto single = params_of(20, branch_seed(42, j));
      check_same(forked[j], alone.generate({request_of(ids_of(length, 4))}, single)[0], "branch " + std::to_string(j));
      different.insert(forked[j].token_ids);
    }
    BOOST_TEST(different.size() == 4u);
  }
}

BOOST_AUTO_TEST_CASE(c13_without_a_seed_two_runs_differ) {
  LLM llm(options_with(0, true, true));
  auto p = params_of(20, 0);
  p.seq_seed.reset();
  const auto a = llm.generate({request_of(ids_of(10, 1))}, p), b = llm.generate({request_of(ids_of(10, 1))}, p);
  BOOST_TEST(a[0].seq_seed != b[0].seq_seed);
  BOOST_TEST((a[0].token_ids != b[0].token_ids));
}

BOOST_AUTO_TEST_SUITE_END()
