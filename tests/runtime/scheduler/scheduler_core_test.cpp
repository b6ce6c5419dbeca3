// How scheduler_core cuts prompts, shares steps, uses the cache and forks; its rules one by one.
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

using list = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_core_rules)

BOOST_AUTO_TEST_CASE(prompts_share_the_rows_of_a_step) { // engine.md §6.3: B = 256, prompts 100 300 50
  core_world w(small_limits());
  for (std::uint64_t i = 0; i < 3; ++i)
    BOOST_REQUIRE(w.submit(core_request(i + 1, made_prompt(list{100, 300, 50}[i]), 2)));
  BOOST_REQUIRE(turn(w));
  BOOST_TEST((w.out[0].kind == step_kind::prefill));
  // The original: 100 156, then 144 50. Half of the rows go by order, half to the shortest (C9).
  BOOST_TEST(w.rows() == (list{100, 106, 50}), each);
  BOOST_TEST(w.out[0].sequences[0].sample);
  BOOST_TEST(!w.out[0].sequences[1].sample);
  BOOST_TEST(w.out[0].sequences[1].next == made_prompt(300)[106]);
  BOOST_TEST(w.out[0].sequences[2].sample);
  w.finish_step();
  BOOST_REQUIRE(turn(w)); // those whose prompt is through decode before the next prefill step (D3)
  BOOST_TEST((w.out[0].kind == step_kind::decode));
  BOOST_TEST(w.rows() == (list{1, 1}), each);
  w.finish_step();
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.rows() == (list{150}), each); // to 256, where a snapshot is kept
  BOOST_TEST(w.out[0].snapshots.size() == 1u);
  w.finish_step();
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.rows() == (list{44}), each);
  BOOST_TEST(w.out[0].sequences[0].sample);
  BOOST_TEST(w.out[0].sequences[0].next == -1);
  w.finish_step();
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.results[2].tokens.size() == 2u);
}

// The same vector as the original has it, [100, 156] and [144, 50]: there a short prompt waits for the long one before
// it. Here too where it has no place yet, and gets that of the first, which ends with its first token.
BOOST_AUTO_TEST_CASE(prompts_follow_each_other_where_there_is_no_place_for_the_third) {
  auto l = small_limits();
  l.max_num_seqs = 2;
  l.prefix_cache = false; // which has prompts cut where their state is kept
  core_world w(l);
  for (std::uint64_t i = 0; i < 3; ++i)
    BOOST_REQUIRE(w.submit(core_request(i + 1, made_prompt(list{100, 300, 50}[i]), i == 0 ? 1 : 2)));
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.rows() == (list{100, 156}), each);
  w.finish_step();
  BOOST_REQUIRE(turn(w));
  BOOST_TEST((w.out[0].kind == step_kind::prefill));
  BOOST_TEST(w.rows() == (list{144, 50}), each);
  w.finish_step();
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(whole_prompts_without_chunking) { // engine.md §6.3: B = 512, prompts 300 300
  auto l = small_limits();
  l.max_num_batched_tokens = 512;
  l.chunked_prefill = false;
  l.prefix_cache = false; // which has prompts cut where their state is kept
  core_world w(l);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(300), 1)));
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(300), 1)));
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.rows() == (list{300}), each);
  w.finish_step();
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.rows() == (list{300}), each);
  w.finish_step();
  const auto refused = w.submit(core_request(3, made_prompt(513), 1));
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "prompt_too_long");
  BOOST_TEST(refused.failure().message.find("513") != std::string::npos);
  BOOST_TEST(refused.failure().message.find("512") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(decode_takes_turns_when_rows_are_scarce) {
  auto l = small_limits();
  l.max_num_batched_tokens = 2;
  core_world w(l);
  for (std::uint64_t i = 1; i <= 3; ++i)
    BOOST_REQUIRE(w.submit(core_request(i, made_prompt(2), 9)));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    BOOST_TEST(w.results[i].tokens.size() == 9u);
    BOOST_TEST(w.results[i].longest_gap <= 4); // two decode steps for three, prefill steps at the start
  }
}

