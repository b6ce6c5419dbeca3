// Decode steps that verify drafts: what is planned while positions are known to a range only, and what is booked.
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

using list = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();

scheduler_limits with_drafts(std::int32_t nextn, bool async = true) {
  scheduler_limits l = small_limits(async);
  l.nextn = nextn;
  return l;
}

struct draft_world : core_world {
  draft_world(const scheduler_limits& l, double right) : core_world(l) {
    model.vocab = 5000; // no token twice, or hardly
    model.right = right;
  }
};

list tokens_of(const step_plan& p, std::size_t sequence = 0) {
  const auto first = p.tokens.begin() + p.sequences.at(sequence).first_token;
  return {first, first + p.sequences[sequence].rows};
}

// Runs one request and compares it with the request alone.
void run_alone(const scheduler_limits& l, double right, const core_request& r, finish_reason end) {
  draft_world w(l, right);
  BOOST_REQUIRE(w.submit(r));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  const core_outcome& o = w.results[r.spec->id.value];
  BOOST_TEST(o.tokens == alone(r, w), each);
  BOOST_TEST((o.end == end));
  BOOST_TEST(o.ends == 1);
  BOOST_TEST(!o.late);
  BOOST_TEST(w.kv.sequences() == 0u);
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_drafts)

BOOST_AUTO_TEST_CASE(the_next_step_is_planned_for_every_number_of_accepted_drafts) {
  for (const int right : {0, 1}) {
    draft_world w(with_drafts(3), right);
    const core_request r(1, made_prompt(125), 20);
    BOOST_REQUIRE(w.submit(r));
    BOOST_REQUIRE(turn(w));
    BOOST_TEST(w.out[0].sequences[0].propose); // right behind the prompt
    BOOST_TEST(w.out[0].sequences[0].limit == 0);
    BOOST_REQUIRE(turn(w));
    const planned_sequence first = w.out[1].sequences[0];
    BOOST_TEST(first.start == 125);
    BOOST_TEST(first.slack == 0);
    BOOST_TEST(first.rows == 4);
    BOOST_TEST(first.drafts == 3);
    BOOST_TEST(first.limit == 144); // the last of 20 tokens, at 144, has no row
    BOOST_TEST(first.blocks == 2);  // positions 125 to 128
    BOOST_TEST(first.sample);
    BOOST_TEST(first.propose);
    BOOST_TEST(tokens_of(w.out[1]) == (list{-2, -3, -3, -3}), each);
    BOOST_TEST(w.out[1].history == (list{made_prompt(125)[122], made_prompt(125)[123], made_prompt(125)[124]}), each);
    w.finish_step();
    BOOST_REQUIRE(turn(w));
    const planned_sequence second = w.out[1].sequences[0];
    BOOST_TEST(second.start == 126);
    BOOST_TEST(second.slack == 3);
    BOOST_TEST(second.rows == 4);
    BOOST_TEST(tokens_of(w.out[1]) == (list{-2, -3, -3, -3}), each);
    BOOST_TEST(w.out[1].history == (list{-1, -1, -1}), each);
    w.finish_step();
    BOOST_TEST(w.results[1].tokens.size() == (right ? 5u : 2u));
    BOOST_REQUIRE(turn(w));
    BOOST_TEST(w.out[1].sequences[0].start == (right ? 130 : 127));
    BOOST_TEST(w.out[1].sequences[0].slack == 3);
    w.run();
    BOOST_TEST(w.healthy(), w.trouble);
    BOOST_TEST(w.results[1].tokens == alone(r, w), each);
    BOOST_TEST(w.core.steps() ==
               (right ? 7u : 20u)); // 1 + 4 * 4 + 3 tokens, and a step planned before the end was known
  }
}

