// The engine without actors: the scheduler's state machine, the KV book and the model's step engine in one loop. The
// oracle for the actors, and the place where batching, chunking, threads and devices are compared bit for bit.
#pragma once
#include "runtime/kv/kv_book.hpp"
#include "runtime/model/model_engine.hpp"
#include "runtime/scheduler/batch.hpp"
#include "tests/support/tiny_model.hpp"
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>

namespace troupe::test {

struct hand_request {
  std::vector<std::int32_t> prompt;
  sampling_params params;
  std::uint64_t seed = 0;
};

struct hand_output {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs;
  std::vector<std::vector<token_logprob>> top;
  finish_reason end = finish_reason::none;
  friend bool operator==(const hand_output& a, const hand_output& b) {
    auto bits = [](const std::vector<float>& v) {
      std::vector<std::uint32_t> out(v.size());
      std::transform(v.begin(), v.end(), out.begin(), [](float x) { return std::bit_cast<std::uint32_t>(x); });
      return out;
    };
    return a.tokens == b.tokens && bits(a.logprobs) == bits(b.logprobs) && bits(a.prompt_logprobs) == bits(b.prompt_logprobs)
           && a.top == b.top && a.end == b.end;
  }
};

struct hand_engine_options {
  std::string device = "cpu";
  roundings rounding = roundings::serving;
  int threads = 1, max_num_seqs = 64, max_rows = 512;
};

class hand_engine {
public:
  explicit hand_engine(const hand_engine_options& o)
      : options_(o), dev_(make_device(o.device, {.threads = o.threads, .cores = {}})),
        engine_(load_weights(tiny_checkpoint(), *dev_, {.experts = true, .max_positions = 2048 + 8}, tiny_token_map()), dev_,
                {.rounding = o.rounding, .max_rows = o.max_rows, .max_sequences = o.max_num_seqs, .kv_blocks = 400,
                 .state_slots = o.max_num_seqs + 2, .max_model_len = 2048, .max_logit_rows = 32}) {}

  // Runs the requests (index into `requests` in the order given) together; results by index.
  std::map<int, hand_output> run(const std::vector<hand_request>& requests, const std::vector<int>& order) {
    batch_scheduler scheduler({.max_num_seqs = options_.max_num_seqs, .max_num_batched_tokens = options_.max_rows, .chunked_prefill = true,
                               .max_model_len = 2048, .kv_blocks = 400});
    kv_book book(400, options_.max_num_seqs + 2);
    std::map<int, hand_output> out;
    scheduler_output events;
    auto settle = [&] {
      while (!events.kv.empty() || !events.events.empty()) {
        for (auto& e : events.events) {
          auto& o = out[static_cast<int>(e.id.value)];
          o.prompt_logprobs.insert(o.prompt_logprobs.end(), e.output.prompt_logprobs.begin(), e.output.prompt_logprobs.end());
          if (e.output.sampled) {
            o.tokens.push_back(e.output.token);
            o.logprobs.push_back(e.output.logprob);
            o.top.push_back(e.output.top);
          }
          if (e.end != finish_reason::none)
            o.end = e.end;
        }
        auto orders = events.kv;
        events.clear();
        for (const auto& k : orders)
          if (k.what == kv_order::kind::release) {
            book.release(k.id);
          } else {
            auto fits = book.reserve(k.id, k.blocks);
            const auto* held = book.find(k.id);
            scheduler.grant(k.id, fits, held ? std::span<const block_id>(held->blocks) : std::span<const block_id>{},
                            held ? held->slot : slot_id{}, events);
          }
      }
    };
    for (int index : order) {
      auto spec = std::make_shared<sequence_spec>();
      spec->id = sequence_id(static_cast<std::uint64_t>(index));
      spec->request_id = std::to_string(index);
      spec->params = requests[index].params;
      spec->seq_seed = requests[index].seed;
      spec->prompt_tokens = static_cast<std::int32_t>(requests[index].prompt.size());
      spec->eos_ids = {1};
      auto ok = scheduler.submit(spec, requests[index].prompt, events);
      BOOST_REQUIRE_MESSAGE(ok, (ok ? "" : ok.failure().message));
      settle();
    }
    step_plan plan;
    while (scheduler.live() > 0) {
      BOOST_REQUIRE_MESSAGE(scheduler.plan(plan), "the scheduler stands still");
      engine_.launch(plan);
      step_result result;
      result.number = plan.number;
      engine_.collect(result);
      scheduler.complete(result, events);
      settle();
    }
    BOOST_TEST(book.owners() == 0u);
    return out;
  }

private:
  hand_engine_options options_;
  std::shared_ptr<device> dev_;
  model_engine engine_;
};

// Mixed requests: prompts of 1 to 300 tokens cut from real text, greedy and sampled with every filter, log-probabilities,
// forced tokens, biases; a pure function of the seed.
inline std::vector<hand_request> mixed_requests(int count, std::uint64_t seed, int most_tokens) {
  std::mt19937_64 random(seed);
  safetensors_file text(TROUPE_TEST_DATA "/model/golden/doc_700.safetensors");
  const auto* ids = text.find("ids");
  std::vector<std::int32_t> source(ids->bytes.size() / 4);
  std::memcpy(source.data(), ids->bytes.data(), ids->bytes.size());
  std::vector<hand_request> out;
  for (int i = 0; i < count; ++i) {
    hand_request r;
    static constexpr int lengths[] = {1, 2, 15, 31, 64, 127, 128, 129, 200, 300};
    const int n = lengths[random() % std::size(lengths)];
    const auto at = random() % (source.size() - n);
    r.prompt.push_back(0);
    r.prompt.insert(r.prompt.end(), source.begin() + at, source.begin() + at + n - 1);
    r.seed = random();
    auto& p = r.params;
    p.max_tokens = 1 + static_cast<int>(random() % most_tokens);
    p.ignore_eos = random() % 2;
    switch (random() % 5) {
    case 0: p.temperature = 0; break;
    case 1: p.temperature = 1; break;
    case 2: p.temperature = 0.7f, p.top_p = 0.9f; break;
    case 3: p.temperature = 1.3f, p.top_k = 20, p.min_p = 0.02f; break;
    case 4: p.temperature = 0.9f, p.logit_bias = {{5, 2.0f}, {17, -3.5f}}, p.min_tokens = 2; break;
    }
    p.top_logprobs = random() % 3 ? 0 : 4;
    p.prompt_logprobs = random() % 6 == 0;
    if (random() % 8 == 0)
      p.golden_token_ids = {100, 200, 300};
    p.logprobs_mode = random() % 4 ? logprobs_source::raw : logprobs_source::processed;
    out.push_back(std::move(r));
  }
  return out;
}

} // namespace troupe::test
