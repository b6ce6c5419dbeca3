// What users of other engines complained about (engine.md §19): each complaint that a scheduler can cause is a test.
// Those of other layers are in actors/ (C10, C17, C19, C20, also C8, C9, C22), process/ (C21, C19), cluster/ (C19),
// runtime/model (C14), runtime/experts (C20), scheduler_memory_test.cpp (C17) and routing_test.cpp (C23).
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

using list = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();

// Two sequences in a pool that holds both prompts, but not both outputs: the first takes a block from the second after
// `boundary` of its tokens. Returns the second's outcome.
struct squeezed {
  core_world w;
  core_request first, second;
  static scheduler_limits limits(bool async, bool cache) {
    scheduler_limits l = small_limits(true);
    l.async = async;
    l.prefix_cache = cache;
    l.kv_blocks = 1 + 5;
    return l;
  }
  squeezed(bool async, bool cache, std::int32_t boundary, bool logprobs = false)
      : w(limits(async, cache)), first(1, made_prompt(257 - boundary), 100, 1), second(2, made_prompt(300, 9), 60, 2) {
    second.spec->params.prompt_logprobs = logprobs;
    second.spec->logit_rows = logprobs ? list{0, 150, 299} : list{};
    BOOST_REQUIRE(w.submit(first));
    BOOST_REQUIRE(w.submit(second));
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_complaints)

BOOST_AUTO_TEST_CASE(c01_impossible_head_does_not_block) { // pool of 8 blocks, a request of 9 at the head
  auto l = small_limits(true);
  l.kv_blocks = 9;
  l.max_model_len = 4000;
  core_world w(l);
  const auto refused = w.submit(core_request(1, made_prompt(100), 1100));
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "no_space");
  BOOST_TEST(refused.failure().message.find("10 KV blocks, the pool has 8") != std::string::npos,
             refused.failure().message);
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(100), 8 * 128 - 100 + 1))); // fills the pool to the last position
  BOOST_REQUIRE(w.submit(core_request(3, made_prompt(700), 20)));
  BOOST_REQUIRE(w.submit(core_request(4, made_prompt(10), 20)));
  w.run();
  BOOST_TEST(w.results[2].tokens.size() == 925u);
  BOOST_TEST(w.results[3].tokens.size() == 20u);
  BOOST_TEST(w.results[4].tokens.size() == 20u);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(c01_a_pool_without_a_slot_fails_the_request_instead_of_hanging) {
  core_world w(small_limits(true), 1);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(3), 1)));
  w.run(100);
  BOOST_TEST(w.results[1].failure.code == "no_space");
  BOOST_TEST(w.core.live() == 0u);
}

// One row a step: the second, which lacks a block, must not be chosen in place of the first, which can go on.
BOOST_AUTO_TEST_CASE(c01_who_waits_for_a_block_takes_nobodys_turn) {
  auto l = small_limits(true);
  l.max_num_batched_tokens = 1;
  l.kv_blocks = 1 + 5;
  core_world w(l);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(300), 210)));
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(120), 20)));
  w.run();
  BOOST_TEST(w.results[1].tokens.size() == 210u);
  BOOST_TEST(w.results[2].tokens.size() == 20u);
  BOOST_TEST(w.results[2].longest_gap > 20); // it did wait
}

BOOST_AUTO_TEST_CASE(c02_preemption_at_every_step_boundary_changes_no_token) {
  int preempted_prompt = 0, preempted_output = 0;
  for (const bool async : {false, true})
    for (const bool cache : {false, true})
      for (std::int32_t boundary = 2; boundary <= 70; ++boundary) {
        squeezed s(async, cache, boundary);
        while (s.w.core.live() > 0 && s.w.step())
          BOOST_REQUIRE(s.w.healthy());
        const core_outcome& o = s.w.results[2];
        BOOST_TEST(s.w.results[1].tokens == alone(s.first, s.w), each);
        BOOST_TEST(o.tokens == alone(s.second, s.w), each);
        BOOST_TEST(!o.late);
        BOOST_TEST(s.w.results[1].preemptions == 0);
        BOOST_TEST(o.preemptions <= 2);
        preempted_prompt += o.preemptions > 0 && o.first_token_step > boundary;
        preempted_output += o.preemptions > 0 && o.first_token_step <= boundary;
      }
  BOOST_TEST(preempted_prompt > 3); // while its prompt was computed
  BOOST_TEST(preempted_output > 100);
}