BOOST_AUTO_TEST_CASE(ends_by_every_rule) {
  for (const bool async : {false, true}) {
    auto l = small_limits();
    l.async = async;
    core_world w(l);
    const auto first = stub_token(made_prompt(10), 5, 50);
    core_request eos(1, made_prompt(10), 9, 5), ignored(2, made_prompt(10), 3, 5), stop_id(3, made_prompt(10), 9, 5),
        late(4, made_prompt(10), 9, 5), full(5, made_prompt(998), 9), brim(6, made_prompt(1000), 9);
    eos.spec->eos_ids = ignored.spec->eos_ids = late.spec->eos_ids = {first};
    ignored.spec->params.ignore_eos = true;
    stop_id.spec->params.stop_token_ids = {first};
    late.spec->params.min_tokens = 1;
    late.spec->params.golden_token_ids = {first, 3, first};
    for (const auto& r : {eos, ignored, stop_id, late, full, brim})
      BOOST_REQUIRE(w.submit(r));
    w.run();
    BOOST_TEST(w.healthy(), w.trouble);
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
    BOOST_TEST(w.kv.sequences() == 0u);
  }
}

BOOST_AUTO_TEST_CASE(one_bad_row_and_a_failed_step) {
  core_world w(small_limits());
  for (std::uint64_t i = 1; i <= 3; ++i)
    BOOST_REQUIRE(w.submit(core_request(i, made_prompt(10), 5)));
  w.step();
  BOOST_REQUIRE(turn(w));
  step_result r;
  w.model.run(w.out[0], r);
  w.out.clear();
  r.sequences[1].failure = "NaN in the logits";
  w.core.complete(r, w.events);
  w.absorb();
  BOOST_TEST((w.results[2].end == finish_reason::error));
  BOOST_TEST(w.results[2].tokens.size() == 1u);
  BOOST_REQUIRE(w.submit(core_request(4, made_prompt(10), 5)));
  BOOST_REQUIRE(w.core.want(step_kind::decode, w.want)); // 1 and 3
  BOOST_REQUIRE(w.end_turn());
  w.fail_step();
  BOOST_TEST((w.results[1].end == finish_reason::error));
  BOOST_TEST(w.results[3].failure.message.find("device lost") != std::string::npos);
  w.run();
  BOOST_TEST(w.results[4].tokens.size() == 5u); // was not in the step
  BOOST_TEST(w.kv.sequences() == 0u);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(answers_that_do_not_belong_to_the_step_count_for_nothing) {
  core_world w(small_limits());
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(10), 5)));
  BOOST_REQUIRE(turn(w));
  step_result stale;
  stale.number = 77;
  w.core.complete(stale, w.events);
  BOOST_TEST(w.events.empty());
  BOOST_TEST(w.core.steps_out() == 1u);
  step_result shorter;
  shorter.number = w.out[0].number;
  w.core.complete(shorter, w.events); // answers for nobody
  w.absorb();
  BOOST_TEST(w.results[1].failure.code == "device_error");
  BOOST_TEST(w.results[1].failure.message.find("0 of 1 sequences") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_lost_executor_ends_everything_once_and_replays_go_on) {
  for (const bool in_turn : {false, true}) {
    auto l = small_limits();
    l.max_num_seqs = 2;
    l.async = true;
    core_world w(l);
    std::vector<core_request> all;
    for (std::uint64_t i = 1; i <= 4; ++i)
      all.emplace_back(i, made_prompt(10), 9, i);
    for (const auto& r : all)
      BOOST_REQUIRE(w.submit(r));
    for (int i = 0; i < 3; ++i)
      w.step();
    BOOST_REQUIRE(in_turn ? w.begin_turn() : turn(w));
    w.core.fail_all({"engine_lost", "executor ended"}, w.events);
    w.absorb();
    if (in_turn)
      BOOST_TEST(!w.end_turn());
    w.settle();
    std::vector<list> given;
    for (std::uint64_t i = 1; i <= 4; ++i) {
      BOOST_TEST(w.results[i].failure.code == "engine_lost");
      BOOST_TEST(w.results[i].ends == 1);
      given.push_back(w.results[i].tokens);
    }
    BOOST_TEST(given[0].size() > 0u);
    BOOST_TEST(w.core.live() == 0u);
    BOOST_TEST(w.kv.sequences() == 0u);
    step_result late;
    late.number = w.out[0].number;
    w.core.complete(late, w.events); // means nothing any more
    BOOST_TEST(w.events.empty());
    BOOST_TEST(w.healthy(), w.trouble);

    core_world next(l);
    for (std::size_t i = 0; i < 4; ++i) {
      next.results[i + 1].tokens = given[i];
      all[i].ask.emitted = given[i];
      BOOST_REQUIRE(next.submit(all[i]));
    }
    next.run();
    for (std::size_t i = 0; i < 4; ++i) {
      BOOST_TEST(next.results[i + 1].tokens == alone(all[i], next), each);
      BOOST_TEST(!next.results[i + 1].late);
    }
    BOOST_TEST(next.healthy(), next.trouble);
  }
}