BOOST_AUTO_TEST_CASE(without_a_step_out_all_but_the_drafts_is_known) {
  draft_world w(with_drafts(2, false), 1);
  const core_request r(1, made_prompt(10), 20);
  BOOST_REQUIRE(w.submit(r));
  BOOST_REQUIRE(w.step());
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(tokens_of(w.out[0]) == (list{alone(r, w)[0], -3, -3}), each);
  w.finish_step();
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.out[0].sequences[0].start == 13);
  BOOST_TEST(w.out[0].sequences[0].slack == 0);
  BOOST_TEST(tokens_of(w.out[0]) == (list{alone(r, w)[3], -3, -3}), each);
  BOOST_TEST(w.out[0].history == (list{alone(r, w)[0], alone(r, w)[1], alone(r, w)[2]}), each);
}

BOOST_AUTO_TEST_CASE(a_sequence_that_the_host_paces_has_explicit_drafts) {
  draft_world w(with_drafts(2), 1);
  core_request paced(1, made_prompt(10), 20), other(2, made_prompt(10, 3), 20);
  paced.ask.host_paced = true;
  BOOST_REQUIRE(w.submit(paced));
  BOOST_REQUIRE(w.submit(other));
  BOOST_REQUIRE(turn(w));
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.out[1].sequences.size() == 1u); // its first token is in flight
  BOOST_TEST(w.out[1].sequences[0].spec->id.value == 2u);
  w.finish_step();
  BOOST_REQUIRE(turn(w));
  BOOST_REQUIRE(w.out[1].sequences.size() == 2u);
  const list truth = alone(paced, w);
  BOOST_TEST(tokens_of(w.out[1]) == (list{truth[0], truth[1], truth[2]}), each);
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.results[1].tokens == truth, each);
}

// speculation.md §13, test 10; engine.md C11.
BOOST_AUTO_TEST_CASE(c11_an_end_inside_a_block_cuts_there) {
  for (const bool async : {false, true})
    for (const bool paced : {false, true})
      for (std::int32_t k = 1; k <= 15; ++k)
        for (const std::int32_t length : {1, 122, 128}) {
          scheduler_limits l = with_drafts(5, async);
          core_request r(7, made_prompt(length), k, 3);
          r.ask.host_paced = paced;
          run_alone(l, 1, r, finish_reason::length);
          r.spec->params.max_tokens = 100;
          r.spec->params.stop_token_ids = {alone(r, draft_world(l, 1))[static_cast<std::size_t>(k - 1)]};
          run_alone(l, 1, r, finish_reason::stop);
          r.spec->eos_ids.swap(r.spec->params.stop_token_ids);
          run_alone(l, 0.8, r, finish_reason::stop);
          r.spec->params.min_tokens = k; // not the k-th then
          run_alone(l, 1, r, finish_reason::length);
          r.spec->eos_ids.clear();
          l.max_model_len = length + k;
          run_alone(l, 1, r, finish_reason::length);
        }
}

// speculation.md §13, test 7: the stub's rings hold each row's position and prefix, and both the model and its drafter
// compare their whole windows with the cache before they read.
BOOST_AUTO_TEST_CASE(no_row_reads_a_stale_slot_whatever_number_is_accepted) {
  constexpr std::uint64_t all_steps = 100000;
  std::uint64_t steps = 0;
  for (std::int32_t world = 0; steps < all_steps; ++world) {
    const std::int32_t nextn = 1 + world % 5;
    draft_world w(with_drafts(nextn, world % 2 == 0), .2 + .15 * (world % 6));
    w.model.vary = world % 3 > 0;
    for (std::int32_t i = 0; i < 4; ++i)
      BOOST_REQUIRE(w.submit(core_request(static_cast<std::uint64_t>(i + 1), made_prompt(20 + 37 * i, world + i), 800,
                                          static_cast<std::uint64_t>(world))));
    w.run();
    BOOST_REQUIRE_MESSAGE(w.healthy(), "world " << world << ": " << w.trouble << w.model.complaint);
    steps += w.core.steps();
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_reaches_the_limit_ends_the_sequence_before_its_next_row) {
  draft_world w(with_drafts(5), 1);
  const core_request r(1, made_prompt(122), 7);
  BOOST_REQUIRE(w.submit(r));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.results[1].tokens == alone(r, w), each);
  BOOST_TEST(w.model.beyond == 1); // its row would have been the first of a second block
  BOOST_TEST(w.kv.statistics().used_blocks == 0);
}