BOOST_AUTO_TEST_CASE(c02_the_number_of_preemptions_is_bounded) { // many growing sequences in a pool for few
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    auto l = small_limits(true);
    l.max_num_seqs = 16;
    l.kv_blocks = 1 + 12;
    l.async = seed % 2 == 0;
    l.prefix_cache = seed % 3 != 0;
    core_world w(l);
    std::vector<core_request> all;
    for (std::uint64_t i = 1; i <= 24; ++i) {
      all.emplace_back(i, made_prompt(static_cast<std::int32_t>(1 + random() % 200), static_cast<std::int32_t>(i)),
                       static_cast<std::int32_t>(300 + random() % 400), i);
      BOOST_REQUIRE(w.submit(all.back()));
    }
    w.run();
    BOOST_TEST(w.healthy(), w.trouble);
    std::int32_t most = 0, sum = 0;
    for (const auto& r : all) {
      const core_outcome& o = w.results[r.spec->id.value];
      BOOST_TEST(o.tokens == alone(r, w), each);
      most = std::max(most, o.preemptions);
      sum += o.preemptions;
    }
    BOOST_TEST(sum > 0);
    BOOST_TEST(most <= 4); // each doubles the room that it waits for: 1, 2, 4, 8 blocks for 700 tokens
    BOOST_TEST(w.results[1].preemptions == 0);
  }
}

BOOST_AUTO_TEST_CASE(c02_who_lost_its_cache_waits_for_room_to_keep_it) {
  auto l = small_limits(true);
  l.kv_blocks = 1 + 8;
  l.async = false;
  core_world w(l);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(247), 500, 1)));    // will need 6 blocks
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(500, 3), 300, 2))); // 7
  std::vector<std::int32_t> rooms;
  while (w.core.live() > 0) {
    const std::size_t blocks = w.kv.table(sequence_id{1}).size();
    if (w.begin_turn()) {
      for (const auto& a : w.want.admit)
        if (a.id.value == 2 && blocks > 0 && !w.results[2].tokens.empty())
          rooms.push_back(a.room);
      w.end_turn();
    }
    if (!w.out.empty())
      w.finish_step();
  }
  // Its output fills a fifth block; one stays free for those that run; and a block more for itself and for the first.
  BOOST_REQUIRE(!rooms.empty());
  BOOST_TEST(rooms.front() == 1 + 1 + 1 + 1);
  BOOST_TEST(w.results[2].preemptions == 1);
  BOOST_TEST(w.results[2].tokens.size() == 300u);
}

// C3: the step that is out when its sequence loses the cache counts for nothing, and the text neither skips nor
// repeats.
BOOST_AUTO_TEST_CASE(c03_the_result_in_flight_of_a_preempted_sequence_is_discarded) {
  int seen = 0;
  for (std::int32_t boundary = 10; boundary <= 40; ++boundary) {
    squeezed s(true, true, boundary);
    core_world& w = s.w;
    while (w.core.live() > 0) {
      const std::size_t running = w.core.running();
      while (turn(w)) {
      }
      const bool lost = w.core.running() < running && w.results[1].ends == 0 && w.core.live() == 2;
      const std::size_t before = w.results[2].tokens.size();
      const bool flew = !w.out.empty() && std::ranges::any_of(w.out[0].sequences, [](const planned_sequence& p) {
        return p.spec->id.value == 2 && p.sample;
      });
      if (w.out.empty())
        break;
      w.finish_step();
      if (lost && flew) {
        BOOST_TEST(w.results[2].tokens.size() == before);
        ++seen;
      }
    }
    BOOST_TEST(w.results[2].tokens == alone(s.second, w), each);
    BOOST_TEST(!w.results[2].late);
  }
  BOOST_TEST(seen > 5);
}