BOOST_AUTO_TEST_CASE(a_replay_with_nothing_left_ends_at_once) {
  core_world w(small_limits());
  core_request r(1, made_prompt(10), 3);
  r.ask.emitted = alone(r, w);
  BOOST_REQUIRE(w.submit(r));
  BOOST_TEST((w.results[1].end == finish_reason::length));
  BOOST_TEST(w.core.live() == 0u);
}

BOOST_AUTO_TEST_CASE(emitted_tokens_are_forced_rows_many_in_a_step) {
  core_world w(small_limits());
  core_request r(1, made_prompt(200), 400, 3);
  const list all = alone(r, w);
  r.ask.emitted.assign(all.begin(), all.begin() + 300);
  w.results[1].tokens = r.ask.emitted;
  BOOST_REQUIRE(w.submit(r));
  std::string rows;
  for (int i = 0; i < 5; ++i) {
    BOOST_REQUIRE(turn(w));
    const auto& s = w.out[0].sequences[0];
    rows += (w.out[0].kind == step_kind::prefill ? "P" : "D") + std::to_string(s.start) + "+" + std::to_string(s.rows) +
            (s.sample ? "s " : " ");
    w.finish_step();
  }
  // Prompt rows in prefill steps, output rows in decode steps; only the last one draws.
  BOOST_TEST(rows == "P0+128 P128+72 D200+256 D456+44s D500+1s ");
  w.run();
  BOOST_TEST(w.results[1].tokens == all, each);
  BOOST_TEST(w.healthy(), w.trouble);
}

// The KV cache may refuse a growth that looked possible. The rows that then do not come must not make the sequence run
// over the position that a snapshot slot was taken for: it could be found without ever having been filled.
BOOST_AUTO_TEST_CASE(a_snapshot_that_was_asked_for_is_filled_when_its_row_comes) {
  auto l = small_limits();
  l.max_num_batched_tokens = 156;
  scheduler_core core(l);
  core_request r(1, made_prompt(100), 400);
  r.ask.emitted = made_prompt(250);
  std::vector<sequence_event> events;
  BOOST_REQUIRE(core.submit(r.ask, events));
  kv_want want;
  kv_got got;
  step_plan plan;
  const auto run = [&] {
    BOOST_REQUIRE(core.plan(got, plan, events));
    got.clear();
    got.free_blocks = 50, got.free_slots = 5;
    step_result result;
    result.number = plan.number;
    result.sequences.resize(plan.sequences.size());
    core.complete(result, events);
    BOOST_REQUIRE(plan.sequences.size() == 1u);
    return std::pair(plan.sequences[0].start, plan.sequences[0].rows);
  };
  BOOST_REQUIRE(core.want(step_kind::prefill, want));
  got.free_blocks = 50, got.free_slots = 5;
  got.blocks = {block_id{1}};
  kv_got::admitted& admitted = got.admit.emplace_back();
  admitted.count = 1;
  admitted.slot = slot_id{1};
  BOOST_TEST((run() == std::pair(0, 100)));
  BOOST_REQUIRE(core.want(step_kind::decode, want));
  BOOST_REQUIRE(want.snapshots.size() == 1u); // rows 100..255
  BOOST_TEST(want.snapshots[0].at == 256);
  got.grow.push_back({.outcome = fit::later});
  got.snapshots.push_back(slot_id{2});
  BOOST_TEST((run() == std::pair(100, 28))); // what the first block holds
  BOOST_TEST(plan.snapshots.empty());
  BOOST_REQUIRE(core.want(step_kind::decode, want));
  BOOST_TEST(want.snapshots.empty());
  got.blocks = {block_id{2}, block_id{3}};
  got.grow.push_back({.first = 0, .count = 2});
  BOOST_TEST((run() == std::pair(128, 128)));
  BOOST_REQUIRE(plan.snapshots.size() == 1u);
  BOOST_TEST(plan.snapshots[0].from.value == 1);
  BOOST_TEST(plan.snapshots[0].to.value == 2);
}

