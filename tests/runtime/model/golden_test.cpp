// The embedded model against tests/data/model/golden, made with the PyTorch reference (its README says what to expect).
// Free running and locked layer by layer, in the three roundings, on every device of the shared numerics id.
#include "runtime/model/safetensors.hpp"
#include "runtime/model/step_input.hpp"
#include "runtime/model/weights.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/hand_drafts.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/tiny_model.hpp"
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <iostream>

using namespace troupe;
using namespace troupe::test;
namespace data = boost::unit_test::data;

namespace {

const std::vector<std::string> devices =
    any_sanitizer ? std::vector<std::string>{"queued cpu"} : with_gpu({"reference", "cpu", "queued cpu"});
const std::vector<std::string> cases{"one_token", "chat_lighthouse", "chat_json", "chat_two_turns",
                                     "code_130",  "doc_257",         "doc_300",   "doc_700"};

struct golden_case {
  explicit golden_case(const std::string& name) : file(TROUPE_TEST_DATA "/model/golden/" + name + ".safetensors") {}
  template <class T> std::vector<T> get(const std::string& name) const {
    const auto* t = file.find(name);
    BOOST_REQUIRE_MESSAGE(t, name << " is missing");
    std::vector<T> out(t->bytes.size() / sizeof(T));
    if (!out.empty())
      std::memcpy(out.data(), t->bytes.data(), t->bytes.size());
    return out;
  }
  // The file stores ids as int32 or int64.
  std::vector<std::int32_t> ints(const std::string& name) const {
    const auto* t = file.find(name);
    BOOST_REQUIRE_MESSAGE(t, name << " is missing");
    if (t->dtype == tensor_type::i32)
      return get<std::int32_t>(name);
    auto wide = get<std::int64_t>(name);
    return {wide.begin(), wide.end()};
  }
  safetensors_file file;
};

std::vector<std::int32_t> all_rows(std::size_t n) {
  std::vector<std::int32_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

double log_softmax_at(std::span<const float> row, std::int32_t id) {
  double top = *std::max_element(row.begin(), row.end()), sum = 0;
  for (float x : row)
    sum += std::exp(x - top);
  return row[id] - top - std::log(sum);
}

struct free_run {
  std::vector<float> logits; // [T, V]
  std::size_t v = 0;
  std::span<const float> row(std::size_t t) const { return {logits.data() + t * v, v}; }
};

free_run run_prompt(tiny_model& m, hand_sequence& seq, const std::vector<std::int32_t>& ids) {
  step_rows step;
  seq.feed(step, ids);
  m.runner->forward(step);
  return {m.logits(all_rows(ids.size())), static_cast<std::size_t>(m.runner->config().vocab_size)};
}

struct agreement {
  int wide = 0, wide_equal = 0, middle = 0, middle_equal = 0, narrow = 0, narrow_equal = 0; // margin > 0.5, 0.05, 0.01
  double mean_logprob = 0, golden_mean_logprob = 0;
};

agreement compare(const golden_case& g, const std::string& numerics, const free_run& run,
                  const std::vector<std::int32_t>& ids) {
  agreement a;
  auto best = g.ints(numerics + ".argmax");
  auto margin = g.get<float>(numerics + ".margin");
  auto logprobs = g.get<float>(numerics + ".prompt_logprobs");
  for (std::size_t t = 0; t < ids.size(); ++t) {
    bool same = argmax(run.row(t)) == best[t];
    a.wide += margin[t] > 0.5f;
    a.wide_equal += margin[t] > 0.5f && same;
    a.middle += margin[t] > 0.05f;
    a.middle_equal += margin[t] > 0.05f && same;
    a.narrow += margin[t] > 0.01f;
    a.narrow_equal += margin[t] > 0.01f && same;
    if (t + 1 < ids.size()) {
      a.mean_logprob += log_softmax_at(run.row(t), ids[t + 1]) / static_cast<double>(ids.size() - 1);
      a.golden_mean_logprob += logprobs[t] / static_cast<double>(ids.size() - 1);
    }
  }
  return a;
}

double relative_l2(std::span<const float> ours, std::span<const float> theirs) {
  double d = 0, n = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    d += (ours[i] - theirs[i]) * static_cast<double>(ours[i] - theirs[i]);
    n += theirs[i] * static_cast<double>(theirs[i]);
  }
  return std::sqrt(d / n);
}

} // namespace

