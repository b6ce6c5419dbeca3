// The engine without actors: the scheduler core, the KV cache and the model's step engine in one loop. The place where
// batching, chunking, threads, devices, asynchronous steps, preemption and prefix hits are compared bit for bit.
#pragma once
#include "runtime/kv/kv_cache.hpp"
#include "runtime/model/model_engine.hpp"
#include "runtime/model/replay.hpp"
#include "runtime/scheduler/scheduler_core.hpp"
#include "tests/support/tiny_model.hpp"
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <map>
#include <numeric>
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
  std::int32_t cached = 0;                 // prompt tokens that came from the prefix cache; no part of the result
  std::int64_t verified = 0, accepted = 0; // drafts; no part of it
  std::vector<std::size_t> lost_at;        // output tokens that it had when it lost its cache; no part of it either
  friend bool operator==(const hand_output& a, const hand_output& b) {
    auto bits = [](const std::vector<float>& v) {
      std::vector<std::uint32_t> out(v.size());
      std::transform(v.begin(), v.end(), out.begin(), [](float x) { return std::bit_cast<std::uint32_t>(x); });
      return out;
    };
    return a.tokens == b.tokens && bits(a.logprobs) == bits(b.logprobs) &&
           bits(a.prompt_logprobs) == bits(b.prompt_logprobs) && a.top == b.top && a.end == b.end;
  }
};

struct hand_engine_options {
  std::string device = "cpu";
  roundings rounding = roundings::serving;
  int threads = 1, max_num_seqs = 64, max_rows = 512;
  int kv_blocks = 400; // the dummy included
  bool async = false, prefix_cache = false;
  decode_form decode = decode_form::automatic;
  yoco_mode yoco = yoco_mode::off;
  int nextn = 0;
  bool rejection = false;    // verifies by rejection
  bool whole_blocks = false; // of drafts are verified; by rejection always
};

class hand_engine {
public:
  explicit hand_engine(const hand_engine_options& o)
      : limits_(limits_of(o)), dev_(open_device(o.device, {.threads = o.threads, .cores = {}})),
        engine_(load_weights(tiny_checkpoint(), *dev_, {.experts = true, .max_positions = 2048 + 8}, tiny_token_map()),
                dev_,
                {.rounding = o.rounding,
                 .max_rows = o.max_rows,
                 .max_sequences = o.max_num_seqs,
                 .kv_blocks = o.kv_blocks,
                 .state_slots = slots_of(o),
                 .max_model_len = 2048,
                 .max_logit_rows = 32,
                 .decode = o.decode,
                 .yoco = o.yoco,
                 .yoco_keep = 140,
                 .nextn = o.nextn,
                 .rejection = o.rejection,
                 .defers_drafter = o.nextn > 0}),
        kv_({o.kv_blocks, slots_of(o), o.prefix_cache ? snapshots : 0, "test", "test"}) {}

  using images = std::map<int, std::shared_ptr<const image_bytes>>;
  static bool can_be_divided(const hand_request& r) { return r.prompt.size() > 1 && !r.params.prompt_logprobs; }

  // Runs the requests (index into `requests` in the order given) together; results by index. behind: those of them
  // whose prompts another engine has computed go on behind its caches.
  std::map<int, hand_output> run(const std::vector<hand_request>& requests, const std::vector<int>& order,
                                 const images& behind = {}) {
    scheduler_core core(limits_);
    std::map<int, hand_output> out;
    std::vector<sequence_event> events;
    for (int index : order) {
      scheduling_request r = asked(index, requests[static_cast<std::size_t>(index)]);
      r.share = behind.contains(index) ? sequence_share::rest : sequence_share::whole;
      const status queued = core.submit(std::move(r), events);
      BOOST_REQUIRE_MESSAGE(queued, (queued ? "" : queued.failure().message));
    }
    run(core, events, [&](sequence_event& e) {
      if (e.handoff == handoff_news::reserved)
        BOOST_TEST(core.arrived(e.id, behind.at(static_cast<int>(e.id.value) - 1), 0));
      else
        book(e, out);
    });
    return out;
  }

