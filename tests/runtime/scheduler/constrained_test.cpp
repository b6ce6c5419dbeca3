// Sequences under a constraint in the scheduler core: masks, drafts, ends, loss of the cache.
#include "tests/support/core_world.hpp"
#include "tests/support/hand_masks.hpp"
#include "tests/support/stub_constraints.hpp"
#include <boost/test/unit_test.hpp>
#include <regex>

using namespace troupe;

namespace {

core_request constrained(std::uint64_t id, std::int32_t prompt, std::int32_t max_tokens,
                         std::shared_ptr<const sequence_constraint> c) {
  core_request r(id, made_prompt(prompt, static_cast<std::int32_t>(id)), max_tokens, 100 + id);
  r.spec->eos_ids = {stub_end};
  r.ask.constraint = std::move(c);
  return r;
}

std::string text_of(const core_outcome& o) {
  auto ids = o.tokens;
  if (o.end == finish_reason::stop)
    ids.pop_back(); // the end token
  return stub_text(ids);
}

// A hundred rules that all go on at once: each of its masks is much work, each of the others little.
std::shared_ptr<const sequence_constraint> much_work() {
  std::string text = "root ::= t0", rules;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "t" + std::to_string(i);
    text += i > 0 ? " | " + name : "";
    rules +=
        "\n" + name + " ::= [a-z]{" + std::to_string(8 + i % 20) + ",40} \"" + static_cast<char>('0' + i % 10) + "\"";
  }
  return stub_constraint("ebnf", text + rules + "\n");
}
std::shared_ptr<const sequence_constraint> little_work() {
  return stub_constraint("regex", "[a-z]{10,20}[0-9]");
}

std::int64_t steps_with(const std::vector<step_plan>& steps, std::uint64_t id) {
  return std::ranges::count_if(steps, [&](const step_plan& p) {
    return std::ranges::any_of(p.sequences, [&](const auto& s) { return s.spec->id.value == id; });
  });
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_constrained)

// Masks that are more work than a step has for them leave their sequence out; nobody else waits for them.
BOOST_AUTO_TEST_CASE(masks_that_are_much_work_hold_up_nobody_else) {
  for (const std::int32_t nextn : {0, 5}) {
    auto l = small_limits();
    l.nextn = nextn;
    l.mask_work = 2000;
    const auto helpers = std::make_shared<hand_masks>();
    core_world w(l, 0, {}, helpers);
    BOOST_REQUIRE(w.submit(constrained(1, 10, 60, much_work())));
    for (std::uint64_t id = 2; id <= 5; ++id)
      BOOST_REQUIRE(w.submit(constrained(id, 10, 60, little_work())));
    BOOST_REQUIRE(w.submit(core_request(6, made_prompt(30), 40, 9)));
    w.run(); // as far as it goes without the helpers
    BOOST_TEST(w.core.live() == 1u);
    BOOST_TEST(helpers->queue.size() == 1u);
    BOOST_TEST(w.core.mask_counts().late == 1u);
    for (std::uint64_t id = 2; id <= 5; ++id) {
      BOOST_TEST(int(w.results[id].end) == int(finish_reason::stop));
      BOOST_TEST(w.results[id].tokens == alone(constrained(id, 10, 60, little_work()), w),
                 boost::test_tools::per_element());
    }
    BOOST_TEST(w.results[6].tokens.size() == 40u);
    w.run(); // nothing has happened: it still waits
    BOOST_TEST(w.core.live() == 1u);
    for (int n = 0; w.core.live() > 0 && n < 200; ++n) {
      helpers->work_on();
      w.core.masks_made();
      w.run();
    }
    BOOST_TEST(w.healthy(), w.trouble);
    BOOST_TEST(helpers->late > 3u);
    BOOST_TEST(w.results[1].tokens == alone(constrained(1, 10, 60, much_work()), w), boost::test_tools::per_element());
    BOOST_TEST(w.results[1].tokens.size() > 8u);
  }
}

