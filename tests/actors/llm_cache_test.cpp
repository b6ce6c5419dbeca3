// What the cache does for requests on the embedded model: prefix hits, forks and preemption change speed, never bytes.
#include "actors/llm.hpp"
#include "runtime/request/seeds.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <bit>
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

engine_options options_with(int kv_blocks, bool prefix_cache, bool async) {
  engine_options o;
  o.model = TROUPE_SOURCE_DIR "/models/tiny-v41";
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 128;
  o.max_model_len = 1024;
  o.threads = 1;
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

BOOST_AUTO_TEST_CASE(c02_preemption_changes_no_byte) {
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(request_of(ids_of(90 + 9 * i, i)));
    params.push_back(params_of(160, 70 + static_cast<std::uint64_t>(i)));
  }
  LLM roomy(options_with(0, false, false));
  const auto expected = roomy.generate(requests, params);
  for (const bool async : {false})
    for (const bool prefix_cache : {false}) {
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

BOOST_AUTO_TEST_SUITE_END()
