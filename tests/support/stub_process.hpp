// A whole process of engines over the stub model, its actors driven by hand.
#pragma once
#include "actors/worker_root.hpp"
#include "tests/support/by_hand.hpp"
#include "tests/support/stub_engine.hpp"
#include <boost/test/unit_test.hpp>
#include <deque>
#include <map>

namespace troupe {

inline std::shared_ptr<const tokenizer> test_vocabulary() {
  static const auto t = std::make_shared<const tokenizer>(
      tokenizer::load(std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json"));
  return t;
}

// The stub model as an engine; `failures` of the next steps leave as device errors.
class stub_step_engine final : public step_engine {
public:
  stub_step_engine(std::int32_t blocks, std::int32_t vocab) : model(blocks) { model.vocab = vocab; }
  void launch(const step_plan& plan) override {
    ++steps;
    kinds.emplace_back(plan.number, plan.kind);
    for (const planned_sequence& s : plan.sequences)
      if (s.start == 0)
        order.push_back(s.spec->request_id);
    if (failures > 0) {
      --failures;
      model.spoil(plan);
      after_failure = true;
      throw device_error("injected");
    }
    BOOST_TEST(out.size() < most_steps_out);
    out.emplace_back();
    const std::string before = model.complaint;
    model.run(plan, out.back());
    if (std::exchange(after_failure,
                      false)) // may have been planned on what the failed step left: then it does not count
      model.complaint = before;
    out.back().expert_counts.assign(8, 1); // two layers of four experts
    for (auto& s : out.back().sequences)
      if (s.id.value == bad_sequence)
        s.failure = "NaN in the logits";
  }
  bool finished() override { return !hold; }
  void collect(step_result& to) override {
    to = std::move(out.front());
    out.pop_front();
  }
  std::deque<step_result> out;
  std::vector<std::pair<std::uint64_t, step_kind>> kinds; // of every plan, with its number
  std::vector<std::string> order;                         // of the requests whose prompts began
  bool hold = false;                                      // steps stay out
  bool after_failure = false;
  stub_model model;
  int failures = 0, steps = 0;
  std::uint64_t bad_sequence = 0;
};

// Different prompts for different `first`.
inline std::vector<std::int32_t> stub_prompt(std::int32_t length, std::int32_t first) {
  std::vector<std::int32_t> p;
  for (std::int32_t i = 0; i < length; ++i)
    p.push_back((first * 31 + 7 * i + i * i / 5) % 500);
  return p;
}

inline sampling_params endless(std::int32_t max_tokens) {
  sampling_params p;
  p.max_tokens = max_tokens;
  p.ignore_eos = true;
  return p;
}

struct stub_process : by_hand {
  process_setup setup;
  std::vector<std::shared_ptr<stub_step_engine>> engines;
  std::shared_ptr<live_requests> live = std::make_shared<live_requests>();
  worker_root_actor root;
  started parts;
  std::map<std::string, std::vector<generation_result>> results; // by id, in order of their ends
  std::map<std::pair<std::string, int>, std::string> streamed;   // text by id and branch
  std::map<std::pair<std::string, int>, int> late_events;        // after the end
  std::uint64_t next_request = 0;

  void launch(const scheduler_limits& limits, std::size_t count = 1) {
    setup.limits = limits;
    setup.kv.blocks = limits.kv_blocks;
    setup.kv.snapshot_slots = limits.prefix_cache ? 4 : 0;
    setup.kv.slots = 1 + limits.max_num_seqs + setup.kv.snapshot_slots;
    setup.kv.numerics_id = setup.kv.model_id = "stub";
    setup.own_threads = false;
    setup.layers = 2;
    setup.routed_experts = 4;
    setup.front.vocabulary = test_vocabulary();
    setup.front.eos_ids = {test_vocabulary()->eos_id()};
    if (!setup.grammars.vocabulary)
      setup.grammars.vocabulary = std::make_shared<lazy_vocabulary>(
          [] { return token_vocabulary::of(*test_vocabulary(), test_vocabulary()->vocab_size()); });
    setup.front.random_bits = [] { return 0x123456789abcdef0ull; };
    for (std::size_t i = 0; i < count; ++i) {
      engines.push_back(std::make_shared<stub_step_engine>(limits.kv_blocks, test_vocabulary()->vocab_size()));
      engines.back()->model.nextn = limits.nextn;
      setup.engines.push_back(engines.back());
      if (i < setup.context.size())
        setup.engines.back() = std::make_shared<context_leader>(engines.back(), setup.context[i].team);
    }
    setup.live = live;
    root = sys.spawn(worker_root, std::make_shared<const process_setup>(setup));
    auto answer = ask(self.ptr(), root, std::chrono::milliseconds(1000), start{});
    sched.run();
    answer.receive([&](const started& s) { parts = s; }, [](caf::error&) { BOOST_FAIL("no start"); });
  }

  void open(const std::string& id, std::vector<std::int32_t> prompt, const sampling_params& params,
            bool seed_from_id = true, const std::string& salt = {}, std::int32_t priority = 0,
            std::int32_t deadline_steps = 0) {
    open(claim(id, std::move(prompt), params, seed_from_id, salt, priority, deadline_steps));
  }
  void open(const std::shared_ptr<request_record>& r) { tell_from_outside(parts.front, open_request{r}); }
  // A live request that nobody has been told of.
  std::shared_ptr<request_record> claim(const std::string& id, std::vector<std::int32_t> prompt,
                                        const sampling_params& params, bool seed_from_id = true,
                                        const std::string& salt = {}, std::int32_t priority = 0,
                                        std::int32_t deadline_steps = 0) {
    auto r = std::make_shared<request_record>();
    r->id = id;
    r->req = {1, ++next_request};
    r->prompt = std::move(prompt);
    r->params = params;
    r->seed_from_id = seed_from_id;
    r->cache_salt = salt;
    r->priority = priority;
    r->deadline_steps = deadline_steps;
    r->live = live;
    r->accepted = std::chrono::steady_clock::now();
    r->on_event = [this](const generation_event& e) {
      const auto key = std::make_pair(e.id, e.index);
      for (const auto& old : results[e.id])
        late_events[key] += old.index == e.index;
      streamed[key] += e.text;
      if (e.result)
        results[e.id].push_back(*e.result);
    };
    BOOST_REQUIRE(live->add(id, r->req, r));
    return r;
  }
  void abort(const std::string& id) {
    if (const auto req = live->abort(id))
      tell_from_outside(parts.front, cancel{{}, *req, 1, 0, "test"});
  }
  // Handles messages one by one, at most `count`; false when nothing was left to do.
  bool turn(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (!sched.try_run_once())
        return false;
    return true;
  }
  // Handles messages until none is left, each time those of any actor that has some.
  template <class Random> void run_in_any_order(Random& random) {
    while (!sched.jobs.empty()) {
      std::swap(sched.jobs.front(), sched.jobs[random() % sched.jobs.size()]);
      sched.try_run_once();
    }
  }
  template <class Out, class Handle, class In> Out query(const Handle& to, const In& q) {
    Out out;
    auto answer = ask(self.ptr(), to, std::chrono::milliseconds(1000), q);
    sched.run();
    answer.receive([&](const Out& o) { out = o; }, [&](caf::error& e) { BOOST_FAIL("no answer: " + text(sys, e)); });
    return out;
  }
  // Every pool is whole again and nothing is alive.
  void expect_quiet() {
    BOOST_TEST(live->size() == 0u);
    for (const auto& e : parts.engines) {
      const auto kv = query<kv_report>(e.kv, kv_query{true});
      BOOST_TEST(kv.conserved);
      BOOST_TEST(kv.sequences == 0u);
      BOOST_TEST(kv.statistics.used_blocks == 0);
      BOOST_TEST(kv.statistics.used_slots == 0);
      BOOST_TEST(query<scheduler_report>(e.scheduler, scheduler_query{}).live == 0u);
    }
    const auto g = query<gateway_report>(parts.front, gateway_query{});
    BOOST_TEST(g.live == 0u);
    for (const auto o : g.outstanding)
      BOOST_TEST(o == 0);
    for (const auto& [key, late] : late_events)
      BOOST_TEST(late == 0, key.first);
    for (const auto& e : engines)
      BOOST_TEST(e->model.complaint == "");
  }
  void finish() {
    tell_from_outside(root, stop{});
    sched.run();
    root = nullptr;
    parts = started{};
  }
};

} // namespace troupe