// What is left out of which step follows from the calls alone, and whoever does the work.
BOOST_AUTO_TEST_CASE(who_is_left_out_of_a_step_can_be_told_again) {
  const auto steps_of = [](const std::shared_ptr<hand_masks>& helpers, std::uint64_t only) {
    auto l = small_limits(true);
    l.mask_work = 2000;
    core_world w(l, 0, {}, helpers);
    const auto slow = much_work(), quick = little_work();
    for (std::uint64_t id = 1; id <= 6; ++id)
      if (only == 0 || only == id)
        BOOST_REQUIRE(w.submit(constrained(id, 10, 60, id <= 2 ? slow : quick)));
    std::vector<step_plan> steps;
    for (int n = 0; w.core.live() > 0 && n < 5000; ++n) {
      while (w.begin_turn())
        if (w.end_turn())
          steps.push_back(w.out.back());
      if (!w.out.empty())
        w.finish_step();
      if (helpers && n % 3 == 2 && helpers->work_on())
        w.core.masks_made();
    }
    BOOST_TEST(w.healthy(), w.trouble);
    return std::pair(steps, w.results);
  };
  const auto helpers = std::make_shared<hand_masks>();
  const auto [steps, results] = steps_of(helpers, 0);
  BOOST_TEST(helpers->late > 5u);
  const auto [again, same] = steps_of(std::make_shared<hand_masks>(), 0);
  const auto equal = steps_of(nullptr, 0).second; // late masks are made at once
  BOOST_REQUIRE(steps.size() == again.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    BOOST_TEST(steps[i].tokens == again[i].tokens, boost::test_tools::per_element());
    BOOST_TEST((steps[i].masks == again[i].masks && steps[i].mask_rows == again[i].mask_rows));
  }
  for (std::uint64_t id = 1; id <= 6; ++id) {
    BOOST_TEST(results.at(id).tokens == same.at(id).tokens, boost::test_tools::per_element());
    BOOST_TEST(results.at(id).tokens == equal.at(id).tokens, boost::test_tools::per_element());
    const auto [lone_steps, lone] = steps_of(std::make_shared<hand_masks>(), id);
    BOOST_TEST(results.at(id).tokens == lone.at(id).tokens, boost::test_tools::per_element());
    if (id > 2) // never left out for the slow ones
      BOOST_TEST(steps_with(steps, id) == steps_with(lone_steps, id));
  }
}

// Nor does it keep others from the only place.
BOOST_AUTO_TEST_CASE(who_waits_for_masks_is_passed_over) {
  auto l = small_limits();
  l.mask_work = 2000;
  l.max_num_seqs = 1;
  const auto helpers = std::make_shared<hand_masks>();
  core_world w(l, 0, {}, helpers);
  BOOST_REQUIRE(w.submit(constrained(1, 10, 60, much_work())));
  BOOST_REQUIRE(w.submit(constrained(2, 10, 60, much_work())));
  BOOST_REQUIRE(w.submit(constrained(3, 10, 60, little_work())));
  BOOST_REQUIRE(w.submit(core_request(4, made_prompt(30), 20, 9)));
  w.run();
  BOOST_TEST(w.core.live() == 2u);
  BOOST_TEST(int(w.results[3].end) == int(finish_reason::stop));
  BOOST_TEST(w.results[4].tokens.size() == 20u);
  for (int n = 0; w.core.live() > 0 && n < 500; ++n) {
    helpers->work_on();
    w.core.masks_made();
    w.run();
  }
  BOOST_TEST(w.healthy(), w.trouble);
  for (const std::uint64_t id : {1u, 2u})
    BOOST_TEST(w.results[id].tokens == alone(constrained(id, 10, 60, much_work()), w),
               boost::test_tools::per_element());
}

// A sequence that ends while its masks are being made takes nobody with it, and they are given up.
BOOST_AUTO_TEST_CASE(masks_of_a_sequence_that_has_ended_are_given_up) {
  auto l = small_limits();
  l.mask_work = 2000;
  const auto helpers = std::make_shared<hand_masks>();
  core_world w(l, 0, {}, helpers);
  BOOST_REQUIRE(w.submit(constrained(1, 10, 60, much_work())));
  w.run();
  BOOST_REQUIRE(helpers->queue.size() == 1u);
  BOOST_TEST(w.abort(1));
  BOOST_TEST(helpers->work_on());
  w.core.masks_made();
  BOOST_REQUIRE(w.submit(constrained(2, 10, 60, little_work())));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(int(w.results[1].end) == int(finish_reason::abort));
  BOOST_TEST(int(w.results[2].end) == int(finish_reason::stop));
}

BOOST_AUTO_TEST_CASE(output_is_within_the_constraint_and_ends_where_it_is_complete) {
  for (const std::int32_t nextn : {0, 1, 5})
    for (const bool async : {false, true}) {
      auto l = small_limits(async);
      l.nextn = nextn;
      core_world w(l);
      for (std::uint64_t id = 1; id <= 20; ++id)
        BOOST_REQUIRE(w.submit(constrained(id, 10, 60, stub_constraint("regex", "([a-m]{1,6}, ){1,3}[n-z0-9]{2,9}"))));
      BOOST_REQUIRE(w.submit(core_request(50, made_prompt(30), 80, 9))); // unconstrained company
      w.run();
      BOOST_TEST(w.healthy(), w.trouble);
      for (std::uint64_t id = 1; id <= 20; ++id) {
        const core_outcome& o = w.results[id];
        BOOST_TEST(int(o.end) == int(finish_reason::stop));
        BOOST_TEST(std::regex_match(text_of(o), std::regex("([a-m]{1,6}, ){1,3}[n-z0-9]{2,9}")), text_of(o));
        BOOST_TEST(o.tokens ==
                       alone(constrained(id, 10, 60, stub_constraint("regex", "([a-m]{1,6}, ){1,3}[n-z0-9]{2,9}")), w),
                   boost::test_tools::per_element());
      }
      BOOST_TEST(w.results[50].tokens.size() == 80u);
    }
}

