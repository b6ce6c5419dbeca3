// Sequences under a constraint in the scheduler core: masks, drafts, ends, loss of the cache.
#include "tests/support/core_world.hpp"
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

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_constrained)

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
  BOOST_TEST(w.results[1].failure.code == "so_internal");
  BOOST_TEST(w.results[1].failure.message ==
             "request r1: output token 2, id 26 of golden_token_ids, is not within the constraint");
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