BOOST_AUTO_TEST_CASE(c04_a_placeholder_never_becomes_a_token) {
  for (const std::int32_t bad : {token_in_flight, -1}) {
    core_world w(small_limits(true));
    BOOST_REQUIRE(w.submit(core_request(1, made_prompt(10), 9)));
    w.step();
    const std::size_t before = w.results[1].tokens.size();
    step_result r;
    w.model.run(w.out.front(), r);
    w.out.pop_front();
    r.sequences[0].tokens[0].id = bad;
    w.core.complete(r, w.events);
    w.absorb();
    BOOST_TEST(w.results[1].failure.code == "device_error");
    BOOST_TEST(w.results[1].tokens.size() == before);
    while (!w.out.empty())
      w.finish_step(); // the step that took it over
    BOOST_TEST(!w.results[1].late);
    BOOST_TEST(w.core.live() == 0u);
  }
}

// The same where drafts and the token in front of them are still in flight: nothing of the block is given out, and the
// step that was planned on it comes to nothing.
BOOST_AUTO_TEST_CASE(c04_a_placeholder_among_drafts_in_flight_never_becomes_a_token) {
  for (const std::int32_t bad : {token_in_flight, draft_in_flight})
    for (const bool at_the_end : {false, true}) {
      auto l = small_limits(true);
      l.nextn = 3;
      core_world w(l);
      w.model.right = 1;
      const core_request request(1, made_prompt(10), 60);
      BOOST_REQUIRE(w.submit(request));
      const auto in_flight = [&] {
        return w.out.size() == 2 && w.out[0].sequences[0].drafts == 3 && w.out[1].sequences[0].slack == 3 &&
               std::ranges::count(w.out[1].tokens, token_in_flight) == 1 &&
               std::ranges::count(w.out[1].tokens, draft_in_flight) == 3;
      };
      for (int i = 0; i < 20 && !in_flight(); ++i) {
        while (w.begin_turn())
          w.end_turn();
        if (!in_flight())
          w.finish_step();
      }
      BOOST_REQUIRE(in_flight());
      const list before = w.results[1].tokens;
      step_result r;
      w.model.run(w.out.front(), r);
      w.out.pop_front();
      BOOST_REQUIRE(r.sequences[0].tokens.size() == 4u);
      r.sequences[0].tokens[at_the_end ? 3 : 0].id = bad;
      w.core.complete(r, w.events);
      w.absorb();
      BOOST_TEST(w.results[1].failure.code == "device_error");
      BOOST_TEST(w.results[1].tokens == before, each);
      const list whole = alone(request, w);
      BOOST_TEST(std::equal(before.begin(), before.end(), whole.begin()));
      w.finish_step(); // the step that took it over
      BOOST_TEST(!w.results[1].late);
      BOOST_TEST(w.core.live() == 0u);
      w.settle();
      BOOST_TEST(w.kv.statistics().used_blocks == 0);
    }
}

// C5: the rows of a sequence follow each other without gap or overlap, restarts apart.
BOOST_AUTO_TEST_CASE(c05_scheduler_and_executor_count_the_same_positions) {
  for (const std::int32_t boundary : {5, 30, 60}) {
    squeezed s(true, true, boundary);
    core_world& w = s.w;
    std::map<std::uint64_t, std::int32_t> counter;
    int restarts = 0;
    while (w.core.live() > 0) {
      const bool made = turn(w);
      if (made)
        for (const planned_sequence& p : w.out.back().sequences) {
          auto [at, fresh] = counter.emplace(p.spec->id.value, p.start);
          if (at->second != p.start) {
            BOOST_TEST(p.start % 128 == 0); // from the start, or behind a hit
            BOOST_TEST(p.start < p.spec->prompt_tokens);
            ++restarts;
          }
          at->second = p.start + p.rows;
          BOOST_TEST(p.blocks == blocks_for(at->second));
        }
      if (!w.out.empty() && (!made || w.out.size() == 2))
        w.finish_step();
    }
    BOOST_TEST(restarts == w.results[2].preemptions);
    BOOST_TEST(counter[1] == 257 - boundary + 99); // the last token has no row
  }
}

