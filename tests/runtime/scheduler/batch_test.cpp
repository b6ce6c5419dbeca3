#include "runtime/scheduler/batch.hpp"
#include "tests/support/stub_engine.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>

using namespace troupe;

namespace {

struct request {
  std::shared_ptr<sequence_spec> spec = std::make_shared<sequence_spec>();
  std::vector<std::int32_t> prompt;
};

request make_request(std::uint64_t id, std::vector<std::int32_t> prompt, std::int32_t max_tokens,
                     std::uint64_t seed = 0) {
  request r;
  r.spec->id = sequence_id{id};
  r.spec->request_id = "r" + std::to_string(id);
  r.spec->params.max_tokens = max_tokens;
  r.spec->seq_seed = seed;
  r.spec->prompt_tokens = static_cast<std::int32_t>(prompt.size());
  r.prompt = std::move(prompt);
  return r;
}

std::vector<std::int32_t> prompt_of(std::int32_t length, std::int32_t first = 1) {
  std::vector<std::int32_t> p;
  for (std::int32_t i = 0; i < length; ++i)
    p.push_back((first + 7 * i) % 50);
  return p;
}

struct outcome {
  std::vector<std::int32_t> tokens;
  std::vector<float> prompt_logprobs, logits;
  finish_reason end = finish_reason::none;
  int ends = 0;
  bool late = false; // something came after the end, or tokens out of order
  error failure;
};

// Scheduler, KV book and stub model without actors. `held` answers of the book and results wait for a random moment.
struct world {
  scheduler_limits limits;
  batch_scheduler scheduler;
  kv_book book;
  stub_model model;
  step_plan plan;
  scheduler_output out;
  std::map<std::uint64_t, outcome> results;
  std::deque<kv_order> to_book;
  std::deque<std::pair<sequence_id, fit>> answers; // of the book, on their way
  std::size_t largest_step = 0;

  explicit world(const scheduler_limits& l, std::int32_t slots = 100)
      : limits(l), scheduler(l), book(l.kv_blocks, slots), model(l.kv_blocks) {}

  void absorb() {
    for (auto& e : out.events) {
      outcome& r = results[e.id.value];
      r.late = r.late || r.ends > 0 || e.outputs_before != static_cast<std::int64_t>(r.tokens.size());
      if (e.output.sampled)
        r.tokens.push_back(e.output.token);
      r.prompt_logprobs.insert(r.prompt_logprobs.end(), e.output.prompt_logprobs.begin(),
                               e.output.prompt_logprobs.end());
      r.logits.insert(r.logits.end(), e.output.logits.begin(), e.output.logits.end());
      r.ends += e.end != finish_reason::none;
      r.end = e.end;
      r.failure = e.failure;
    }
    to_book.insert(to_book.end(), out.kv.begin(), out.kv.end());
    out.clear();
  }
  bool serve_book() {
    if (to_book.empty())
      return false;
    const kv_order d = to_book.front();
    to_book.pop_front();
    if (d.what == kv_order::kind::release)
      book.release(d.id);
    else
      answers.push_back({d.id, book.reserve(d.id, d.blocks)});
    return true;
  }
  bool deliver_answer() {
    if (answers.empty())
      return false;
    const auto [id, f] = answers.front();
    answers.pop_front();
    const kv_holding* h = book.find(id);
    scheduler.grant(id, f, h ? std::span<const block_id>(h->blocks) : std::span<const block_id>(),
                    h ? h->slot : slot_id{}, out);
    absorb();
    return true;
  }
  void settle() {
    while (serve_book() || deliver_answer()) {
    }
  }
  status submit(const request& r) {
    auto s = scheduler.submit(r.spec, r.prompt, out);
    absorb();
    return s;
  }
  bool begin_step() {
    if (!scheduler.plan(plan))
      return false;
    largest_step = std::max(largest_step, plan.tokens.size());
    return true;
  }
  void finish_step() {
    step_result r;
    model.run(plan, r);
    scheduler.complete(r, out);
    absorb();
  }
  std::vector<std::int32_t> rows() const {
    std::vector<std::int32_t> v;
    for (const auto& s : plan.sequences)
      v.push_back(s.rows);
    return v;
  }
  // One step with everything settled; false if there was none.
  bool step() {
    settle();
    if (!begin_step())
      return false;
    finish_step();
    settle();
    return true;
  }
  void run() {
    while (step()) {
    }
  }
};

using list = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();

scheduler_limits small() {
  scheduler_limits l;
  l.max_num_batched_tokens = 256;
  l.max_model_len = 1000;
  l.kv_blocks = 60;
  return l;
}

} // namespace

