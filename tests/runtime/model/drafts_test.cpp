// Speculation on the embedded model: whatever is drafted, verified and taken back, and whether the host or only the
// device knows it, a sequence's tokens and log-probabilities are those of plain decoding, bit for bit.
#include "runtime/model/cache_layout.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/hand_drafts.hpp"
#include "tests/support/hand_driver.hpp"
#include <cstring>
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int length = 512, block = 5; // positions that a sequence has KV blocks for; the embedded model's block

// A request that drafts. A function of the number.
hand_run made_run(std::uint64_t id) {
  std::mt19937_64 random(id);
  sampling_params p;
  p.max_tokens = 1 + static_cast<int>(random() % 40);
  p.temperature = id % 3 == 0 ? 0.0f : id % 3 == 1 ? 0.3f : 1.0f;
  p.top_p = id % 4 == 0 ? 0.9f : 1.0f;
  p.top_k = id % 5 == 0 ? 30 : -1;
  p.top_logprobs = static_cast<std::int32_t>(id % 3);
  p.logprobs_mode = id % 2 == 0 ? logprobs_source::processed : logprobs_source::raw;
  if (id % 6 == 5) // forced tokens before free ones
    for (int i = 0; i < 7; ++i)
      p.golden_token_ids.push_back(500 + i);
  p.min_tokens = static_cast<int>(id % 9);
  p.stop_token_ids = {300, 301, 302, 303, 304, 305, 306, 307, 308, 309};
  if (id % 5 == 3)
    p.logit_bias = {{600, 2.5f}, {601, -4.0f}};
  std::vector<std::int32_t> prompt{0};
  const std::size_t size = 1 + random() % (id % 4 == 1 ? 200 : 50);
  const std::size_t period = 3 + random() % 5; // repetitive, so that drafts are right now and then
  while (prompt.size() < size)
    prompt.push_back(prompt.size() > 2 * period ? prompt[prompt.size() - period]
                                                : static_cast<std::int32_t>(300 + random() % 4000));
  hand_run s(id, prompt, p);
  s.spec->eos_ids = {1};
  return s;
}

// What is on its way of a run: its newest planned step.
struct drafting {
  hand_run run;
  std::int32_t out = 0;        // steps out
  std::int32_t out_drafts = 0; // of the newest one
  bool has_block = false;      // it drafts a block
  std::int64_t verified = 0, right = 0;
  std::int32_t most_tokens() const { return run.spec->prompt_tokens + run.spec->params.max_tokens; }
  bool over() const { return static_cast<std::int32_t>(run.tokens.size()) >= most_tokens(); }
};

struct draft_options {
  decode_form form = decode_form::eager;
  std::size_t depth = 1;
  int nextn = block, max_logit_rows = 64;
  bool rejection = false, share = false;
};

class draft_driver {
public:
  draft_driver(const tiny_device& device, const draft_options& o, std::vector<drafting>& runs, std::uint64_t seed)
      : options_(o), engine_(device.engine(o.form, o.max_logit_rows, o.nextn, o.rejection)), runs_(runs),
        random_(seed) {
    std::int32_t place = 0;
    for (drafting& d : runs_) {
      d.run.place(place + 1, 1 + 4 * place, length);
      ++place;
    }
  }