// Steps of a constrained sequence wait for its tokens; those of others do not wait for it.
BOOST_AUTO_TEST_CASE(others_have_a_step_out_while_a_constrained_sequence_waits) {
  core_world w(small_limits(true));
  BOOST_REQUIRE(w.submit(constrained(1, 10, 40, stub_constraint("regex", "[a-z]{40,60}"))));
  BOOST_REQUIRE(w.submit(core_request(2, made_prompt(10), 40)));
  int beside = 0; // times that both steps out had the free sequence
  const auto rows_of = [](const step_plan& p, std::uint64_t id) {
    return std::ranges::count_if(p.sequences, [&](const auto& s) { return s.spec->id.value == id; });
  };
  do {
    while (turn(w)) {
    }
    if (w.out.size() == 2) {
      BOOST_TEST(rows_of(w.out[0], 1) + rows_of(w.out[1], 1) <= 1);
      beside += rows_of(w.out[0], 2) == 1 && rows_of(w.out[1], 2) == 1;
    }
    if (!w.out.empty())
      w.finish_step();
  } while (!w.out.empty() || w.core.live() > 0);
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(beside >= 30);
}

BOOST_AUTO_TEST_CASE(steps_without_constraints_carry_nothing_of_them) {
  core_world w(small_limits());
  BOOST_REQUIRE(w.submit(core_request(1, made_prompt(10), 5)));
  while (turn(w)) {
    BOOST_TEST(w.out.back().masks.capacity() == 0u);
    BOOST_TEST(w.out.back().mask_rows.capacity() == 0u);
    BOOST_TEST(w.out.back().sequences[0].first_mask == -1);
    w.finish_step();
  }
}

// Only filled rows are packed: a sequence that is free until its trigger has none.
BOOST_AUTO_TEST_CASE(rows_before_the_trigger_have_no_mask) {
  auto l = small_limits();
  l.nextn = 3;
  core_world w(l);
  BOOST_REQUIRE(w.submit(constrained(1, 10, 200, stub_constraint("regex", "[0-9]{3}", {{10, 11}, 7}))));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  const auto& tokens = w.results[1].tokens;
  const auto bound = std::find(tokens.begin(), tokens.end(), 7);
  BOOST_REQUIRE(tokens.end() - bound > 5); // the trigger follows at once, then three digits and the end
  BOOST_TEST(std::vector<std::int32_t>(bound + 1, bound + 3) == (std::vector<std::int32_t>{10, 11}),
             boost::test_tools::per_element());
  BOOST_TEST(std::regex_match(stub_text({bound + 3, tokens.end() - 1}), std::regex("[0-9]{3}")));
  BOOST_TEST(tokens.back() == stub_end);
  BOOST_TEST(w.masks > 0);
  BOOST_TEST(w.free_rows >= bound - tokens.begin());
}

// The original ends such requests (insufficient_system_resource).
BOOST_AUTO_TEST_CASE(d08_a_constrained_sequence_goes_on_when_it_has_lost_its_cache) {
  for (const std::int32_t nextn : {0, 4}) {
    auto l = small_limits(true);
    l.kv_blocks = 1 + 8;
    l.nextn = nextn;
    l.max_num_seqs = 6;
    core_world w(l);
    std::vector<core_request> all;
    for (std::uint64_t id = 1; id <= 6; ++id)
      all.push_back(constrained(id, 60 + 20 * static_cast<std::int32_t>(id), 250,
                                stub_constraint("regex", "([a-m]{1,6}, ){30,90}[n-z0-9]{2,40}")));
    for (const core_request& r : all)
      BOOST_REQUIRE(w.submit(r));
    w.run();
    BOOST_TEST(w.healthy(), w.trouble);
    std::int32_t preemptions = 0;
    for (const core_request& r : all) {
      const core_outcome& o = w.results[r.spec->id.value];
      preemptions += o.preemptions;
      BOOST_TEST(o.tokens == alone(r, w), boost::test_tools::per_element());
      BOOST_TEST(o.failure.code == "");
    }
    BOOST_TEST(preemptions > 0);
  }
}