// C5 under speculation: whatever becomes of the drafts, the newest token of each request lies where the executor drew
// it, after each step; and a step has no more rows than its budget, all of them if everybody has nextn drafts.
BOOST_AUTO_TEST_CASE(c05_scheduler_and_executor_count_the_same_tokens_behind_drafts) {
  constexpr int sequences = 4, nextn = 3;
  std::uint64_t preemptions = 0;
  for (const bool async : {false, true})
    for (const double right : {0.0, 0.6, 1.0})
      for (const int budget : {sequences * (nextn + 1), sequences * (nextn + 1) - 1, sequences + 1}) {
        auto l = small_limits(async);
        l.nextn = nextn;
        l.max_num_batched_tokens = budget;
        l.kv_blocks = 1 + sequences; // then 1 + 1 of the outputs: caches are lost on the way
        core_world w(l);
        w.model.right = right;
        std::vector<core_request> requests;
        for (std::uint64_t id = 1; id <= sequences; ++id)
          BOOST_REQUIRE(w.submit(requests.emplace_back(id, made_prompt(20, static_cast<std::int32_t>(id)), 160, id)));
        std::int64_t compared = 0, full = 0;
        while (w.core.live() > 0) {
          while (w.begin_turn())
            if (w.end_turn()) {
              BOOST_TEST(std::ssize(w.out.back().tokens) <= budget);
              full += w.out.back().kind == step_kind::decode && std::ssize(w.out.back().tokens) == budget;
            }
          BOOST_REQUIRE(!w.out.empty());
          const step_plan done = w.out.front();
          const bool lives_on = w.core.preemptions() == w.preemptions_before.at(done.number);
          w.finish_step();
          for (const planned_sequence& p : done.sequences)
            if (const core_outcome& o = w.results[p.spec->id.value]; p.sample && lives_on && o.ends == 0) {
              BOOST_TEST(w.model.slot_at(p.slot).drawn_for == p.spec->prompt_tokens + std::ssize(o.tokens) - 1);
              ++compared;
            }
        }
        for (const core_request& r : requests) {
          BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), each);
          BOOST_TEST(w.results[r.spec->id.value].verified > 0);
        }
        BOOST_TEST(compared > 100);
        BOOST_TEST(full > 5);
        preemptions += w.core.preemptions();
        BOOST_TEST(w.healthy(), w.trouble);
      }
  BOOST_TEST(preemptions > 10u);
}

BOOST_AUTO_TEST_CASE(c06_abort_in_every_state_gives_everything_back) {
  for (int steps = 0; steps < 12; ++steps)
    for (const bool in_turn : {false, true})
      for (const std::uint64_t victim : {1, 2, 3, 4}) {
        auto l = small_limits(true);
        l.max_num_seqs = 3;
        l.max_num_batched_tokens = 130;
        core_world w(l);
        core_request a(1, made_prompt(10), 50), b(2, made_prompt(700), 5), c(3, made_prompt(700), 5),
            d(4, made_prompt(20), 5);
        c.ask.fork_of = b.spec->id; // parked until the other's prompt is through
        for (const auto& r : {a, b, c, d})
          BOOST_REQUIRE(w.submit(r));
        for (int i = 0; i < steps; ++i)
          w.step();
        const bool open = in_turn && w.begin_turn();
        const bool lived = w.results[victim].ends == 0;
        BOOST_TEST(w.abort(victim) == lived);
        BOOST_TEST(!w.abort(victim));
        const std::uint64_t planned = w.core.steps();
        if (open)
          w.end_turn();
        while (w.holds(victim))
          w.begin_turn() ? void(w.end_turn()) : w.finish_step();
        BOOST_TEST(w.core.steps() - planned <= 2u); // I10
        BOOST_TEST(w.healthy(), w.trouble);
        w.run();
        BOOST_TEST(w.healthy(), w.trouble);
        BOOST_TEST(w.results[victim].ends == 1);
        BOOST_TEST(!w.results[victim].late);
        for (const auto& r : {a, b, c, d})
          if (r.spec->id.value != victim)
            BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), each);
        BOOST_TEST(w.kv.sequences() == 0u);
        BOOST_TEST(w.kv.statistics().used_blocks == 0);
        BOOST_TEST(w.kv.statistics().used_slots == 0);
      }
}