  void run() {
    while (std::ranges::any_of(runs_, [](const drafting& d) { return !d.over(); })) {
      while (out_.size() >= options_.depth)
        collect();
      auto plan = std::make_unique<step_plan>();
      plan->kind = below(4) == 0 ? step_kind::prefill : step_kind::decode;
      plan->share_drafts = options_.share;
      std::vector<drafting*> members;
      for (drafting& d : runs_)
        if (!d.over() && below(5) > 0 &&
            (plan->kind == step_kind::prefill ? add_prompt(*plan, d) : add_decode(*plan, d)))
          members.push_back(&d);
      if (members.empty()) {
        if (!out_.empty())
          collect();
        continue;
      }
      engine_->launch(*plan);
      out_.push_back({std::move(plan), members});
    }
    while (!out_.empty())
      collect();
  }

private:
  struct flying {
    std::unique_ptr<step_plan> plan;
    std::vector<drafting*> members;
  };
  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(n)); }

  bool add_prompt(step_plan& plan, drafting& d) {
    if (d.run.prompt_left() <= 0 || plan.tokens.size() > 90)
      return false;
    add_rows(plan, d.run, 1 + below(std::min(d.run.prompt_left(), 60)));
    propose(plan, d, 0);
    return true;
  }
  void propose(step_plan& plan, drafting& d, std::int32_t drafts) {
    planned_sequence& p = plan.sequences.back();
    p.propose = p.sample && (options_.share || below(8) > 0);
    d.has_block = p.propose;
    d.out_drafts = drafts;
    ++d.out;
  }

  // The newest token, known or not, and some drafts behind it.
  bool add_decode(step_plan& plan, drafting& d) {
    if (d.run.prompt_left() > 0)
      return false;
    planned_sequence p;
    p.spec = d.run.spec;
    p.slot = d.run.slot;
    const auto known = static_cast<std::int32_t>(d.run.tokens.size());
    p.start = d.out == 0 ? known - 1 : known;
    p.slack = d.out == 0 ? 0 : d.out_drafts;
    p.limit = d.most_tokens() - 1; // the token behind it is one too many
    if (p.start >= p.limit)
      return false;
    p.drafts = d.has_block ? below(options_.nextn + 1) : 0;
    if (p.slack == 0) // the host sees to the limit itself
      p.drafts = std::min(p.drafts, p.limit - p.start - 1);
    p.rows = p.drafts + 1;
    p.first_token = static_cast<std::int32_t>(plan.tokens.size());
    p.first_block = static_cast<std::int32_t>(plan.blocks.size());
    const std::int32_t most = plan.share_drafts ? block + 1 : p.rows;
    p.blocks = blocks_for(std::min(p.start + p.slack + most, p.limit));
    p.history = static_cast<std::int32_t>(plan.history.size());
    p.sample = true;
    plan.blocks.insert(plan.blocks.end(), d.run.blocks.begin(), d.run.blocks.begin() + p.blocks);
    for (std::int32_t at = p.start - 3; at < p.start; ++at)
      plan.history.push_back(p.slack > 0 ? -9 : at < 0 ? -1 : d.run.tokens[static_cast<std::size_t>(at)]);
    plan.tokens.push_back(d.out == 0 ? d.run.tokens.back() : token_in_flight);
    plan.tokens.insert(plan.tokens.end(), static_cast<std::size_t>(p.drafts), draft_in_flight);
    plan.sequences.push_back(p);
    propose(plan, d, plan.share_drafts && p.slack > 0 ? options_.nextn : p.drafts);
    return true;
  }

  void collect() {
    step_result r;
    engine_->collect(r);
    const flying f = std::move(out_.front());
    out_.erase(out_.begin());
    BOOST_REQUIRE(r.sequences.size() == f.members.size());
    std::int32_t planned = 0, verified = 0;
    for (std::size_t i = 0; i < r.sequences.size(); ++i) {
      const planned_sequence& p = f.plan->sequences[i];
      const sequence_result& s = r.sequences[i];
      planned += p.drafts, verified += s.drafts;
      take_drafts(*f.members[i], p, s);
    }
    BOOST_TEST(verified <= planned);
  }

  void take_drafts(drafting& d, const planned_sequence& p, const sequence_result& s) {
    BOOST_REQUIRE_MESSAGE(s.failure.empty(), s.failure);
    --d.out;
    BOOST_TEST(s.block.size() == (p.propose ? static_cast<std::size_t>(block) : 0u));
    if (!p.sample)
      return;
    if (d.over()) // a step behind its end; its start may lie on or behind the limit
      return;
    BOOST_REQUIRE(s.start >= p.start);
    BOOST_REQUIRE(s.start <= p.start + p.slack);
    BOOST_REQUIRE(s.tokens.size() <= static_cast<std::size_t>(s.drafts) + 1);
    if (p.limit > 0) {
      BOOST_REQUIRE(s.start == static_cast<std::int32_t>(d.run.tokens.size()) - 1);
      BOOST_REQUIRE(s.start + static_cast<std::int32_t>(s.tokens.size()) <= p.limit);
      BOOST_REQUIRE(!s.tokens.empty());
      d.run.computed = s.start + static_cast<std::int32_t>(s.tokens.size());
    }
    d.verified += s.drafts;
    d.right += static_cast<std::int64_t>(s.tokens.size()) - 1;
    if (p.limit == 0)
      --d.run.flying; // add_rows counted it
    for (const drawn_token& t : s.tokens) {
      d.run.tokens.push_back(t.id);
      d.run.logprobs.push_back(t.logprob);
      d.run.top.push_back(t.top);
    }
  }

  draft_options options_;
  std::unique_ptr<model_engine> engine_;
  std::vector<drafting>& runs_;
  std::mt19937_64 random_;
  std::vector<flying> out_;
};