BOOST_AUTO_TEST_CASE(a_replay_goes_on_behind_what_was_given_out) {
  const auto c = stub_constraint("regex", "[a-z]{10,20}[0-9]");
  core_world w(small_limits());
  BOOST_REQUIRE(w.submit(constrained(1, 20, 50, c)));
  w.run();
  const auto whole = w.results[1].tokens;
  BOOST_REQUIRE(whole.size() > 6u);
  core_request again = constrained(1, 20, 50, c);
  again.ask.emitted.assign(whole.begin(), whole.begin() + 5);
  core_world other(small_limits());
  other.results[1].tokens = again.ask.emitted;
  BOOST_REQUIRE(other.submit(again));
  other.run();
  BOOST_TEST(other.healthy(), other.trouble);
  BOOST_TEST(other.results[1].tokens == whole, boost::test_tools::per_element());
  again.ask.emitted = {26}; // a digit
  core_world wrong(small_limits());
  BOOST_TEST(wrong.submit(again).failure().code == "so_internal");
  BOOST_TEST(wrong.core.live() == 0u);
}

// Where nothing but the end may follow, min_tokens does not keep it from coming.
BOOST_AUTO_TEST_CASE(an_output_that_is_complete_ends_before_min_tokens) {
  core_world w(small_limits());
  core_request r = constrained(1, 10, 50, stub_constraint("regex", "abc"));
  r.spec->params.min_tokens = 30;
  BOOST_REQUIRE(w.submit(r));
  core_request longer = constrained(2, 10, 50, stub_constraint("regex", "[a-z]{0,45}"));
  longer.spec->params.min_tokens = 12;
  BOOST_REQUIRE(w.submit(longer));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(text_of(w.results[1]) == "abc");
  BOOST_TEST(int(w.results[1].end) == int(finish_reason::stop));
  BOOST_TEST(w.results[2].tokens.size() > 12u);
}

// A token that the request itself forces against its constraint ends it, alone, without being given out (C10).
BOOST_AUTO_TEST_CASE(c10_a_forced_token_outside_the_constraint_ends_its_request_only) {
  core_world w(small_limits());
  core_request r = constrained(1, 10, 50, stub_constraint("regex", "[a-z]{5,9}"));
  r.spec->params.golden_token_ids = {0, 1, 26};
  BOOST_REQUIRE(w.submit(r));
  BOOST_REQUIRE(w.submit(constrained(2, 10, 50, stub_constraint("regex", "[a-z]{5,9}"))));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.results[1].failure.code == "invalid_params");
  BOOST_TEST(w.results[1].failure.message ==
             "request r1: output token 2, id 26 of golden_token_ids, is not within the constraint; give ids "
             "that so_args allows");
  BOOST_TEST(w.results[1].tokens == (std::vector<std::int32_t>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(int(w.results[2].end) == int(finish_reason::stop));
}

// Following a constraint may need more than was granted: the request ends with a code, at the same token whatever
// drafts were verified, and others with the same constraint go on.
BOOST_AUTO_TEST_CASE(a_constraint_that_outgrows_its_budget_ends_its_request_only) {
  compile_limits tight;
  tight.frontier_items = 12;
  std::string text = "root ::= [a-m] [0-9]{3,9} | [n-z] [0-9]{2} \",\" tail\ntail ::= t0",
              rules; // behind a comma too many
  for (int i = 0; i < 20; ++i) {
    const std::string name = "t" + std::to_string(i);
    text += i > 0 ? " | " + name : "";
    rules += "\n" + name + " ::= \"x\" " + name + " [" + static_cast<char>('a' + i) + "] | \"x\"";
  }
  const auto c = stub_constraint("ebnf", text + rules + "\n", {}, tight);
  std::map<std::int32_t, std::vector<std::vector<std::int32_t>>> outputs;
  int ended = 0;
  for (const std::int32_t nextn : {0, 5}) {
    auto l = small_limits();
    l.nextn = nextn;
    core_world w(l);
    w.judges.clear();
    for (std::uint64_t id = 1; id <= 12; ++id)
      BOOST_REQUIRE(w.submit(constrained(id, 10, 60, c)));
    w.run();
    for (std::uint64_t id = 1; id <= 12; ++id) {
      const core_outcome& o = w.results[id];
      BOOST_TEST((o.failure.code == "" || o.failure.code == "so_too_complex"), o.failure.message);
      ended += o.failure.code == "so_too_complex";
      outputs[nextn].push_back(o.tokens);
    }
  }
  BOOST_TEST_MESSAGE(ended << " of 24 outgrew it");
  BOOST_TEST(ended > 0);
  BOOST_TEST(ended < 24);
  BOOST_TEST((outputs[0] == outputs[5]));
}

BOOST_AUTO_TEST_SUITE_END()