BOOST_AUTO_TEST_CASE(c07_what_an_aborted_request_held_is_free_within_two_steps) {
  core_world w(small_limits(true));
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(600), 300)));
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(10), 300)));
  for (int i = 0; i < 12; ++i)
    w.step();
  BOOST_TEST(w.kv.table(sequence_id{1}).size() >= 5u);
  w.abort(1);
  const auto at = w.core.steps();
  while (w.kv.sequences() > 1)
    BOOST_REQUIRE(w.step());
  BOOST_TEST(w.core.steps() - at <= 2u);
}

BOOST_AUTO_TEST_CASE(c09_one_long_prompt_and_steady_short_traffic) {
  scheduler_limits l;
  l.max_num_batched_tokens = 512;
  l.max_model_len = 110000;
  l.max_num_seqs = 16;
  l.kv_blocks = 1000;
  core_world w(l);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(100000), 5)));
  std::uint64_t next = 2;
  std::map<std::uint64_t, std::int64_t> asked;
  while (w.results[1].tokens.empty() && w.core.steps() < 3000) {
    if (w.core.steps() >= 4 * (next - 2)) {
      asked[next] = static_cast<std::int64_t>(w.core.steps());
      BOOST_REQUIRE(w.submit(core_request(next, made_prompt(60, static_cast<std::int32_t>(next % 40)), 12)));
      ++next;
    }
    BOOST_REQUIRE(w.step());
  }
  w.run();
  BOOST_TEST(next > 100u);
  std::vector<std::int64_t> waits;
  std::int64_t gap = 0;
  for (const auto& [id, step] : asked) {
    waits.push_back(w.results[id].first_token_step - step);
    gap = std::max(gap, w.results[id].longest_gap);
    BOOST_TEST(w.results[id].ends == 1);
  }
  BOOST_TEST(*std::ranges::max_element(waits) <= 6); // two steps out, a decode step, its own two, one more
  BOOST_TEST(gap <= 2);                              // at most one prefill step between two tokens
  // and the long one is not starved: 391 prefill steps if half of each is its own, as many decode steps
  BOOST_TEST(w.results[1].first_token_step <= 800);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(c11_a_stop_cuts_exactly_there) {
  for (const bool async : {false, true})
    for (std::int32_t at = 0; at < 8; ++at)
      for (const bool stop_id : {false, true}) {
        auto l = small_limits(true);
        l.async = async;
        core_world w(l);
        core_request r(1, made_prompt(10), 8);
        r.spec->params.golden_token_ids = list(8, 7);
        r.spec->params.golden_token_ids[static_cast<std::size_t>(at)] = 42;
        (stop_id ? r.spec->params.stop_token_ids : r.spec->eos_ids) = {42};
        BOOST_REQUIRE(w.submit(r));
        w.run();
        BOOST_TEST(std::ssize(w.results[1].tokens) == at + 1);
        BOOST_TEST(w.results[1].tokens.back() == 42);
        BOOST_TEST((w.results[1].end == finish_reason::stop));
        BOOST_TEST(!w.results[1].late);
      }
}