std::vector<drafting> made_runs(std::uint64_t count) {
  std::vector<drafting> runs;
  for (std::uint64_t id = 1; id <= count; ++id)
    runs.push_back({made_run(id)});
  return runs;
}

std::vector<hand_run> plainly(std::uint64_t count) {
  const auto engine = tiny_device("cpu").engine();
  std::vector<hand_run> alone;
  for (std::uint64_t id = 1; id <= count; ++id) {
    alone.push_back(made_run(id));
    alone.back().place(1, 1, length);
    run_to_end(*engine, alone.back(), 1, 160);
  }
  return alone;
}

std::string describe(const std::string& name, const draft_options& o) {
  return name + ", form " + std::to_string(static_cast<int>(o.form)) + ", depth " + std::to_string(o.depth) +
         ", nextn " + std::to_string(o.nextn) + (o.share ? ", shared" : "");
}

} // namespace

BOOST_AUTO_TEST_SUITE(drafts)

// Greedy, drawn and forced tokens, with none to five drafts.
BOOST_AUTO_TEST_CASE(c14_speculation_changes_no_bit) {
  constexpr std::uint64_t count = 8;
  const std::vector<hand_run> alone = plainly(count);
  std::int64_t verified = 0, right = 0;
  std::uint64_t seed = 1;
  for (const std::string& name : with_gpu({"cpu", "queued cpu"})) {
    const tiny_device device(name);
    std::vector<draft_options> all{{.form = decode_form::automatic, .depth = 2},
                                   {.form = decode_form::automatic, .depth = 2, .nextn = 4, .share = true}};
    if (name == "cpu") {
      for (const int nextn : {1, 2, 3, 4, 5})
        all.push_back({.depth = nextn % 2 == 0 ? 2u : 1u, .nextn = nextn});
      all.push_back({.form = decode_form::padded, .depth = 1, .max_logit_rows = 3}); // logits come in pieces
      all.push_back({.form = decode_form::padded, .depth = 2, .share = true});
    }
    for (const draft_options& o : all) {
      auto runs = made_runs(count);
      draft_driver(device, o, runs, seed++).run();
      for (std::size_t i = 0; i < runs.size(); ++i) {
        BOOST_TEST(runs[i].run.tokens == alone[i].tokens, boost::test_tools::per_element());
        BOOST_TEST((runs[i].run.bits() == alone[i].bits()),
                   describe(name, o) << ": sequence " << alone[i].spec->id.value << " differs");
        verified += runs[i].verified, right += runs[i].right;
      }
    }
  }
  BOOST_TEST_MESSAGE(right << " of " << verified << " drafts were right");
  BOOST_TEST(right > 0);
  BOOST_TEST(right < verified);
}

// By rejection the tokens depend on the drafts, but the same steps give the same ones.
BOOST_AUTO_TEST_CASE(rejection_is_reproducible) {
  std::vector<drafting> first;
  for (const std::string& name : with_gpu({"cpu", "queued cpu"})) {
    const tiny_device device(name);
    for (const decode_form form : {decode_form::automatic, decode_form::padded}) {
      auto runs = made_runs(8);
      draft_driver(device, {.form = form, .rejection = true}, runs, 7).run();
      std::int64_t right = 0, verified = 0;
      for (const drafting& d : runs)
        right += d.right, verified += d.verified;
      BOOST_TEST(right > 0);
      BOOST_TEST(right < verified);
      if (first.empty())
        first = runs;
      for (std::size_t i = 0; i < runs.size(); ++i)
        BOOST_TEST((runs[i].run.bits() == first[i].run.bits()), name << ": sequence " << i + 1 << " differs");
    }
  }
}