BOOST_AUTO_TEST_CASE(two_steps_are_out_and_no_row_is_wasted_on_a_known_end) {
  auto l = small_limits();
  l.async = true;
  core_world w(l);
  core_request r(1, made_prompt(10), 4);
  core_request golden(2, made_prompt(10), 9);
  golden.spec->eos_ids = {42};
  golden.spec->params.golden_token_ids = {1, 42};
  BOOST_REQUIRE(w.submit(r));
  BOOST_REQUIRE(w.submit(golden));
  std::vector<list> rows;
  while (turn(w) || !w.out.empty()) {
    if (turn(w))
      BOOST_TEST(w.out.size() == 2u);
    BOOST_TEST(!w.begin_turn()); // no third step
    rows.push_back(w.rows());
    w.finish_step();
  }
  BOOST_TEST(w.kinds == "PDDD");
  BOOST_TEST(w.model.rows == 20 + 3 + 1); // three rows after the first token, one for the golden sequence
  BOOST_TEST(w.results[1].tokens == alone(r, w), each);
  BOOST_TEST(w.results[2].tokens == (list{1, 42}), each);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(deadlines_end_waiting_and_running_sequences) {
  auto l = small_limits();
  l.max_num_seqs = 1;
  core_world w(l);
  core_request running(1, made_prompt(10), 50), waiting(2, made_prompt(10), 50), later(3, made_prompt(10), 5);
  running.ask.deadline_steps = 6;
  waiting.ask.deadline_steps = 3;
  BOOST_REQUIRE(w.submit(running));
  BOOST_REQUIRE(w.submit(waiting));
  BOOST_REQUIRE(w.submit(later));
  w.run();
  BOOST_TEST(w.results[1].failure.code == "deadline");
  BOOST_TEST(w.results[1].tokens.size() == 6u);
  BOOST_TEST(w.results[2].failure.code == "deadline");
  BOOST_TEST(w.results[2].tokens.empty());
  BOOST_TEST((w.results[3].end == finish_reason::length));
  BOOST_TEST(w.kv.sequences() == 0u);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(scheduler_core_forks)

namespace {

core_request branch_of(const core_request& parent, std::uint64_t id, std::uint64_t seed) {
  core_request b(id, *parent.ask.prompt, parent.spec->params.max_tokens, seed);
  b.ask.fork_of = parent.spec->id;
  return b;
}

} // namespace

BOOST_AUTO_TEST_CASE(branches_compute_one_row_of_the_prompt) {
  for (const bool async : {false, true})
    for (const std::int32_t length : {2, 100, 128, 129, 256, 300, 385}) {
      auto l = small_limits();
      l.async = async;
      core_world w(l);
      const core_request first(1, made_prompt(length), 20, 11);
      BOOST_REQUIRE(w.submit(first));
      std::vector<core_request> all{first};
      for (std::uint64_t i = 2; i <= 4; ++i) {
        all.push_back(branch_of(first, i, 10 * i));
        BOOST_REQUIRE(w.submit(all.back()));
      }
      w.run();
      BOOST_TEST(w.healthy(), w.trouble);
      BOOST_TEST(w.kv.statistics().forks == 3u);
      BOOST_TEST(w.model.rows == length + 3 + 4 * 19); // the prompt once, its last row three times more
      for (const auto& r : all)
        BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), each);
      BOOST_TEST(w.results[3].cached == length - 1);
      BOOST_TEST(w.kv.sequences() == 0u);
    }
}