BOOST_AUTO_TEST_SUITE(batch_rules)

BOOST_AUTO_TEST_CASE(prompts_are_cut_at_the_row_budget) { // engine.md §6.3, B = 256, prompts 100 300 50
  world w(small());
  for (std::uint64_t i = 0; i < 3; ++i)
    BOOST_REQUIRE(w.submit(make_request(i + 1, prompt_of(list{100, 300, 50}[i]), 2)));
  w.settle();
  BOOST_REQUIRE(w.begin_step());
  BOOST_TEST((w.plan.kind == step_kind::prefill));
  BOOST_TEST(w.rows() == (list{100, 156}), each);
  BOOST_TEST(w.plan.sequences[0].sample);
  BOOST_TEST(!w.plan.sequences[1].sample);
  BOOST_TEST(w.plan.sequences[1].next == prompt_of(300)[156]);
  w.finish_step();
  BOOST_REQUIRE(w.begin_step()); // the first sequence decodes before the next prefill step (D3)
  BOOST_TEST((w.plan.kind == step_kind::decode));
  BOOST_TEST(w.rows() == (list{1}), each);
  w.finish_step();
  BOOST_REQUIRE(w.begin_step());
  BOOST_TEST(w.rows() == (list{144, 50}), each);
  BOOST_TEST(w.plan.sequences[0].start == 156);
  BOOST_TEST(w.plan.sequences[0].sample);
  BOOST_TEST(w.plan.sequences[0].next == -1);
  w.finish_step();
  w.run();
  BOOST_TEST(w.model.complaint == "");
  BOOST_TEST(w.results[2].tokens.size() == 2u);
}

BOOST_AUTO_TEST_CASE(whole_prompts_without_chunking) { // B = 512, prompts 300 300
  auto l = small();
  l.max_num_batched_tokens = 512;
  l.chunked_prefill = false;
  world w(l);
  BOOST_REQUIRE(w.submit(make_request(1, prompt_of(300), 1)));
  BOOST_REQUIRE(w.submit(make_request(2, prompt_of(300), 1)));
  w.settle();
  BOOST_REQUIRE(w.begin_step());
  BOOST_TEST(w.rows() == (list{300}), each);
  w.finish_step();
  BOOST_REQUIRE(w.begin_step());
  BOOST_TEST(w.rows() == (list{300}), each);
  w.finish_step();
  const auto refused = w.submit(make_request(3, prompt_of(513), 1));
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "prompt_too_long");
  BOOST_TEST(refused.failure().message.find("513") != std::string::npos);
  BOOST_TEST(refused.failure().message.find("512") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_idle_engine_prefills_at_once_and_decode_is_never_starved) {
  auto l = small();
  l.max_num_batched_tokens = 16;
  world w(l);
  BOOST_REQUIRE(w.submit(make_request(1, prompt_of(5), 40)));
  w.settle();
  BOOST_REQUIRE(w.begin_step());
  BOOST_TEST((w.plan.kind == step_kind::prefill));
  w.finish_step();
  BOOST_REQUIRE(w.submit(make_request(2, prompt_of(160), 2))); // ten chunks
  std::string kinds;
  for (int i = 0; i < 20; ++i) {
    w.settle();
    BOOST_REQUIRE(w.begin_step());
    kinds += w.plan.kind == step_kind::prefill ? 'P' : 'D';
    w.finish_step();
  }
  BOOST_TEST(kinds == "DPDPDPDPDPDPDPDPDPDP");
}

BOOST_AUTO_TEST_CASE(decode_takes_turns_when_rows_are_scarce) {
  auto l = small();
  l.max_num_batched_tokens = 2;
  world w(l);
  for (std::uint64_t i = 1; i <= 3; ++i)
    BOOST_REQUIRE(w.submit(make_request(i, prompt_of(2), 9)));
  w.run();
  BOOST_TEST(w.largest_step <= 2u);
  for (std::uint64_t i = 1; i <= 3; ++i)
    BOOST_TEST(w.results[i].tokens.size() == 9u);
}