BOOST_AUTO_TEST_CASE(c12_prompt_logprobs_are_whole_and_the_same_in_every_mode) {
  const auto expected = made_prompt(300, 9);
  const std::vector<float> logprobs(expected.begin() + 1, expected.end());
  const std::vector<float> logits{static_cast<float>(expected[0]), static_cast<float>(expected[150]),
                                  static_cast<float>(expected[299])};
  int preemptions = 0;
  for (const bool async : {false, true})
    for (const bool cache : {false, true})
      for (std::int32_t boundary = 2; boundary <= 60; boundary += 3) {
        squeezed s(async, cache, boundary, true);
        core_request same(3, made_prompt(300, 9), 1); // leaves its blocks in the cache first
        s.w.run();
        BOOST_TEST(s.w.results[2].prompt_logprobs == logprobs, each);
        BOOST_TEST(s.w.results[2].logits == logits, each);
        BOOST_TEST(s.w.results[2].cached == 0);
        preemptions += s.w.results[2].preemptions;
        same.spec->params.prompt_logprobs = true;
        BOOST_REQUIRE(s.w.submit(same));
        s.w.run();
        BOOST_TEST(s.w.results[3].prompt_logprobs == logprobs, each); // no hit, though the prefix is cached
        BOOST_TEST(s.w.results[3].cached == 0);
      }
  BOOST_TEST(preemptions > 20);
}

BOOST_AUTO_TEST_CASE(c13_seeds_decide_and_nothing_else) {
  std::vector<list> texts;
  for (const bool async : {false, true})
    for (const std::int32_t budget : {7, 64, 256}) {
      auto l = small_limits(true);
      l.async = async;
      l.max_num_batched_tokens = budget;
      core_world w(l);
      const core_request first(1, made_prompt(150), 30, 77);
      core_request same(2, made_prompt(150), 30, 77), other(3, made_prompt(150), 30, 78),
          branch(4, made_prompt(150), 30, 79);
      branch.ask.fork_of = first.spec->id;
      for (const auto& r : {first, same, other, branch})
        BOOST_REQUIRE(w.submit(r));
      w.run();
      BOOST_TEST(w.results[1].tokens == w.results[2].tokens, each);
      BOOST_TEST((w.results[1].tokens != w.results[3].tokens));
      BOOST_TEST((w.results[1].tokens != w.results[4].tokens));
      BOOST_TEST((w.results[3].tokens != w.results[4].tokens));
      texts.push_back(w.results[1].tokens);
      BOOST_TEST(texts.back() == texts.front(), each);
    }
}

BOOST_AUTO_TEST_CASE(c14_the_text_does_not_depend_on_the_company) {
  for (const std::int32_t others : {0, 1, 5, 20}) {
    auto l = small_limits(true);
    l.max_num_seqs = 8;
    core_world w(l);
    const core_request r(1, made_prompt(333), 40, 5);
    for (std::int32_t i = 0; i < others; ++i)
      BOOST_REQUIRE(w.submit(core_request(static_cast<std::uint64_t>(100 + i), made_prompt(20 * i + 1, i), 3 * i + 1)));
    BOOST_REQUIRE(w.submit(r));
    w.run();
    BOOST_TEST(w.results[1].tokens == alone(r, w), each);
    BOOST_TEST(w.healthy(), w.trouble);
  }
}

// C15: for every length of the prompt, a second run finds as much as the rule allows, and gives the same.
BOOST_AUTO_TEST_CASE(c15_a_hit_reaches_the_last_snapshot_and_changes_nothing) {
  for (const yoco_mode mode : {yoco_mode::off, yoco_mode::compact})
    for (const std::int32_t nextn : {0, 5})
      for (std::int32_t length = 1; length < 128 + 140 + 128; ++length) {
        auto l = small_limits(true);
        l.yoco = mode;
        l.nextn = nextn;
        core_world w(l);
        w.model.right = 0.7;
        for (std::uint64_t id = 1; id <= 2; ++id) {
          const core_request r(id, made_prompt(length), 10, id);
          BOOST_REQUIRE(w.submit(r));
          w.run();
          BOOST_TEST((w.results[id].tokens == alone(r, w)));
          BOOST_TEST(w.results[id].cached == (id == 1 ? 0 : hit_cap(mode, length, 140)));
        }
        core_request tenant(3, made_prompt(length), 10, 1);
        tenant.ask.salt = std::make_shared<const std::string>("other tenant");
        BOOST_REQUIRE(w.submit(tenant));
        w.run();
        BOOST_TEST(w.results[3].cached == 0);
        BOOST_TEST(w.healthy(), w.trouble);
      }
}