// A checkpoint's memory as the model must see it: everything that no accepted position wrote is spoiled after each
// step, and nothing changes. Keys of rejected drafts in the rings and among the compressed ones, their halves of pairs
// in the compressors' rings, and the drafter's keys are never read.
BOOST_AUTO_TEST_CASE(what_rejected_drafts_leave_behind_is_never_read) {
  tiny_model plain("cpu"), spoiled("cpu");
  const auto& c = plain.runner->config();
  const cache_layout layout(c, roundings::serving);
  hand_sequence a(1, 1, 400), b(1, 1, 400);
  std::mt19937_64 random(3);
  const auto id = [&] { return static_cast<std::int32_t>(300 + random() % 4000); };
  const auto step = [](tiny_model& m, hand_sequence& s, const std::vector<std::int32_t>& tokens, std::size_t kept) {
    step_rows rows;
    s.feed(rows, tokens);
    m.runner->forward(rows);
    std::vector<std::int32_t> wanted(kept);
    std::iota(wanted.begin(), wanted.end(), 0);
    s.ids.resize(s.ids.size() - tokens.size() + kept);
    return m.logits(wanted);
  };
  const auto spoil = [&](std::int32_t newest) { // position of the newest token that was computed and stays
    const auto caches = spoiled.runner->caches();
    auto* slot = const_cast<std::byte*>((caches.slots + caches.sizes.slot_bytes).raw());
    const auto ring = [&](std::int64_t at, int entries, std::int64_t bytes, int reach) {
      for (std::int32_t p = newest - entries + 1; p <= newest; ++p) // one position for each entry
        if (p <= newest - reach)
          std::memset(slot + at + (p + entries) % entries * bytes, 0xff, static_cast<std::size_t>(bytes));
    };
    for (std::size_t l = 0; l < layout.layers.size(); ++l) {
      const auto& where = layout.layers[l];
      ring(where.window, layout.window_entries, record_bytes(layout.window_format, c.head_dim), 128);
      if (where.pending >= 0)
        ring(where.pending, layout.pending_entries, record_bytes(kv_format::f32, 2 * c.head_dim), 1);
      if (l >= c.layers.size())
        continue;
      const int ratio = std::max(c.layers[l].ratio, 1);
      const auto entries = [&](std::int64_t at, std::int64_t bytes) {
        for (std::int32_t e = (newest + 1) / ratio; at >= 0 && e < 400 / ratio; ++e) {
          const std::int32_t per_block = 128 / ratio, kv = b.blocks[static_cast<std::size_t>(e / per_block)];
          auto* record = const_cast<std::byte*>((caches.blocks + caches.sizes.block_bytes * kv).raw()) + at +
                         e % per_block * bytes;
          std::memset(record, 0xff, static_cast<std::size_t>(bytes));
        }
      };
      entries(where.main, record_bytes(layout.main_format, c.head_dim));
      entries(where.index, record_bytes(layout.index_format, c.index_head_dim));
    }
  };
  std::vector<std::int32_t> prompt{0};
  while (prompt.size() < 150)
    prompt.push_back(id());
  step(plain, a, prompt, 1), step(spoiled, b, prompt, 1);
  a.ids = b.ids = prompt;
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<std::int32_t> right(1 + random() % 6), guessed(6);
    std::ranges::generate(right, id);
    std::ranges::generate(guessed, id); // the rest is wrong
    std::ranges::copy(right, guessed.begin());
    spoil(static_cast<std::int32_t>(b.ids.size()) - 1);
    const auto have = step(spoiled, b, guessed, right.size());
    std::vector<float> want;
    for (const std::int32_t token : right) {
      const auto row = step(plain, a, {token}, 1);
      want.insert(want.end(), row.begin(), row.end());
    }
    BOOST_REQUIRE(have.size() == want.size());
    BOOST_REQUIRE_MESSAGE(std::memcmp(have.data(), want.data(), 4 * want.size()) == 0, "turn " << turn);
  }
}