BOOST_AUTO_TEST_CASE(ends_by_every_rule) {
  world w(small());
  const auto first = stub_token(prompt_of(10), 5, 50);
  auto eos = make_request(1, prompt_of(10), 9, 5);
  eos.spec->eos_ids = {first};
  auto ignored = make_request(2, prompt_of(10), 3, 5);
  ignored.spec->eos_ids = {first};
  ignored.spec->params.ignore_eos = true;
  auto stop_id = make_request(3, prompt_of(10), 9, 5);
  stop_id.spec->params.stop_token_ids = {first};
  auto late = make_request(4, prompt_of(10), 9, 5);
  late.spec->eos_ids = {first};
  late.spec->params.min_tokens = 1;
  late.spec->params.golden_token_ids = {first, 3, first};
  auto full = make_request(5, prompt_of(998), 9);
  auto brim = make_request(6, prompt_of(1000), 9);
  for (const auto& r : {eos, ignored, stop_id, late, full, brim})
    BOOST_REQUIRE(w.submit(r));
  w.run();
  BOOST_TEST((w.results[1].end == finish_reason::stop));
  BOOST_TEST(w.results[1].tokens == (list{first}), each);
  BOOST_TEST((w.results[2].end == finish_reason::length));
  BOOST_TEST(w.results[2].tokens.size() == 3u);
  BOOST_TEST((w.results[3].end == finish_reason::stop));
  BOOST_TEST(w.results[4].tokens == (list{first, 3, first}), each); // the first one came before min_tokens were out
  BOOST_TEST((w.results[4].end == finish_reason::stop));
  BOOST_TEST(w.results[5].tokens.size() == 2u); // 998 + 2 = max_model_len
  BOOST_TEST((w.results[5].end == finish_reason::length));
  BOOST_TEST(w.results[6].tokens.size() == 0u);
  BOOST_TEST((w.results[6].end == finish_reason::length));
  BOOST_TEST(w.book.blocks().used_count() == 0);
}

BOOST_AUTO_TEST_CASE(refusals_name_their_reason) {
  world w(small());
  BOOST_TEST(w.submit(make_request(1, prompt_of(1001), 1)).failure().code == "prompt_too_long");
  BOOST_TEST(w.submit(make_request(1, {}, 1)).failure().code == "invalid_prompt");
  BOOST_TEST(bool(w.submit(make_request(1, prompt_of(3), 1))));
  BOOST_TEST(w.submit(make_request(1, prompt_of(3), 1)).failure().code == "duplicate_id");
  w.run();
  BOOST_TEST(bool(w.submit(make_request(1, prompt_of(3), 1)))); // the id is free again
}

BOOST_AUTO_TEST_CASE(what_can_never_fit_blocks_nobody) { // C1: pool of 8 blocks, a request of 9
  auto l = small();
  l.kv_blocks = 9;
  l.max_model_len = 4000;
  world w(l);
  const auto refused = w.submit(make_request(1, prompt_of(100), 1100));
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "no_space");
  BOOST_REQUIRE(w.submit(make_request(2, prompt_of(700), 20))); // 6 blocks
  BOOST_REQUIRE(w.submit(make_request(3, prompt_of(700), 20))); // waits for the first
  BOOST_REQUIRE(w.submit(make_request(4, prompt_of(10), 20)));
  w.run();
  for (std::uint64_t i = 2; i <= 4; ++i)
    BOOST_TEST(w.results[i].tokens.size() == 20u);
}

BOOST_AUTO_TEST_CASE(a_pool_without_slots_fails_the_request_instead_of_hanging) {
  world w(small(), 1);
  BOOST_REQUIRE(w.submit(make_request(1, prompt_of(3), 1)));
  w.run();
  BOOST_TEST((w.results[1].end == finish_reason::error));
  BOOST_TEST(w.results[1].failure.code == "no_space");
  BOOST_TEST(w.scheduler.live() == 0u);
}

BOOST_AUTO_TEST_CASE(room_made_while_a_demand_is_under_way_is_used) {
  auto l = small();
  l.kv_blocks = 9;
  world w(l);
  BOOST_REQUIRE(w.submit(make_request(1, prompt_of(700), 1)));
  w.settle();
  w.begin_step();
  BOOST_REQUIRE(w.submit(make_request(2, prompt_of(700), 1)));
  w.serve_book();  // the book answers "later" ...
  w.finish_step(); // ... while the first sequence ends
  w.settle();
  w.run();
  BOOST_TEST(w.results[2].tokens.size() == 1u);
}