BOOST_AUTO_TEST_SUITE(golden_free_running)

BOOST_DATA_TEST_CASE(raw_agrees_to_the_last_digits, data::make(devices), device_name) {
  tiny_model m(device_name, roundings::off);
  for (const auto& name : cases) {
    golden_case g(name);
    auto ids = g.ints("ids"), rows = g.ints("rows");
    auto expected = g.get<float>("raw.logits");
    hand_sequence seq(1, 1, static_cast<int>(ids.size()) + 64);
    auto run = run_prompt(m, seq, ids);
    float worst = 0;
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::size_t i = 0; i < run.v; ++i)
        worst = std::max(worst, std::abs(run.row(rows[r])[i] - expected[r * run.v + i]));
    auto a = compare(g, "raw", run, ids);
    BOOST_TEST_MESSAGE(device_name << " raw " << name << ": worst logit difference " << worst << ", argmax "
                                   << a.narrow_equal << " of " << a.narrow);
    BOOST_TEST(worst <= 2e-3f);
    BOOST_TEST(a.narrow_equal == a.narrow);
    BOOST_TEST(std::abs(a.mean_logprob - a.golden_mean_logprob) < 1e-4);

    // Greedy continuation, token by token, equal up to the first narrow decision.
    auto greedy = g.ints("raw.greedy.tokens");
    auto margin = g.get<float>("raw.greedy.margin");
    std::int32_t next = argmax(run.row(ids.size() - 1));
    for (std::size_t k = 0; k < greedy.size() && margin[k] >= 0.01f; ++k) {
      BOOST_TEST_CONTEXT(name << " greedy token " << k)
      BOOST_REQUIRE_EQUAL(next, greedy[k]);
      step_rows step;
      seq.feed(step, std::span(&next, 1));
      m.runner->forward(step);
      next = argmax(m.logits(std::vector<std::int32_t>{0}));
    }
  }
}

BOOST_DATA_TEST_CASE(model_roundings_agree, data::make(devices), device_name) {
  tiny_model m(device_name, roundings::model);
  int middle = 0, middle_equal = 0;
  for (const auto& name : cases) {
    golden_case g(name);
    auto ids = g.ints("ids");
    hand_sequence seq(1, 1, static_cast<int>(ids.size()));
    auto a = compare(g, "act_off", run_prompt(m, seq, ids), ids);
    BOOST_TEST_MESSAGE(device_name << " act_off " << name << ": argmax " << a.middle_equal << " of " << a.middle
                                   << ", mean log-prob " << a.mean_logprob << " against " << a.golden_mean_logprob);
    middle += a.middle;
    middle_equal += a.middle_equal;
    BOOST_TEST(std::abs(a.mean_logprob - a.golden_mean_logprob) <= 0.005);
  }
  BOOST_TEST(middle_equal >= 0.99 * middle);
}