BOOST_AUTO_TEST_CASE(fixed_outputs_and_logits_get_no_drafts) {
  draft_world w(with_drafts(3, false), 1);
  core_request golden(1, made_prompt(10), 9), logits(2, made_prompt(10), 3);
  golden.spec->params.golden_token_ids = {5, 6, 7};
  logits.spec->logit_rows = {0, 9};
  BOOST_REQUIRE(w.submit(golden));
  BOOST_REQUIRE(w.submit(logits));
  list rows_of_golden;
  while (turn(w)) {
    for (const planned_sequence& s : w.out[0].sequences)
      if (s.spec->id.value == 2)
        BOOST_TEST((s.drafts == 0 && !s.propose));
      else
        rows_of_golden.push_back(s.rows);
    w.finish_step();
  }
  BOOST_TEST(rows_of_golden == (list{10, 1, 1, 4, 2}), each); // a draft would be wrong while tokens are given
  BOOST_TEST(w.results[1].tokens == alone(golden, w), each);
  BOOST_TEST(w.results[2].tokens == alone(logits, w), each);
}

BOOST_AUTO_TEST_CASE(scarce_rows_are_shared_evenly) {
  auto l = with_drafts(5, false);
  l.varlen = false;
  l.max_num_batched_tokens = 10;
  draft_world w(l, 0);
  for (std::uint64_t i = 1; i <= 4; ++i)
    BOOST_REQUIRE(w.submit(core_request(i, made_prompt(2, static_cast<std::int32_t>(i)), 30)));
  BOOST_REQUIRE(w.step());
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.rows() == (list{3, 3, 2, 2}), each);
  w.finish_step();
  for (std::uint64_t i = 5; i <= 14; ++i)
    BOOST_REQUIRE(w.submit(core_request(i, made_prompt(2, static_cast<std::int32_t>(i)), 30)));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.widest == 10u);
  for (std::uint64_t i = 1; i <= 14; ++i) {
    BOOST_TEST(w.results[i].tokens.size() == 30u);
    BOOST_TEST(w.results[i].longest_gap <= 5);
  }
}

// The split of a step that is planned while one is out is the device's, by confidences that the host has not seen.
BOOST_AUTO_TEST_CASE(drafts_of_sequences_in_flight_are_shared_out_by_the_device) {
  for (const bool async : {true, false}) {
    core_world w(with_drafts(3, async), 0, step_cost({{4, 1.0}, {8, 1.1}, {64, 100.0}}));
    w.model.vocab = 5000;
    w.model.right = .6;
    w.model.vary = true;
    std::vector<core_request> requests;
    for (std::uint64_t i = 1; i <= 4; ++i) {
      requests.emplace_back(i, made_prompt(100 + static_cast<std::int32_t>(9 * i)), 60, i);
      BOOST_REQUIRE(w.submit(requests.back()));
    }
    int shared = 0;
    std::int64_t drafts = 0;
    for (;;) { // as many steps out as may be
      const bool planned = turn(w);
      if (planned && w.out.back().share_drafts) {
        ++shared;
        BOOST_TEST(w.out.back().tokens.size() <= 8u);
        for (const planned_sequence& s : w.out.back().sequences) {
          drafts += s.drafts;
          BOOST_TEST(s.blocks == blocks_for(std::min(s.slack > 0 ? s.start + s.slack + 4 : s.start + s.rows, s.limit)));
        }
      }
      if (planned && async && w.out.size() < 2)
        continue;
      if (w.out.empty())
        break;
      w.finish_step();
    }
    BOOST_TEST(w.healthy(), w.trouble);
    BOOST_TEST((shared > 5) == async);
    BOOST_TEST((w.model.reshared > 0) == async);
    BOOST_TEST((drafts > 0) == async);
    for (const core_request& r : requests)
      BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), each);
  }
}