BOOST_AUTO_TEST_CASE(abort_in_every_state) {
  auto l = small();
  l.max_num_seqs = 2;
  l.max_num_batched_tokens = 64;
  world w(l);
  BOOST_REQUIRE(w.submit(make_request(1, prompt_of(10), 50))); // will decode
  BOOST_REQUIRE(w.submit(make_request(2, prompt_of(200), 5))); // will be in the middle of its prompt
  BOOST_REQUIRE(w.submit(make_request(3, prompt_of(10), 5)));  // waits for a place
  w.settle();
  BOOST_REQUIRE(w.step());
  BOOST_REQUIRE(w.begin_step());
  BOOST_TEST(w.scheduler.abort(sequence_id{1}, w.out)); // decoding, in flight
  BOOST_TEST(w.scheduler.abort(sequence_id{2}, w.out)); // partly prefilled
  BOOST_TEST(w.scheduler.abort(sequence_id{3}, w.out)); // waiting, or asking for KV by now
  BOOST_TEST(!w.scheduler.abort(sequence_id{3}, w.out));
  BOOST_TEST(!w.scheduler.abort(sequence_id{9}, w.out));
  w.absorb();
  BOOST_TEST(w.submit(make_request(1, prompt_of(4), 1)).failure().code == "duplicate_id"); // still in the step
  w.finish_step();
  w.settle();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    BOOST_TEST((w.results[i].end == finish_reason::abort));
    BOOST_TEST(w.results[i].ends == 1);
    BOOST_TEST(!w.results[i].late);
  }
  BOOST_TEST(w.book.owners() == 0u);
  BOOST_TEST(w.scheduler.running() == 0u);
  BOOST_TEST(w.scheduler.consistent());
  BOOST_REQUIRE(w.submit(make_request(5, prompt_of(4), 1))); // while its KV is asked for
  w.scheduler.abort(sequence_id{5}, w.out);
  w.absorb();
  w.settle();
  BOOST_TEST(w.book.owners() == 0u);
}

BOOST_AUTO_TEST_CASE(one_bad_row_and_a_failed_step) {
  world w(small());
  for (std::uint64_t i = 1; i <= 3; ++i)
    BOOST_REQUIRE(w.submit(make_request(i, prompt_of(10), 5)));
  w.step();
  w.settle();
  BOOST_REQUIRE(w.begin_step());
  step_result r;
  w.model.run(w.plan, r);
  r.sequences[1].failure = "NaN in the logits";
  w.scheduler.complete(r, w.out);
  w.absorb();
  BOOST_TEST((w.results[2].end == finish_reason::error));
  BOOST_TEST(w.results[2].tokens.size() == 1u);
  BOOST_REQUIRE(w.submit(make_request(4, prompt_of(10), 5)));
  BOOST_REQUIRE(w.begin_step()); // decode of 1 and 3
  step_result failed;
  failed.number = w.plan.number;
  failed.failure = "device lost";
  w.scheduler.complete(failed, w.out);
  w.absorb();
  BOOST_TEST((w.results[1].end == finish_reason::error));
  BOOST_TEST(w.results[3].failure.message.find("device lost") != std::string::npos);
  w.run();
  BOOST_TEST(w.results[4].tokens.size() == 5u); // was not in the step
  BOOST_TEST(w.book.owners() == 0u);
}

BOOST_AUTO_TEST_CASE(a_lost_executor_ends_everything_once) {
  auto l = small();
  l.max_num_seqs = 2;
  world w(l);
  for (std::uint64_t i = 1; i <= 4; ++i)
    BOOST_REQUIRE(w.submit(make_request(i, prompt_of(10), 5)));
  w.step();
  BOOST_REQUIRE(w.begin_step());
  w.scheduler.abort(sequence_id{1}, w.out);
  w.scheduler.fail_all({"engine_lost", "executor ended"}, w.out);
  w.absorb();
  w.settle();
  BOOST_TEST((w.results[1].end == finish_reason::abort));
  for (std::uint64_t i = 2; i <= 4; ++i)
    BOOST_TEST(w.results[i].failure.code == "engine_lost");
  for (std::uint64_t i = 1; i <= 4; ++i)
    BOOST_TEST(w.results[i].ends == 1);
  BOOST_TEST(w.scheduler.live() == 0u);
  BOOST_TEST(w.scheduler.consistent());
  BOOST_TEST(w.book.owners() == 0u);
  step_result stale;
  stale.number = w.plan.number;
  w.scheduler.complete(stale, w.out); // comes too late, means nothing
  BOOST_TEST(w.out.events.empty());
}