// Two runners on one device, one of which defers the drafter's cache, and the same sequences on both.
class deferring_pair {
public:
  static constexpr std::int32_t slots = 4; // of sequences, from 1 on
  explicit deferring_pair(const std::string& name) : model_(name) {
    for (const bool defers : {false, true})
      runners_.push_back(std::make_unique<model_runner>(model_.weights, *model_.dev,
                                                        runner_options{.max_rows = 256,
                                                                       .max_sequences = slots,
                                                                       .kv_blocks = 1 + 4 * slots,
                                                                       .state_slots = slots + 2,
                                                                       .max_model_len = length,
                                                                       .nextn = block,
                                                                       .defers_drafter = defers}));
    for (std::int32_t s = 1; s <= slots; ++s)
      sequences_.emplace_back(s, 1 + 4 * (s - 1), length);
  }
  hand_sequence& at(std::int32_t slot) { return sequences_[static_cast<std::size_t>(slot) - 1]; }
  void step(const std::vector<std::int32_t>& of, int rows, int taken_back = 0) {
    step_rows s;
    for (const std::int32_t slot : of) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
      std::ranges::generate(tokens, [&] { return static_cast<std::int32_t>(300 + random_() % 4000); });
      at(slot).feed(s, tokens);
      at(slot).ids.resize(at(slot).ids.size() - static_cast<std::size_t>(taken_back));
    }
    for (auto& r : runners_)
      r->forward(s);
  }
  void restart(std::int32_t slot, int prompt) {
    at(slot).ids.clear();
    step({slot}, prompt);
  }
  template <class F> void on_both(const F& work) {
    for (auto& r : runners_)
      work(*r);
  }
  // The newest tokens of one sequence are computed, and drafts behind them compared.
  void expect_equal_drafts(std::int32_t slot, const std::string& when) {
    step({slot}, 1);
    const hand_drafts want = draft_greedily(*runners_[0], *model_.dev, {slot}, {400}),
                      have = draft_greedily(*runners_[1], *model_.dev, {slot}, {400});
    BOOST_TEST((have.tokens == want.tokens), when);
    BOOST_TEST((have.confidence == want.confidence), when);
  }
  std::vector<std::byte> state(std::size_t runner, std::int32_t slot) {
    const auto caches = runners_[runner]->caches();
    std::vector<std::byte> out(static_cast<std::size_t>(caches.sizes.slot_bytes));
    runners_[runner]->work().to_host(out.data(), caches.slots + caches.sizes.slot_bytes * slot, out.size());
    runners_[runner]->work().synchronise();
    return out;
  }
  void expect_equal_states(const std::string& when) {
    for (std::int32_t slot = 1; slot <= slots + 1; ++slot)
      BOOST_TEST((state(0, slot) == state(1, slot)), when << ", slot " << slot);
  }

private:
  tiny_model model_;
  std::vector<std::unique_ptr<model_runner>> runners_;
  std::vector<hand_sequence> sequences_;
  std::mt19937_64 random_{11};
};