  // The caches of their prompts, of those that can be divided.
  images prompts(const std::vector<hand_request>& requests, const std::vector<int>& order) {
    scheduler_core core(limits_);
    std::map<int, image_bytes> parts;
    std::vector<sequence_event> events;
    for (int index : order) {
      scheduling_request r = asked(index, requests[static_cast<std::size_t>(index)]);
      r.share = sequence_share::prompt;
      if (can_be_divided(requests[static_cast<std::size_t>(index)]))
        BOOST_REQUIRE(core.submit(std::move(r), events));
    }
    run(core, events, [&](sequence_event& e) {
      BOOST_REQUIRE(e.image);
      image_bytes& all = parts[static_cast<int>(e.id.value) - 1];
      all.insert(all.end(), e.image->begin(), e.image->end());
      departures_ += 1;
    });
    images out;
    for (auto& [index, bytes] : parts)
      out[index] = std::make_shared<const image_bytes>(std::move(bytes));
    return out;
  }
  std::int64_t departures() const { return departures_; }   // of all runs
  std::int64_t preemptions() const { return preemptions_; } // of all runs
  std::int64_t rows() const { return rows_; }               // of all runs, without placeholders
  std::size_t most_steps_out() const { return most_out_; }
  kv_statistics cache() const { return kv_.statistics(); }

private:
  static constexpr int snapshots = 16;
  static int slots_of(const hand_engine_options& o) { return 1 + o.max_num_seqs + (o.prefix_cache ? snapshots : 0); }
  static scheduler_limits limits_of(const hand_engine_options& o) {
    scheduler_limits l;
    l.max_num_seqs = o.max_num_seqs;
    l.max_num_batched_tokens = o.max_rows;
    l.max_model_len = 2048;
    l.kv_blocks = o.kv_blocks;
    l.async = o.async;
    l.prefix_cache = o.prefix_cache;
    l.yoco = o.yoco;
    l.yoco_keep = kept_rows(o.yoco, 140, tiny_checkpoint()->config());
    l.nextn = o.nextn;
    l.rejection = o.rejection;
    l.varlen = !o.rejection && !o.whole_blocks;
    return l;
  }
  static scheduling_request asked(int index, const hand_request& r) {
    auto spec = std::make_shared<sequence_spec>();
    spec->id = sequence_id(static_cast<std::uint64_t>(index) + 1);
    spec->request_id = std::to_string(index);
    spec->params = r.params;
    spec->seq_seed = r.seed;
    spec->prompt_tokens = static_cast<std::int32_t>(r.prompt.size());
    spec->eos_ids = {1};
    scheduling_request ask;
    ask.spec = std::move(spec);
    ask.prompt = std::make_shared<const std::vector<std::int32_t>>(r.prompt);
    return ask;
  }
  // Until nothing is left to do.
  template <class Take> void run(scheduler_core& core, std::vector<sequence_event>& events, const Take& take) {
    std::deque<std::unique_ptr<step_plan>> flying;
    for (bool told = true; told || !flying.empty();) {
      while (auto plan = next_step(core, events)) {
        engine_.launch(*plan);
        flying.push_back(std::move(plan));
        most_out_ = std::max(most_out_, flying.size());
      }
      told = !events.empty();
      for (sequence_event& e : std::exchange(events, {}))
        take(e);
      if (told || flying.empty())
        continue;
      step_result result;
      result.number = flying.front()->number;
      engine_.collect(result);
      flying.pop_front();
      const auto& c = tiny_checkpoint()->config();
      rows_ += std::accumulate(result.expert_counts.begin(), result.expert_counts.end(), std::int64_t{0}) /
               (c.num_hidden_layers * c.num_experts_per_tok);
      core.complete(result, events);
      told = true;
    }
    BOOST_TEST(core.live() == 0u, "the scheduler stands still");
    BOOST_TEST(kv_.sequences() == 0u);
  }
  // Null if no step can be added.
  std::unique_ptr<step_plan> next_step(scheduler_core& core, std::vector<sequence_event>& events) {
    auto plan = std::make_unique<step_plan>();
    for (;;) {
      const step_intent i = core.intent();
      if (!core.want(decide_step(std::span(&i, 1), core.rule()), want_))
        return nullptr;
      if (!want_.empty())
        kv_.turn(want_, got_);
      if (core.plan(got_, *plan, events))
        return plan;
    }
  }
  void book(const sequence_event& e, std::map<int, hand_output>& out) {
    auto& o = out[static_cast<int>(e.id.value) - 1];
    o.lost_at.resize(static_cast<std::size_t>(e.preemptions), o.tokens.size());
    o.prompt_logprobs.insert(o.prompt_logprobs.end(), e.output.prompt_logprobs.begin(), e.output.prompt_logprobs.end());
    for (const drawn_token& t : e.output.tokens) {
      o.tokens.push_back(t.id);
      o.logprobs.push_back(t.logprob);
      o.top.push_back(t.top);
    }
    if (e.end == finish_reason::none)
      return;
    o.cached = e.cached_tokens;
    o.verified = e.drafted, o.accepted = e.accepted;
    o.end = e.end;
    preemptions_ += e.preemptions;
    BOOST_TEST(e.failure.message == "");
  }

  scheduler_limits limits_;
  std::shared_ptr<device> dev_;
  model_engine engine_;
  kv_cache kv_;
  kv_want want_;
  kv_got got_;
  std::int64_t preemptions_ = 0, departures_ = 0, rows_ = 0;
  std::size_t most_out_ = 0;
};

// Mixed requests: prompts of 1 to 300 tokens cut from real text, greedy and sampled with every filter,
// log-probabilities, forced tokens, biases; a pure function of the seed.
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
    case 0:
      p.temperature = 0;
      break;
    case 1:
      p.temperature = 1;
      break;
    case 2:
      p.temperature = 0.7f, p.top_p = 0.9f;
      break;
    case 3:
      p.temperature = 1.3f, p.top_k = 20, p.min_p = 0.02f;
      break;
    case 4:
      p.temperature = 0.9f, p.logit_bias = {{5, 2.0f}, {17, -3.5f}}, p.min_tokens = 2;
      break;
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