// Any schedule gives what each sequence gives alone: random sizes, orders, delays, aborts of others.
BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_schedule) {
  std::size_t completed = 0, aborted = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int32_t lo, std::int32_t hi) {
      return lo + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(hi - lo + 1));
    };
    scheduler_limits l;
    l.max_num_seqs = pick(1, 6);
    l.chunked_prefill = pick(0, 3) != 0;
    l.max_model_len = pick(150, 700);
    l.max_num_batched_tokens = l.chunked_prefill ? pick(1, 300) : l.max_model_len;
    l.kv_blocks = 1 + blocks_for(l.max_model_len) + pick(0, 8);
    l.decode_steps_between = pick(1, 3);
    world w(l, 1 + l.max_num_seqs);
    std::vector<request> requests;
    for (std::uint64_t i = 1; i <= 8; ++i) {
      auto r =
          make_request(i, prompt_of(pick(1, pick(0, 1) ? 20 : l.max_model_len), pick(0, 49)), pick(1, 30), random());
      r.spec->eos_ids = {7};
      r.spec->params.ignore_eos = pick(0, 1) != 0;
      r.spec->params.min_tokens = pick(0, 3);
      r.spec->params.prompt_logprobs = pick(0, 3) == 0;
      if (pick(0, 3) == 0)
        r.spec->params.stop_token_ids = {pick(0, 49)};
      if (pick(0, 3) == 0)
        r.spec->params.golden_token_ids = {pick(0, 49), 7, pick(0, 49)};
      if (pick(0, 3) == 0)
        r.spec->logit_rows = {0, r.spec->prompt_tokens - 1};
      requests.push_back(std::move(r));
    }
    std::shuffle(requests.begin(), requests.end(), random);
    std::size_t next = 0;
    bool flying = false;
    std::map<std::uint64_t, bool> was_aborted;
    for (int event = 0; event < 100000; ++event) {
      const int kind = pick(0, 9);
      if (kind == 0 && next < requests.size())
        BOOST_REQUIRE(w.submit(requests[next++]));
      else if (kind == 1 && pick(0, 30) == 0) {
        const auto id = static_cast<std::uint64_t>(pick(1, 8));
        was_aborted[id] = w.scheduler.abort(sequence_id{id}, w.out) || was_aborted[id];
        w.absorb();
      } else if (kind < 4)
        w.serve_book();
      else if (kind < 6)
        w.deliver_answer();
      else if (!flying)
        flying = w.begin_step();
      else {
        w.finish_step();
        flying = false;
      }
      BOOST_REQUIRE(w.scheduler.consistent());
      BOOST_REQUIRE(w.book.conserved());
      BOOST_REQUIRE(w.largest_step <= static_cast<std::size_t>(l.max_num_batched_tokens));
      if (next == requests.size() && w.scheduler.live() == 0 && !flying && w.to_book.empty() && w.answers.empty())
        break;
    }
    BOOST_REQUIRE(w.scheduler.live() == 0);
    BOOST_REQUIRE(w.book.owners() == 0);
    BOOST_REQUIRE(w.model.complaint == "");
    for (const auto& r : requests) {
      const outcome& got = w.results[r.spec->id.value];
      BOOST_REQUIRE(got.ends == 1);
      BOOST_REQUIRE(!got.late);
      const auto want = stub_alone(*r.spec, r.prompt, w.model.vocab, l.max_model_len);
      if (was_aborted[r.spec->id.value]) {
        ++aborted;
        BOOST_REQUIRE(got.tokens.size() <= want.output.size());
        BOOST_REQUIRE(std::equal(got.tokens.begin(), got.tokens.end(), want.output.begin()));
        continue;
      }
      ++completed;
      BOOST_REQUIRE(got.tokens == want.output);
      BOOST_REQUIRE((got.end == (want.stopped ? finish_reason::stop : finish_reason::length)));
      std::vector<float> logprobs, logits;
      if (r.spec->params.prompt_logprobs)
        logprobs.assign(r.prompt.begin() + 1, r.prompt.end());
      for (const std::int32_t row : r.spec->logit_rows)
        logits.push_back(static_cast<float>(r.prompt[static_cast<std::size_t>(row)]));
      BOOST_REQUIRE(got.prompt_logprobs == logprobs);
      BOOST_REQUIRE(got.logits == logits);
    }
  }
  BOOST_TEST(completed > 9000u);
  BOOST_TEST(aborted > 500u);
}

BOOST_AUTO_TEST_SUITE_END()