BOOST_AUTO_TEST_CASE(c15_prompts_with_a_common_beginning_find_it_from_the_third_on) {
  for (const yoco_mode mode : {yoco_mode::off, yoco_mode::compact})
    for (const std::int32_t common : {130, 256, 400, 555, 900})
      for (const std::int32_t rows : {64, 256, 1024}) {
        auto l = small_limits(true);
        l.max_model_len = 1300;
        l.max_num_batched_tokens = rows;
        l.yoco = mode;
        core_world w(l);
        for (std::uint64_t id = 1; id <= 4; ++id) {
          list prompt = made_prompt(common);
          const list end = made_prompt(300, static_cast<std::int32_t>(10 * id));
          prompt.insert(prompt.end(), end.begin(), end.end());
          const core_request r(id, prompt, 10, id);
          BOOST_REQUIRE(w.submit(r));
          w.run();
          BOOST_TEST(w.results[id].tokens == alone(r, w), each);
          BOOST_TEST(w.results[id].cached == (id < 3 ? 0 : common / 128 * 128));
        }
        BOOST_TEST(w.healthy(), w.trouble);
      }
}

BOOST_AUTO_TEST_CASE(c15_prompts_that_are_not_chunked_leave_snapshots_too) {
  for (const std::int32_t interval : {0, 128}) {
    auto l = small_limits(true);
    l.max_num_batched_tokens = 512;
    l.chunked_prefill = false;
    l.snapshot_interval = interval;
    core_world w(l);
    const std::vector<core_request> requests{
        {1, made_prompt(500), 10, 1}, {2, made_prompt(500), 10, 2}, {3, made_prompt(200), 10, 3}};
    for (const core_request& r : requests) {
      BOOST_REQUIRE(w.submit(r));
      w.run();
      BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), each);
    }
    BOOST_TEST(w.results[1].cached == 0);
    BOOST_TEST(w.results[2].cached == 384);
    BOOST_TEST(w.results[3].cached == (interval == 0 ? 0 : 128));
    BOOST_TEST(w.healthy(), w.trouble);
  }
}

// engine.md §20.4: a conversation's boundaries are kept before anybody has parted there.
BOOST_AUTO_TEST_CASE(c15_the_first_that_shares_up_to_a_checkpoint_finds_it) {
  for (const std::int32_t at : {0, 300, 600}) {
    core_world w(small_limits(true));
    for (std::uint64_t id = 1; id <= 2; ++id) {
      list prompt = made_prompt(700);
      const list end = made_prompt(300, static_cast<std::int32_t>(10 * id));
      prompt.insert(prompt.end(), end.begin(), end.end());
      core_request r(id, prompt, 10, id);
      if (at > 0)
        r.ask.chunk_checkpoints = std::make_shared<const list>(list{at, at + 1, 5000});
      BOOST_REQUIRE(w.submit(r));
      w.run();
      BOOST_TEST(w.results[id].tokens == alone(r, w), each);
    }
    BOOST_TEST(w.results[2].cached == at / 128 * 128);
    BOOST_TEST(w.healthy(), w.trouble);
  }
}

BOOST_AUTO_TEST_CASE(c15_what_a_running_sequence_has_computed_can_be_found) {
  core_world w(small_limits(true));
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(300), 200, 1)));
  while (w.results[1].tokens.empty())
    w.step();
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(300), 5, 2)));
  w.run();
  BOOST_TEST(w.results[2].cached == 256);
  BOOST_TEST(w.results[2].last_token_step < w.results[1].last_token_step);
}

