// The promise of exactness.md §1 at the widths of DeepSeek-V4.1-Flash: hidden size 5120, 64 heads of 512, all formats;
// few layers and experts, generated weights. index_topk and the candidate blocks are small, so that a short prompt is
// long enough for selection and candidates to act.
#include "runtime/base/noise.hpp"
#include "runtime/model/make_checkpoint.hpp"
#include "runtime/model/reduced_config.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/process.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/tiny_model.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int vocab = 1024;

// The checkpoint, made once for all cases.
class real_checkpoint {
public:
  real_checkpoint() {
    const std::string file = TROUPE_SOURCE_DIR "/models/v41-flash/config.json";
    model_reduction r;
    r.layer_ids = {14, 20, 24}; // ratio 2 with Engram; ratio 1 and candidate source; its own selection among candidates
    r.drafter_layers = 0;
    r.experts = 2;
    r.vocab = vocab;
    r.engram_vocab = 4000;
    r.set = {{"index_topk", "16"}, {"candidate_topk_blocks", "8"}};
    checkpoint_recipe recipe;
    recipe.folder = folder_ / "model";
    recipe.config_text =
        reduced_config(nlohmann::ordered_json::parse(test_support::read_text(file)), file, r, vocab).dump();
    recipe.config_file = file;
    recipe.tokenizer = file; // never read here
    make_checkpoint(recipe, [](std::uint64_t, std::uint64_t) { return true; });
    source_ = std::make_shared<const checkpoint>(recipe.folder);
  }
  const std::shared_ptr<const checkpoint>& source() const { return source_; }

private:
  test_support::temporary_folder folder_;
  std::shared_ptr<const checkpoint> source_;
};

const std::shared_ptr<const checkpoint>& real_source() {
  static const real_checkpoint made;
  return made.source();
}

std::vector<std::int32_t> prompt_of(int tokens) {
  std::vector<std::int32_t> ids;
  for (std::uint32_t i = 0; static_cast<int>(ids.size()) < tokens; ++i)
    ids.push_back(static_cast<std::int32_t>(philox(11, i, 0, 0, 0).w[0] % vocab));
  return ids;
}

struct outcome {
  std::vector<std::int32_t> tokens; // greedy continuation
  std::vector<float> logits;        // of some rows of the prompt and of every token of the continuation
  bool operator==(const outcome&) const = default;
};

class real_model {
public:
  real_model(const std::string& device_name, int threads, int max_rows)
      : dev_(make_device(device_name, {.threads = threads, .cores = {}})) {
    std::vector<std::int32_t> map(vocab);
    std::iota(map.begin(), map.end(), 0);
    weights_ = load_weights(real_source(), *dev_, {.experts = true, .max_positions = 600}, map);
    runner_options o;
    o.max_rows = max_rows;
    o.max_sequences = 2;
    o.kv_blocks = 8;
    o.state_slots = 3;
    o.max_model_len = 512;
    o.max_logit_rows = 4;
    runner_ = std::make_unique<model_runner>(weights_, *dev_, o);
  }

  outcome run(const std::vector<std::int32_t>& prompt, int chunk, int more) {
    outcome out;
    hand_sequence sequence(1, 1, 512);
    const auto wanted = [&](std::size_t position) { return position % 37 == 0 || position + 1 >= prompt.size(); };
    for (std::size_t at = 0; at < prompt.size();) {
      const std::size_t n = std::min<std::size_t>(static_cast<std::size_t>(chunk), prompt.size() - at);
      step(sequence, std::span(prompt).subspan(at, n));
      for (std::size_t r = 0; r < n; ++r)
        if (wanted(at + r))
          take(static_cast<std::int32_t>(r), out);
      at += n;
    }
    for (int i = 0; i < more; ++i) {
      out.tokens.push_back(argmax(std::span(out.logits).last(vocab)));
      step(sequence, std::span(out.tokens).last(1));
      take(0, out);
    }
    return out;
  }

private:
  void step(hand_sequence& sequence, std::span<const std::int32_t> tokens) {
    step_rows rows;
    sequence.feed(rows, tokens);
    runner_->forward(rows);
  }
  void take(std::int32_t row, outcome& out) {
    const auto logits = runner_->logits(std::span(&row, 1));
    out.logits.resize(out.logits.size() + vocab);
    runner_->work().to_host(out.logits.data() + out.logits.size() - vocab, logits.as<const std::byte>(),
                            vocab * sizeof(float));
    runner_->work().synchronise();
  }

  std::unique_ptr<device> dev_;
  std::shared_ptr<const model_weights> weights_;
  std::unique_ptr<model_runner> runner_;
};

bool usable() {
  if (any_sanitizer)
    BOOST_TEST_MESSAGE("skipped: sanitizers make products of this width too slow");
  return !any_sanitizer;
}

} // namespace

BOOST_AUTO_TEST_SUITE(real_dimensions)

BOOST_AUTO_TEST_CASE(threads_and_chunks_change_nothing) {
  if (!usable())
    return;
  const auto prompt = prompt_of(170);
  const outcome whole = real_model("cpu", 2, 256).run(prompt, 256, 8);
  // Logits that say something: finite, several units apart, different from row to row.
  float low = 0, high = 0;
  for (const float x : whole.logits) {
    BOOST_REQUIRE(std::isfinite(x));
    low = std::min(low, x), high = std::max(high, x);
  }
  BOOST_TEST(high - low > 10);
  BOOST_TEST(high < 100);
  BOOST_TEST(whole.logits.size() == (6u + 8u) * vocab); // positions 0, 37, ..., 148, and the last
  std::set<std::int32_t> best;
  for (std::size_t at = 0; at < whole.logits.size(); at += vocab)
    best.insert(argmax(std::span(whole.logits).subspan(at, vocab)));
  BOOST_TEST(best.size() > 7u);
  const outcome cut = real_model("cpu", 1, 48).run(prompt, 48, 8);
  BOOST_TEST((cut == whole));
}

BOOST_AUTO_TEST_CASE(reference_and_cpu_give_equal_bits) {
  if (!usable())
    return;
  const auto prompt =
      prompt_of(40); // enough for selection (16 of 20 blocks of two tokens), not too much for scalar code
  const outcome cpu = real_model("cpu", 2, 128).run(prompt, 128, 2);
  BOOST_TEST((real_model("reference", 1, 24).run(prompt, 24, 2) == cpu));
}

BOOST_AUTO_TEST_CASE(cuda_reference_and_cpu_give_equal_bits) {
  if (!usable() || !gpu())
    return;
  const auto prompt = prompt_of(170);
  const outcome cpu = real_model("cpu", 2, 256).run(prompt, 256, 8);
  for (const int chunk : {48, 256})
    BOOST_TEST((real_model("cuda-reference", 1, chunk).run(prompt, chunk, 8) == cpu), chunk);
}

BOOST_AUTO_TEST_SUITE_END()
