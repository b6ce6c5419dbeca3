#include "bench/scheduler_bench.hpp"
#include "actors/control_bench.hpp"
#include "runtime/kv/kv_cache.hpp"
#include "runtime/scheduler/scheduler_core.hpp"
#include <algorithm>
#include <deque>
#include <random>
#include <utility>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

json line_of(const bench_settings& settings, const std::string& bench, const std::string& test_case) {
  json line{{"bench", bench}, {"case", test_case}};
  line.update(machine_facts());
  if (settings.smoke)
    line["smoke"] = true;
  return line;
}

scheduling_request request(std::uint64_t id, std::vector<std::int32_t> prompt, std::int32_t max_tokens) {
  auto spec = std::make_shared<sequence_spec>();
  spec->id = sequence_id{id};
  spec->request_id = std::to_string(id);
  spec->params.max_tokens = max_tokens;
  spec->prompt_tokens = static_cast<std::int32_t>(prompt.size());
  spec->eos_ids = {2};
  scheduling_request r;
  r.spec = std::move(spec);
  r.prompt = std::make_shared<const std::vector<std::int32_t>>(std::move(prompt));
  return r;
}

// An engine that draws token 7, or an arbitrary one, for every row that asks for one; the first two drafts are right.
class hollow_engine {
public:
  hollow_engine(const scheduler_limits& limits, std::int32_t vocab, step_cost cost = {})
      : core(limits, std::move(cost)), kv({.blocks = limits.kv_blocks,
                                           .slots = 1 + 2 * limits.max_num_seqs,
                                           .snapshot_slots = limits.max_num_seqs,
                                           .numerics_id = "none",
                                           .model_id = "none"}),
        vocab_(vocab) {}

  // One step: the core plans, the KV cache answers, the oldest step's result is booked. False if nothing is left.
  bool step() {
    const stopwatch all;
    double kv_seconds = 0;
    while (core.steps_out() < 2) { // as many as an engine's actor asks for
      const step_intent i = core.intent();
      if (!core.want(decide_step(std::span(&i, 1), core.rule()), want_))
        break;
      if (!want_.empty()) {
        const stopwatch kv_time;
        kv.turn(want_, got_);
        kv_seconds += kv_time.seconds();
      }
      if (spare_.empty())
        spare_.emplace_back();
      if (!core.plan(got_, spare_.back(), events))
        continue;
      out_.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
    if (out_.empty()) {
      if (core.want(std::nullopt, want_)) {
        kv.turn(want_, got_);
        core.plan(got_, spare_.front(), events);
      }
      return false;
    }
    step_plan plan = std::move(out_.front());
    out_.pop_front();
    double core_seconds = all.seconds() - kv_seconds;
    draw(plan);
    const stopwatch post;
    core.complete(result_, events);
    core_seconds += post.seconds();
    last_decode = plan.kind == step_kind::decode;
    core_us = 1e6 * core_seconds, kv_us = 1e6 * kv_seconds;
    spare_.push_back(std::move(plan));
    return true;
  }

  scheduler_core core;
  kv_cache kv;
  std::vector<sequence_event> events;
  bool last_decode = false; // of the last step
  double core_us = 0, kv_us = 0;

private:
  static std::int32_t right(std::int32_t drafts) { return std::min(drafts, 2); }
  void draw(const step_plan& plan) {
    result_.number = plan.number;
    result_.failure.clear();
    result_.sequences.resize(plan.sequences.size());
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      const planned_sequence& s = plan.sequences[i];
      sequence_result& r = result_.sequences[i];
      r.id = s.spec->id;
      r.start = s.start + right(s.slack);
      r.drafts = s.drafts;
      r.tokens.resize(s.sample ? static_cast<std::size_t>(1 + right(s.drafts)) : 0);
      for (drawn_token& t : r.tokens)
        t.id = vocab_ > 0 ? static_cast<std::int32_t>(random_() % static_cast<unsigned>(vocab_)) : 7;
      if (s.propose)
        r.confidence = {0.9f, 0.8f, 0.7f, 0.6f, 0.5f};
      r.failure.clear();
    }
  }

  std::int32_t vocab_;
  std::minstd_rand random_{1};
  kv_want want_;
  kv_got got_;
  std::deque<step_plan> out_, spare_;
  step_result result_;
};

double quantile(std::vector<double> v, double q) {
  std::ranges::sort(v);
  return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1))];
}

void measure_decode(const bench_settings& settings, std::int32_t sequences, std::int32_t nextn) {
  const int steps = settings.smoke ? 100 : 4000;
  scheduler_limits l;
  l.max_num_seqs = sequences;
  l.nextn = nextn;
  l.max_num_batched_tokens = std::max(2048, sequences * (1 + nextn));
  l.max_model_len = 32768;
  const std::int32_t most = nextn > 0 ? 3 : 1;       // tokens of a step
  const std::int32_t tokens = most * (steps + 2000); // all still decode when the last prompt is through
  l.kv_blocks = 1 + sequences * blocks_for(1000 + tokens);
  hollow_engine e(l, 0, step_cost({{1, 5}, {64, 6}, {256, 9}, {1024, 15}, {8192, 80}}));
  for (std::int32_t i = 0; i < sequences; ++i) {
    std::vector<std::int32_t> prompt(1000);
    for (std::int32_t p = 0; p < 1000; ++p)
      prompt[static_cast<std::size_t>(p)] = (i * 131 + p) % 1009;
    if (!e.core.submit(request(static_cast<std::uint64_t>(i + 1), std::move(prompt), tokens), e.events))
      return;
  }
  std::vector<double> core, kv;
  while (static_cast<int>(core.size()) < steps && e.step()) {
    if (e.last_decode && e.events.size() == static_cast<std::size_t>(sequences)) {
      core.push_back(e.core_us);
      kv.push_back(e.kv_us);
    }
    e.events.clear();
  }
  json line = line_of(settings, "scheduler",
                      "decoding " + std::to_string(sequences) +
                          (nextn > 0 ? ", up to " + std::to_string(nextn) + " drafts each" : ""));
  line.update({{"core_p50_us", quantile(core, 0.5)},
               {"core_p99_us", quantile(core, 0.99)},
               {"kv_p50_us", quantile(kv, 0.5)},
               {"kv_p99_us", quantile(kv, 0.99)},
               {"steps", core.size()}});
  if (sequences == 256 &&
      nextn == 0) // so much for booking results alone, before planning (vllm-project/vllm, pull request 46112)
    line["for_comparison"] = "vLLM, update_from_output at 256 running requests: 254 to 287 us";
  settings.emit(line);
}

} // namespace