BOOST_DATA_TEST_CASE(serving_roundings_agree, data::make(devices), device_name) {
  tiny_model m(device_name, roundings::serving);
  agreement sum;
  for (const auto& name : cases) {
    golden_case g(name);
    auto ids = g.ints("ids");
    hand_sequence seq(1, 1, static_cast<int>(ids.size()));
    auto a = compare(g, "act_fp8", run_prompt(m, seq, ids), ids);
    BOOST_TEST_MESSAGE(device_name << " act_fp8 " << name << ": argmax " << a.wide_equal << " of " << a.wide
                                   << " (margin > 0.5), " << a.middle_equal << " of " << a.middle
                                   << " (> 0.05), mean log-prob " << a.mean_logprob << " against "
                                   << a.golden_mean_logprob);
    sum.wide += a.wide;
    sum.wide_equal += a.wide_equal;
    sum.middle += a.middle;
    sum.middle_equal += a.middle_equal;
    BOOST_TEST(std::abs(a.mean_logprob - a.golden_mean_logprob) <= 0.03);
  }
  BOOST_TEST(sum.wide_equal >= 0.99 * sum.wide);
  BOOST_TEST(sum.middle_equal >= 0.95 * sum.middle);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(golden_locked_layers)

// Every layer gets the oracle's input of that layer, so that a difference belongs to one layer.
BOOST_DATA_TEST_CASE(each_layer_agrees,
                     data::make(devices) * data::make(std::vector<std::string>{"raw", "act_off", "act_fp8"}),
                     device_name, numerics) {
  tiny_model m(device_name,
               numerics == "raw"       ? roundings::off
               : numerics == "act_off" ? roundings::model
                                       : roundings::serving,
               1, 1024, false);
  const auto& c = m.runner->config();
  const std::size_t streams = static_cast<std::size_t>(c.hc_mult) * c.hidden_size, mult = c.hc_mult;
  for (const std::string name : {"chat_lighthouse", "code_130"}) {
    golden_case g(name);
    auto ids = g.ints("ids");
    auto trunk = g.get<float>(numerics + ".layers.trunk"), pre = g.get<float>(numerics + ".layers.pre");
    const std::size_t t = ids.size();
    int flipped = 0, rows = 0;
    double worst = 0, worst_flipped = 0;
    auto hook = [&](int layer, bool after, stream& s, dev_ptr<float> trunk_at, dev_ptr<float> pre_at, int n) {
      BOOST_REQUIRE_EQUAL(static_cast<std::size_t>(n), t);
      if (!after) {
        if (layer > 0) {
          s.to_device(trunk_at.as<std::byte>(), trunk.data() + (layer - 1) * t * streams, 4 * t * streams);
          s.to_device(pre_at.as<std::byte>(), pre.data() + (layer - 1) * t * mult, 4 * t * mult);
        }
        return;
      }
      std::vector<float> ours(t * streams);
      s.to_host(ours.data(), trunk_at.as<const std::byte>(), 4 * t * streams);
      s.synchronise();
      for (std::size_t r = 0; r < t; ++r) {
        double d =
            relative_l2({ours.data() + r * streams, streams}, {trunk.data() + (layer * t + r) * streams, streams});
        ++rows;
        if (d > 1e-5) {
          ++flipped;
          worst_flipped = std::max(worst_flipped, d);
        } else {
          worst = std::max(worst, d);
        }
      }
    };
    hand_sequence seq(1, 1, static_cast<int>(t));
    step_rows step;
    seq.feed(step, ids);
    m.runner->forward(step, hook);
    BOOST_TEST_MESSAGE(device_name << " " << numerics << " " << name << ": " << rows << " rows, worst " << worst << ", "
                                   << flipped << " rows flipped by a tie or midpoint, worst of them " << worst_flipped);
    BOOST_TEST(flipped <= 0.01 * rows);
    BOOST_TEST(worst_flipped <= (numerics == "act_fp8" ? 2e-2 : 1e-3)); // an activation one FP8 step off moves more
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(golden_engram)

// Table rows of every position, also when the prompt arrives in chunks and the history comes from the step before.
BOOST_DATA_TEST_CASE(rows_are_equal, data::make(devices) * data::make({1, 3, 1000}), device_name, chunk) {
  tiny_model m(device_name);
  const auto& c = m.runner->config();
  const int columns = (c.engram_max_ngram_size - 1) * c.engram_n_heads,
            tables = static_cast<int>(c.engram_layer_ids.size());
  step_input_builder builder(c, *m.dev, 1024, 4, 4096);
  auto s = m.dev->make_stream();
  auto out = m.dev->allocate(1024 * columns * sizeof(std::int64_t), "rows");
  for (const std::string name : {"one_token", "chat_json", "code_130"}) {
    golden_case g(name);
    auto ids = g.ints("ids"), expected = g.ints("engram_rows");
    for (int e = 0; e < tables; ++e) {
      const auto& w = m.weights->layers[c.engram_layer_ids[e]].engram;
      hand_sequence seq(1, 1, static_cast<int>(ids.size()));
      for (std::size_t at = 0; at < ids.size(); at += chunk) {
        step_rows step;
        auto part = std::span<const std::int32_t>(ids).subspan(at, std::min<std::size_t>(chunk, ids.size() - at));
        seq.feed(step, part);
        auto in = builder.backbone(*s, step);
        m.dev->ops().engram_rows(*s, {in.map, in.tokens, in.history, m.weights->token_map.as<const std::int32_t>(),
                                      m.weights->pad, c.engram_max_ngram_size, c.engram_n_heads,
                                      w.multipliers.as<const std::int64_t>(), w.primes.as<const std::int64_t>(),
                                      w.offsets.as<const std::int64_t>(), out.as<std::int64_t>()});
        std::vector<std::int64_t> rows(part.size() * columns);
        s->to_host(rows.data(), out.as<const std::byte>(), rows.size() * sizeof(std::int64_t));
        s->synchronise();
        for (std::size_t r = 0; r < part.size(); ++r)
          for (int k = 0; k < columns; ++k)
            BOOST_REQUIRE_EQUAL(rows[r * columns + k], expected[((at + r) * tables + e) * columns + k]);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(golden_drafts)

// How many leading drafts are what the target draws there, in positions of a block: the greedy rule accepts these.
void count_right(const std::vector<std::int32_t>& drafts, std::span<const std::int32_t> drawn,
                 std::vector<std::size_t>& right) {
  right.resize(drafts.size());
  for (std::size_t j = 0; j < drafts.size() && drafts[j] == drawn[j]; ++j)
    ++right[j];
}

BOOST_DATA_TEST_CASE(drafter_proposes_the_oracles_tokens_and_as_many_are_right, data::make(devices), device_name) {
  tiny_model m(device_name, roundings::serving, 1, 1024, true, true);
  std::vector<std::size_t> right, oracles;
  for (const auto& name : cases) {
    golden_case g(name);
    auto ids = g.ints("ids"), golden = g.ints("draft.golden"), expected = g.ints("draft.tokens");
    auto confidence = g.get<float>("draft.confidence"), logits = g.get<float>("draft.logits");
    hand_sequence seq(1, 1, static_cast<int>(ids.size() + 1 + expected.size()));
    run_prompt(m, seq, ids);
    const hand_drafts draft = draft_greedily(*m.runner, *m.dev, {1}, golden);
    const double apart = relative_l2(draft.logits, logits);
    BOOST_TEST_MESSAGE(device_name << " drafts of " << name << ": logits apart by " << apart);
    BOOST_TEST(draft.tokens == expected, boost::test_tools::per_element());
    BOOST_TEST(apart < 0.1);
    for (std::size_t j = 0; j < confidence.size(); ++j)
      BOOST_TEST(std::abs(draft.confidence[j] - confidence[j]) < 0.05);
    std::vector<std::int32_t> rows = golden, drawn;
    rows.insert(rows.end(), draft.tokens.begin(), draft.tokens.end());
    const free_run verified = run_prompt(m, seq, rows);
    for (std::size_t r = 0; r + 1 < rows.size(); ++r)
      drawn.push_back(argmax(verified.row(r)));
    const auto greedy = g.ints("greedy.tokens");
    BOOST_REQUIRE(greedy.front() == golden.front());
    count_right(draft.tokens, drawn, right);
    count_right(expected, std::span(greedy).subspan(1), oracles);
  }
  BOOST_TEST(right == oracles, boost::test_tools::per_element());
  BOOST_TEST(oracles == (std::vector<std::size_t>{6, 6, 5, 3, 3}), boost::test_tools::per_element()); // of 8 blocks
}

BOOST_AUTO_TEST_SUITE_END()