BOOST_AUTO_TEST_CASE(drafts_take_nobodys_block) {
  auto l = with_drafts(5, false);
  l.kv_blocks = 1 + 4;
  l.prefix_cache = false;
  draft_world w(l, 0);
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(250), 60, 1))); // both hold two blocks, none is left
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(251, 3), 60, 2)));
  while (w.results[2].tokens.size() < 4)
    BOOST_REQUIRE(w.step());
  BOOST_REQUIRE(turn(w));
  BOOST_TEST(w.out[0].sequences.size() == 2u);
  for (const planned_sequence& s : w.out[0].sequences)
    BOOST_TEST(s.start + s.rows <= 256);
  BOOST_TEST(w.core.preemptions() == 0u);
  w.finish_step();
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.results[1].preemptions == 0);
  BOOST_TEST(w.results[2].preemptions == 1);
  BOOST_TEST(w.results[2].tokens.size() == 60u);
}

// C2, C3: with a step in flight at every offset to the block boundary.
BOOST_AUTO_TEST_CASE(a_sequence_loses_its_cache_at_every_offset) {
  int lost = 0;
  for (const bool async : {false, true})
    for (const double right : {0.0, 0.6, 1.0})
      for (std::int32_t boundary = 1; boundary <= 14; ++boundary) {
        auto l = with_drafts(5, async);
        l.kv_blocks = 1 + 5;
        draft_world w(l, right);
        const core_request first(1, made_prompt(257 - boundary), 100, 1), second(2, made_prompt(300, 9), 60, 2);
        BOOST_REQUIRE(w.submit(first));
        BOOST_REQUIRE(w.submit(second));
        w.run();
        BOOST_TEST(w.healthy(), w.trouble);
        BOOST_TEST(w.results[2].preemptions <= 1);
        lost += w.results[2].preemptions;
        BOOST_TEST(w.results[1].tokens == alone(first, w), each);
        BOOST_TEST(w.results[2].tokens == alone(second, w), each);
        BOOST_TEST(!w.results[2].late);
      }
  BOOST_TEST(lost >= 40); // of 84; else the first one has its third block before the second comes
}

BOOST_AUTO_TEST_CASE(an_abort_frees_everything_whatever_is_out) {
  for (const bool async : {false, true})
    for (int steps = 0; steps < 12; ++steps) {
      draft_world w(with_drafts(5, async), 0.7);
      const core_request kept(2, made_prompt(40, 5), 40, 2);
      BOOST_REQUIRE(w.submit(core_request(1, made_prompt(120), 100, 1)));
      BOOST_REQUIRE(w.submit(kept));
      for (int i = 0; i < steps; ++i)
        BOOST_REQUIRE(w.step());
      while (w.begin_turn())
        w.end_turn();
      BOOST_TEST(w.abort(1));
      const std::size_t tokens = w.results[1].tokens.size();
      w.run();
      BOOST_TEST(w.healthy(), w.trouble);
      BOOST_TEST(w.results[1].tokens.size() == tokens);
      BOOST_TEST(w.results[2].tokens == alone(kept, w), each);
      BOOST_TEST(w.kv.statistics().used_blocks == 0);
      BOOST_TEST(w.kv.statistics().used_slots == 0);
    }
}

// A conversation goes on: what the last answer left in the cache is found up to its last block boundary, though no step
// ended there.
BOOST_AUTO_TEST_CASE(answers_leave_snapshots_at_block_boundaries) {
  for (const bool async : {false, true})
    for (const double right : {0.0, 0.5, 1.0})
      for (std::int32_t length = 100; length < 112; ++length) {
        draft_world w(with_drafts(5, async), right);
        const core_request r(1, made_prompt(length), 300, 1);
        BOOST_REQUIRE(w.submit(r));
        w.run();
        list prompt = made_prompt(length);
        prompt.insert(prompt.end(), w.results[1].tokens.begin(), w.results[1].tokens.end());
        const core_request next(2, prompt, 20, 2);
        BOOST_REQUIRE(w.submit(next));
        w.run();
        BOOST_TEST(w.healthy(), w.trouble);
        BOOST_TEST(w.results[2].cached == 384);
        BOOST_TEST(w.results[2].tokens == alone(next, w), each);
      }
}

