// The whole engine against the reference's golden values (tests/data/model/golden): roundings off, where the comparison
// is sharp, through chunked prefill, continuous batching and expert executors.
#include "actors/llm.hpp"
#include "runtime/model/safetensors.hpp"
#include "tests/support/sanitizers.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

using namespace troupe;

namespace {

const std::vector<std::string> all_cases{"one_token",      "chat_json", "code_130", "chat_lighthouse",
                                         "chat_two_turns", "doc_257",   "doc_300",  "doc_700"};
const std::vector<std::string> cases(all_cases.begin(), all_cases.begin() + test::by_build(8, 3, 2));

template <class T> std::vector<T> get(const safetensors_file& file, const std::string& name) {
  const host_tensor* t = file.find(name);
  BOOST_REQUIRE_MESSAGE(t, name << " is missing");
  std::vector<T> out(t->bytes.size() / sizeof(T));
  if (!out.empty())
    std::memcpy(out.data(), t->bytes.data(), t->bytes.size());
  return out;
}

std::vector<std::int32_t> ints(const safetensors_file& file, const std::string& name) {
  if (file.find(name)->dtype == tensor_type::i32)
    return get<std::int32_t>(file, name);
  const auto wide = get<std::int64_t>(file, name);
  return {wide.begin(), wide.end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(llm_golden)

BOOST_AUTO_TEST_CASE(greedy_text_logits_and_prompt_logprobs_of_the_reference) {
  engine_options o;
  o.model = TROUPE_SOURCE_DIR "/models/tiny-v41";
  o.roundings = "off";
  o.yoco = "off";
  o.max_num_batched_tokens = 96;
  o.max_model_len = 1024;
  o.ep = 2;
  o.threads = 1;
  LLM llm(o);
  std::vector<generation_request> requests;
  for (const auto& name : cases) {
    const safetensors_file file(TROUPE_TEST_DATA "/model/golden/" + name + ".safetensors");
    generation_request r;
    r.id = name;
    r.prompt_ids = ints(file, "ids");
    r.logit_rows = ints(file, "rows");
    std::reverse(r.logit_rows.begin(), r.logit_rows.end()); // rows come back in the order they were asked for
    requests.push_back(std::move(r));
  }
  sampling_params p;
  p.temperature = 0;
  p.max_tokens = 48;
  p.ignore_eos = true;
  p.prompt_logprobs = true;
  const auto results = llm.generate(requests, p);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const safetensors_file file(TROUPE_TEST_DATA "/model/golden/" + cases[i] + ".safetensors");
    const generation_result& r = results[i];
    BOOST_REQUIRE(!r.failure);
    const auto greedy = ints(file, "raw.greedy.tokens");
    const auto margin = get<float>(file, "raw.greedy.margin");
    BOOST_REQUIRE(r.token_ids.size() == greedy.size());
    for (std::size_t t = 0; t < greedy.size() && margin[t] >= 0.01f; ++t, ++compared)
      BOOST_TEST(r.token_ids[t] == greedy[t], cases[i] << " token " << t);
    const auto logprobs = get<float>(file, "raw.prompt_logprobs");
    BOOST_REQUIRE(r.prompt_logprobs.size() == logprobs.size());
    float worst = 0;
    for (std::size_t t = 0; t < logprobs.size(); ++t)
      worst = std::max(worst, std::abs(r.prompt_logprobs[t] - logprobs[t]));
    BOOST_TEST(worst < 2e-3f, cases[i] << " prompt log-probabilities");
    const auto logits = get<float>(file, "raw.logits");
    const std::size_t rows = requests[i].logit_rows.size(), vocab = logits.size() / rows;
    BOOST_REQUIRE(r.logits.size() == logits.size());
    worst = 0;
    for (std::size_t k = 0; k < rows; ++k)
      for (std::size_t v = 0; v < vocab; ++v)
        worst = std::max(worst, std::abs(r.logits[k * vocab + v] - logits[(rows - 1 - k) * vocab + v]));
    BOOST_TEST(worst < 2e-3f, cases[i] << " logits");
  }
  BOOST_TEST(compared > 25 * cases.size());
}

BOOST_AUTO_TEST_SUITE_END()