void bench_scheduler(const bench_settings& settings) {
  for (const std::int32_t nextn : {0, 5})
    for (const std::int32_t sequences : {16, 64, 256, 1024})
      measure_decode(settings, sequences, nextn);
}

namespace {

void soak_actors(const bench_settings& settings, std::uint64_t requests) {
  std::vector<process_memory> looks; // after a tenth, after half, at the end
  const stopwatch watch;
  const soak_figures f =
      soak_process(settings.engine.model + "/tokenizer.json", requests, [&] { looks.push_back(memory_of_process()); });
  const double seconds = watch.seconds();
  json line = line_of(settings, "soak", std::to_string(requests) + " requests through the actors");
  line.update({{"ended", f.branches},
               {"aborts", f.aborts},
               {"requests_per_s", static_cast<double>(requests) / seconds},
               {"resident_mb_after_a_tenth", looks[0].resident_mb},
               {"resident_mb_after_half", looks[1].resident_mb},
               {"resident_mb_at_the_end", looks[2].resident_mb},
               {"of_these_anonymous_mb", {looks[0].anonymous_mb, looks[1].anonymous_mb, looks[2].anonymous_mb}},
               {"heap_in_use_mb", {looks[0].in_use_mb, looks[1].in_use_mb, looks[2].in_use_mb}},
               {"growth_percent", 100 * (looks[2].resident_mb / looks[0].resident_mb - 1)}});
  settings.emit(line);
}

void soak_core(const bench_settings& settings, std::uint64_t requests) {
  scheduler_limits l;
  l.max_num_seqs = 64;
  l.max_num_batched_tokens = 1024;
  l.max_model_len = 2048;
  l.kv_blocks = 70; // too few for all: sequences lose their cache now and then
  hollow_engine e(l, 200);
  std::mt19937_64 random(1);
  std::uint64_t next = 1, ended = 0, aborted = 0, preemptions = 0, cached = 0;
  double half_mb = 0;
  const stopwatch watch;
  while (ended < requests || e.core.steps_out() > 0) {
    while (next <= requests && e.core.live() < 200) {
      const auto length = static_cast<std::size_t>(1 + random() % (random() % 8 == 0 ? 1000 : 100));
      std::vector<std::int32_t> prompt(length);
      const std::uint64_t start = random() % 20; // prefixes that come again
      for (std::size_t i = 0; i < length; ++i)
        prompt[i] = static_cast<std::int32_t>((start + 7 * i) % 1009);
      scheduling_request r =
          request(next, std::move(prompt), static_cast<std::int32_t>(1 + random() % (random() % 8 == 0 ? 800 : 100)));
      r.priority = static_cast<std::int32_t>(random() % 3);
      const auto prompt_of_parent = r.prompt;
      const std::int32_t max_tokens = r.spec->params.max_tokens;
      (void)e.core.submit(std::move(r), e.events);
      if (next + 1 <= requests && random() % 10 == 0) { // a second branch
        scheduling_request b = request(next + 1, *prompt_of_parent, max_tokens);
        b.prompt = prompt_of_parent;
        b.fork_of = sequence_id{next};
        (void)e.core.submit(std::move(b), e.events);
        ++next;
      }
      ++next;
    }
    if (random() % 20 == 0)
      aborted += e.core.abort(sequence_id{next - 1 - random() % std::min<std::uint64_t>(next - 1, 100)}, e.events);
    if (!e.step())
      break; // nothing is left but to tell the KV cache
    for (const sequence_event& event : e.events)
      if (event.end != finish_reason::none) {
        ++ended;
        preemptions += static_cast<std::uint64_t>(event.preemptions);
        cached += event.cached_tokens > 0;
      }
    e.events.clear();
    if (half_mb == 0 && ended >= requests / 2)
      half_mb = memory_of_process().resident_mb;
  }
  e.step();
  const double seconds = watch.seconds(), last_mb = memory_of_process().resident_mb;
  json line = line_of(settings, "soak", std::to_string(requests) + " requests");
  line.update({{"ended", ended},
               {"aborted", aborted},
               {"preemptions", preemptions},
               {"with_cached_prefix", cached},
               {"forks", e.kv.statistics().forks},
               {"steps", e.core.steps()},
               {"requests_per_s", static_cast<double>(ended) / seconds},
               {"resident_mb_after_half", half_mb},
               {"resident_mb_at_the_end", last_mb},
               {"growth_percent", 100 * (last_mb / half_mb - 1)},
               {"blocks_held_at_the_end", e.kv.statistics().used_blocks}});
  settings.emit(line);
}

} // namespace

void bench_soak(const bench_settings& settings) {
  const std::uint64_t requests = settings.smoke ? 5000 : 1000000;
  soak_core(settings, requests);
  soak_actors(settings, requests);
}

} // namespace troupe