// A snapshot becomes findable when the step that fills it has come back, not before: that step may fail, and with it
// everything that is out.
BOOST_AUTO_TEST_CASE(a_snapshot_that_no_step_has_filled_is_never_found) {
  int found = 0;
  for (const bool lost : {false, true})
    for (std::int32_t length = 112; length < 128; ++length)
      for (int steps = 1; steps < 8; ++steps) {
        draft_world w(with_drafts(5), 1);
        BOOST_REQUIRE(w.submit(core_request(1, made_prompt(length), 100, 1)));
        for (int i = 0; i < steps; ++i)
          BOOST_REQUIRE(w.step());
        while (w.begin_turn())
          w.end_turn();
        BOOST_REQUIRE(w.out.size() == 2u);
        BOOST_TEST(w.kv.statistics().snapshots_refused == 0u); // none is asked for twice
        if (lost) {
          w.core.fail_all({"engine_lost", "test"}, w.events);
          w.absorb();
          w.out.clear();
        } else {
          w.fail_step();
        }
        w.settle();
        list prompt = made_prompt(length);
        prompt.insert(prompt.end(), w.results[1].tokens.begin(), w.results[1].tokens.end());
        prompt.push_back(7);
        const core_request next(2, prompt, 20, 2);
        BOOST_REQUIRE(w.submit(next));
        w.run();
        BOOST_TEST(w.healthy(), w.trouble);
        BOOST_TEST(w.results[2].tokens == alone(next, w), each);
        found += w.results[2].cached > 0;
      }
  BOOST_TEST(found > 40);
}

BOOST_AUTO_TEST_CASE(branches_copy_a_parent_that_drafts) {
  for (const bool async : {false, true}) {
    auto l = with_drafts(5, async);
    draft_world w(l, 1);
    std::vector<core_request> all;
    for (std::uint64_t i = 1; i <= 4; ++i) {
      all.emplace_back(i, made_prompt(300), 40, i);
      if (i > 1)
        all.back().ask.fork_of = sequence_id{1};
      BOOST_REQUIRE(w.submit(all.back()));
    }
    w.run();
    BOOST_TEST(w.healthy(), w.trouble);
    BOOST_TEST(w.kv.statistics().forks == 3u);
    for (const core_request& r : all)
      BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), each);
  }
}

BOOST_AUTO_TEST_CASE(results_that_cannot_be_end_their_sequence_only) {
  const auto broken = [](auto change, const char* says) {
    draft_world w(with_drafts(2), 1);
    const core_request good(2, made_prompt(12), 20, 2);
    BOOST_REQUIRE(w.submit(core_request(1, made_prompt(10), 20, 1)));
    BOOST_REQUIRE(w.submit(good));
    BOOST_REQUIRE(w.step());
    BOOST_REQUIRE(w.step());
    BOOST_REQUIRE(w.out[0].sequences[0].slack == 2);
    step_result r;
    w.model.run(w.out.front(), r);
    w.out.pop_front();
    change(r.sequences[0]);
    w.core.complete(r, w.events);
    w.absorb();
    BOOST_TEST(w.results[1].failure.code == "device_error");
    BOOST_TEST(w.results[1].failure.message.find(says) != std::string::npos, w.results[1].failure.message);
    w.run();
    BOOST_TEST(w.healthy(), w.trouble);
    BOOST_TEST(w.results[2].tokens == alone(good, w), each);
  };
  broken([](sequence_result& r) { r.tokens.resize(4); }, "gave no token");
  broken([](sequence_result& r) { r.tokens.resize(4, r.tokens[0]); }, "gave 4 tokens for 2 drafts");
  broken([](sequence_result& r) { r.tokens[1].id = draft_in_flight; }, "gave no token");
  broken([](sequence_result& r) { --r.start; }, "computed position");
}

BOOST_AUTO_TEST_SUITE_END()
