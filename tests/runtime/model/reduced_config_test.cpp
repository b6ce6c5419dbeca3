#include "runtime/base/result.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/reduced_config.hpp"
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

using namespace troupe;
using json = nlohmann::ordered_json;

namespace {

json base_of(const std::string& model) {
  std::ifstream in(std::string(TROUPE_SOURCE_DIR "/models/") + model + "/config.json");
  return json::parse(in);
}

model_config reduced(const std::string& model, const model_reduction& r, int compressed = 5687) {
  return parse_config(reduced_config(base_of(model), "config.json", r, compressed).dump(), "reduced");
}

std::string refusal(const model_reduction& r, const std::string& model = "v41-flash") {
  try {
    reduced(model, r);
  } catch (const config_error& e) {
    return e.what();
  }
  return "accepted";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_reduced_config)

BOOST_AUTO_TEST_CASE(one_layer_of_each_kind) {
  const model_config base = parse_config(base_of("v41-flash").dump(), "config.json");
  model_reduction r;
  r.layers = -1;
  BOOST_TEST(kept_layers(base, r) == (std::vector<int>{0, 1, 2, 3, 14, 20, 21, 24}), boost::test_tools::per_element());
  r.layers = 12;
  BOOST_TEST(kept_layers(base, r) == (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 14, 20, 21, 24}),
             boost::test_tools::per_element());
  r.layers = 0;
  BOOST_TEST(kept_layers(base, r).size() == 40u);
  for (int layers = 8; layers <= 40; ++layers) { // every number gives a legal model with all kinds
    r.layers = layers;
    const model_config c = reduced("v41-flash", r);
    std::set<std::string> kinds;
    for (int l = 0; l < layers; ++l)
      kinds.insert(layer_kind(c, l));
    BOOST_TEST(c.num_hidden_layers == layers);
    BOOST_TEST(kinds.size() == 8u, layers << " layers");
  }
}

BOOST_AUTO_TEST_CASE(widths_stay_and_counts_shrink) {
  model_reduction r;
  r.layers = -1;
  r.experts = 4;
  r.drafter_layers = 1;
  r.drafter_experts = 2;
  r.vocab = 8192;
  r.engram_vocab = 4000;
  r.set = {{"index_topk", "32"}, {"candidate_topk_blocks", "8"}};
  const model_config c = reduced("v41-flash", r);
  BOOST_TEST(c.hidden_size == 5120);
  BOOST_TEST(c.num_attention_heads == 64);
  BOOST_TEST(c.head_dim == 512);
  BOOST_TEST(c.moe_intermediate_size == 2304);
  BOOST_TEST(c.n_routed_experts == 4);
  BOOST_TEST(c.num_experts_per_tok == 4);
  BOOST_TEST(c.num_nextn_predict_layers == 1);
  BOOST_TEST(c.dspark_num_experts_per_tok == 2);
  BOOST_TEST(c.vocab_size == 8192);
  BOOST_TEST(c.dspark_noise_token_id == 8191);
  BOOST_TEST(c.image_token_id == -1); // 129264 is no id of this vocabulary
  BOOST_TEST(c.engram_compressed_vocab_size == 5687);
  BOOST_TEST(c.index_topk == 32);
  BOOST_TEST(c.candidate_topk_blocks == 8);
  BOOST_TEST(c.kv_source_layer_ids == (std::vector<int>{2, 4, 5}), boost::test_tools::per_element());
  BOOST_TEST(c.index_source_layer_ids == (std::vector<int>{2, 4, 5, 7}), boost::test_tools::per_element());
  BOOST_TEST(c.engram_layer_ids == (std::vector<int>{1, 4}), boost::test_tools::per_element());
  BOOST_TEST(c.dspark_target_layer_ids == (std::vector<int>{5, 6, 7}), boost::test_tools::per_element());
  BOOST_TEST(c.n_prefill_layer == 5);
  BOOST_TEST(c.layers[5].is_candidate_source);
  BOOST_TEST(c.layers[7].uses_candidates);
  // 24 primes from 4000 on for each table; a table of the embedded model's four times as many parts
  BOOST_REQUIRE(c.engram_num_embeddings.size() == 2u);
  BOOST_TEST(c.engram_num_embeddings[0] > 24 * 4000);
  BOOST_TEST(c.engram_num_embeddings[0] < 24 * 4400);
}

BOOST_AUTO_TEST_CASE(nothing_to_reduce_gives_the_same_model) {
  const json base = base_of("v41-flash");
  BOOST_TEST(reduced_config(base, "config.json", {}, 99092) == base);
  BOOST_TEST(reduced("tiny-v41", {}).engram_num_embeddings == (std::vector<std::int64_t>{24064, 24336}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(named_layers) {
  model_reduction r;
  r.drafter_layers = 0;
  r.layer_ids = {14, 20, 24};
  const model_config c = reduced("v41-flash", r);
  BOOST_TEST(c.compress_ratios == (std::vector<int>{2, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST(c.engram_layer_ids == (std::vector<int>{0}), boost::test_tools::per_element());
  BOOST_TEST(c.num_nextn_predict_layers == 0);
  r.layer_ids = {0};
  BOOST_TEST(reduced("v41-flash", r).candidate_source_layer_id == -1);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_refused) {
  model_reduction r;
  r.layers = 7;
  BOOST_TEST(holds(refusal(r), "--layers = 7: not between the number of layer kinds and of layers; give 8 to 40"),
             refusal(r));
  r.layers = 41;
  BOOST_TEST(holds(refusal(r), "--layers = 41"));
  r = {};
  r.layer_ids = {0, 3};
  BOOST_TEST(holds(refusal(r), "--keep-layers = [0,3]: layer 3 shares with layer 2"), refusal(r));
  r.layer_ids = {3, 2};
  BOOST_TEST(holds(refusal(r), "not ascending"), refusal(r));
  r.layer_ids = {0, 40};
  BOOST_TEST(holds(refusal(r), "below 40"), refusal(r));
  r.layer_ids = {2, 3, 20}; // the drafter would read on both sides of the first layer with ratio 1
  BOOST_TEST(holds(refusal(r), "dspark_target_layer_ids"), refusal(r));
  r = {};
  r.set = {{"index_topk", "many"}};
  BOOST_TEST(holds(refusal(r), "--set = index_topk=many: the value is not JSON"), refusal(r));
  r.set = {{"no_such_key", "1"}};
  BOOST_TEST(holds(refusal(r), "text_config has no such key"), refusal(r));
  r.set = {{"hidden_size", "5000"}};
  BOOST_TEST(holds(refusal(r), "text_config.hidden_size = 5000: must be a multiple of 32"), refusal(r));
  r.set = {{"engram_n_heads", "\"x\""}};
  BOOST_TEST(holds(refusal(r), "engram_n_heads"), refusal(r));
}

BOOST_AUTO_TEST_SUITE_END()