BOOST_AUTO_TEST_CASE(branches_that_cannot_copy_in_time_use_the_prefix_cache) {
  auto l = small_limits();
  l.max_num_seqs = 1; // no place beside the parent
  core_world w(l);
  const core_request first(1, made_prompt(300), 20, 11);
  BOOST_REQUIRE(w.submit(first));
  const core_request second = branch_of(first, 2, 5);
  BOOST_REQUIRE(w.submit(second));
  w.run();
  BOOST_TEST(w.kv.statistics().forks == 0u);
  BOOST_TEST(w.results[2].cached == 256);
  BOOST_TEST(w.results[2].tokens == alone(second, w), each);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(branches_of_a_parent_that_ends_early_go_their_own_way) {
  for (const int after : {0, 1, 2}) {
    core_world w(small_limits());
    const core_request first(1, made_prompt(300), 20, 11);
    const core_request second = branch_of(first, 2, 5);
    BOOST_REQUIRE(w.submit(first));
    BOOST_REQUIRE(w.submit(second));
    for (int i = 0; i < after; ++i)
      w.step();
    BOOST_TEST(w.abort(1));
    w.run();
    BOOST_TEST(w.results[2].tokens == alone(second, w), each);
    BOOST_TEST(w.kv.sequences() == 0u);
    BOOST_TEST(w.healthy(), w.trouble);
  }
}

BOOST_AUTO_TEST_CASE(a_branch_starts_over_when_the_step_that_it_copied_from_failed) {
  for (const bool in_turn : {false, true}) {
    auto l = small_limits();
    l.async = true;
    core_world w(l);
    const core_request first(1, made_prompt(200), 20, 11);
    const core_request second = branch_of(first, 2, 5);
    BOOST_REQUIRE(w.submit(first));
    BOOST_REQUIRE(w.submit(second));
    BOOST_REQUIRE(turn(w)); // 0..128
    w.finish_step();
    BOOST_REQUIRE(turn(w)); // the rest of the prompt
    BOOST_REQUIRE(w.begin_turn());
    if (!in_turn)
      BOOST_REQUIRE(w.end_turn()); // the branch copies what the step before will leave
    w.fail_step();
    if (in_turn)
      w.end_turn();
    BOOST_TEST(w.results[1].failure.code == "device_error");
    w.run();
    BOOST_TEST(w.results[2].tokens == alone(second, w), each);
    BOOST_TEST(w.results[2].preemptions == 0);
    BOOST_TEST(w.kv.sequences() == 0u);
    BOOST_TEST(w.healthy(), w.trouble);
  }
}

// A branch shares blocks that its parent's step has still to fill: they are not the branch's to publish when it ends
// before that.
BOOST_AUTO_TEST_CASE(what_is_not_committed_is_never_published) {
  auto l = small_limits();
  l.async = true;
  l.max_num_batched_tokens = l.max_model_len = 512;
  l.yoco = yoco_mode::compact, l.yoco_keep = 300; // no snapshot, so that the whole prompt goes in one step
  core_world w(l);
  const core_request first(1, made_prompt(390), 20, 11);
  BOOST_REQUIRE(w.submit(first));
  BOOST_REQUIRE(w.submit(branch_of(first, 2, 5)));
  BOOST_REQUIRE(turn(w));
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.kv.statistics().forks == 1u);
  w.abort(2);
  w.fail_step();
  w.run();
  BOOST_TEST(w.kv.sequences() == 0u);
  BOOST_TEST(w.kv.statistics().published_blocks == 0u);
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_SUITE_END()