BOOST_AUTO_TEST_CASE(c15_a_conversation_continues_from_what_was_said) {
  core_world w(small_limits(true));
  const core_request first(1, made_prompt(200), 200, 3);
  BOOST_REQUIRE(w.submit(first));
  w.run();
  list longer = made_prompt(200);
  const list said = alone(first, w);
  longer.insert(longer.end(), said.begin(), said.end());
  longer.push_back(5);
  const core_request second(2, longer, 20, 4);
  BOOST_REQUIRE(w.submit(second));
  w.run();
  BOOST_TEST(w.results[2].cached == 384); // 399 positions were computed: three blocks, and the state at their end
  BOOST_TEST(w.results[2].tokens == alone(second, w), each);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(c16_a_preempted_request_keeps_its_place) {
  auto l = small_limits(true);
  l.kv_blocks = 1 + 5;
  l.ageing_steps = 1000;
  core_world w(l);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(250), 300, 1)));
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(250, 5), 130, 2)));
  while (w.core.running() < 2)
    BOOST_REQUIRE(w.step());
  BOOST_REQUIRE(w.submit(core_request(3, made_prompt(250, 7), 130, 3))); // no room for it
  core_request urgent(4, made_prompt(250, 11), 130, 4);
  urgent.ask.priority = -1;
  BOOST_REQUIRE(w.submit(urgent));
  w.run();
  BOOST_TEST(w.results[2].preemptions >= 1);
  BOOST_TEST(w.results[2].last_token_step < w.results[3].first_token_step); // before what came later
  BOOST_TEST(w.results[4].first_token_step < w.results[3].first_token_step);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(c16_waiting_outweighs_priority_after_a_bounded_time) {
  auto l = small_limits(true);
  l.max_num_seqs = 1;
  l.ageing_steps = 20;
  core_world w(l);
  core_request humble(1, made_prompt(10), 5);
  humble.ask.priority = 2;
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(10), 5)));
  BOOST_REQUIRE(w.submit(humble));
  std::uint64_t id = 3;
  while (w.results[1].tokens.empty() && w.core.steps() < 1000) { // there is always one of a better priority
    while (w.core.waiting() < 3)
      BOOST_REQUIRE(w.submit(core_request(id++, made_prompt(10), 5)));
    BOOST_REQUIRE(w.step());
  }
  BOOST_TEST(w.results[1].first_token_step > 20); // the better ones went first ...
  BOOST_TEST(w.results[1].first_token_step < 60); // ... for two priority levels of 20 steps each
}

BOOST_AUTO_TEST_CASE(c18_d20_a_duplicate_id_is_refused) {
  core_world w(small_limits(true));
  const core_request r(1, made_prompt(10), 5, 3);
  BOOST_REQUIRE(w.submit(r));
  BOOST_TEST(w.submit(r).failure().code == "duplicate_id");
  w.step();
  BOOST_TEST(w.submit(core_request(1, made_prompt(99), 1)).failure().code == "duplicate_id");
  w.run();
  BOOST_TEST(w.results[1].tokens == alone(r, w), each);
  w.results.clear();
  BOOST_REQUIRE(w.submit(r)); // the id is free again
  w.step();
  w.abort(1);
  w.results.clear();
  BOOST_REQUIRE(w.submit(r)); // also while rows of its predecessor are out
  w.run();
  BOOST_TEST(w.results[1].tokens == alone(r, w), each);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(c22_no_rows_without_a_sequence) {
  core_world w(small_limits(true));
  BOOST_TEST((w.core.intent() == step_intent{}));
  BOOST_TEST(!w.begin_turn());
  BOOST_TEST(!w.core.want(step_kind::decode, w.want)); // the group decodes, this rank has nothing
  BOOST_TEST(!w.core.want(step_kind::prefill, w.want));
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(10), 5)));
  w.run();
  BOOST_TEST(w.model.rows == 14);
  BOOST_TEST(!w.begin_turn());
}

BOOST_AUTO_TEST_CASE(c24_nothing_goes_beyond_max_tokens_or_the_models_length) {
  for (const bool async : {false, true})
    for (const std::int32_t length : {1, 500, 990, 999, 1000}) {
      auto l = small_limits(true);
      l.async = async;
      core_world w(l);
      core_request endless(1, made_prompt(length), 1 << 30);
      endless.spec->params.ignore_eos = true;
      BOOST_REQUIRE(w.submit(endless));
      w.run();
      BOOST_TEST(std::ssize(w.results[1].tokens) == 1000 - length);
      BOOST_TEST((w.results[1].end == finish_reason::length));
      BOOST_TEST(w.healthy(), w.trouble);
    }
}

BOOST_AUTO_TEST_SUITE_END()