// What plain steps leave undone of the drafter's cache is there, to the bit, when anybody looks: a draft round, a copy
// of the slot, the slot's way to the host. Longer than a window, and with drafts taken back in between.
BOOST_AUTO_TEST_CASE(a_deferred_cache_of_the_drafter_has_the_same_bits) {
  for (const std::string& name : with_gpu({"cpu", "reference"})) {
    deferring_pair both(name);
    const std::vector<std::int32_t> all{1, 2, 3, 4};
    const auto plain = [&](const std::vector<std::int32_t>& of, int steps) {
      for (int i = 0; i < steps; ++i)
        both.step(of, 1);
    };
    both.step(all, 3);
    plain(all, 5);
    both.expect_equal_drafts(1, "first");
    plain({1, 3}, 4);
    both.step({1, 2}, 6, 4); // verifies drafts, four of which are wrong
    both.expect_equal_states("drafts taken back");
    plain({1, 2}, 2);
    both.step({2, 3}, 6, 5);
    plain({2, 3, 4}, 3);
    both.expect_equal_drafts(3, "behind taken back ones");
    plain({1, 4}, name == "cpu" ? 150 : 8); // more than a window's ring holds
    both.expect_equal_drafts(4, "behind a window");
    both.on_both([](model_runner& r) { r.copy_slot(slot_id(1), slot_id(deferring_pair::slots + 1)); });
    both.expect_equal_states("copied");
    plain({2}, 3);
    both.on_both([](model_runner& r) { // which ends what was in slot 2
      r.copy_slot(slot_id(deferring_pair::slots + 1), slot_id(2));
    });
    both.at(2).ids = both.at(1).ids;
    both.expect_equal_drafts(2, "behind a restored snapshot");
    const std::int64_t bytes = cache_size(tiny_checkpoint()->config(), roundings::serving).slot_bytes;
    plain({3}, 3);
    both.on_both([&](model_runner& r) {
      std::vector<std::uint8_t> image(static_cast<std::size_t>(bytes));
      r.save_slot(slot_id(3), image.data());
      r.work().synchronise();
      r.load_slot(image.data(), slot_id(4));
      r.work().synchronise();
    });
    both.at(4).ids = both.at(3).ids;
    both.expect_equal_drafts(4, "behind an image");
    plain({4}, 2);
    both.restart(4, 2);
    plain({4}, 2);
    both.expect_equal_drafts(4, "another sequence in the slot");
  }
}

// A row that cannot be drawn from ends its sequence as in plain decoding: with the tokens before it. Others go on.
BOOST_AUTO_TEST_CASE(an_unusable_row_fails_its_request_only) {
  for (const std::string& name : with_gpu({"cpu", "queued cpu"})) {
    const tiny_device device(name);
    const auto engine = device.engine(decode_form::automatic, 64, block);
    hand_run bad = made_run(3), good = made_run(4), alone = made_run(4);
    good.spec->params.max_tokens = alone.spec->params.max_tokens = 4;
    auto& p = bad.spec->params;
    p = {};
    p.logit_bias = {{700, std::numeric_limits<float>::infinity()}}; // nothing but forced tokens can be drawn
    p.golden_token_ids = {400};
    bad.place(1, 1, length), good.place(2, 5, length), alone.place(1, 1, length);
    run_to_end(*tiny_device("cpu").engine(), alone, 1, 160);
    const auto run = [&](step_plan& plan, std::int32_t drafts) {
      planned_sequence& first = plan.sequences[0];
      first.drafts = drafts;
      first.rows += drafts;
      plan.tokens.insert(plan.tokens.begin() + 1, static_cast<std::size_t>(drafts), draft_in_flight);
      plan.sequences[1].first_token += drafts;
      first.propose = true;
      step_result r;
      engine->launch(plan), engine->collect(r);
      take(good, r.sequences[1]);
      return r.sequences[0];
    };
    step_plan prefill, decode, last;
    add_rows(prefill, bad, bad.prompt_left()), add_rows(prefill, good, good.prompt_left());
    sequence_result r = run(prefill, 0);
    BOOST_TEST(r.tokens.at(0).id == 400);
    BOOST_REQUIRE(r.block.size() == 5u);
    take(bad, r);
    p.golden_token_ids = {400, r.block[0], r.block[1]};
    add_rows(decode, bad, 1), add_rows(decode, good, 1);
    r = run(decode, 5);
    BOOST_TEST(r.failure == "");
    BOOST_REQUIRE(r.tokens.size() == 2u); // the row behind the second one cannot be drawn from
    BOOST_TEST(r.tokens[1].id == p.golden_token_ids[2]);
    for (const drawn_token& t : r.tokens)
      bad.tokens.push_back(t.id);
    --bad.flying, ++bad.computed;
    add_rows(last, bad, 1), add_rows(last, good, 1);
    r = run(last, 0);
    BOOST_TEST(r.failure == "the logits at position " + std::to_string(bad.computed - 1) + " hold +infinity");
    BOOST_TEST(r.tokens.empty());
    const std::vector<std::int32_t> have = good.output(), want = alone.output();
    BOOST_REQUIRE(have.size() == 3u);
    BOOST_TEST(std::equal(have.begin(), have.end(), want.begin()));
  }
}

BOOST_AUTO_TEST_SUITE_END()
