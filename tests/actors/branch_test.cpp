// One branch of a request over the attempts of several engines.
#include "actors/branch.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

tokens part(std::uint32_t attempt, std::int64_t first_pos, std::vector<std::int32_t> ids) {
  tokens t;
  t.attempt = attempt;
  t.first_pos = first_pos;
  t.ids = std::move(ids);
  return t;
}

} // namespace

BOOST_AUTO_TEST_SUITE(branch_of_a_request)

BOOST_AUTO_TEST_CASE(usage_counts_every_attempt_also_one_that_brings_no_token) {
  const auto vocabulary =
      std::make_shared<const tokenizer>(tokenizer::load(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json"));
  branch_setup setup;
  setup.id = "r";
  setup.prompt_tokens = 4;
  branch b(vocabulary, setup);

  tokens first = part(1, 4, {300, 301});
  first.steps = 3, first.preemptions = 1, first.drafted = 4, first.accepted = 1;
  b.take(first, 1);
  BOOST_REQUIRE(b.begin_next_attempt());
  first.steps = 99;
  b.take(first, 2); // what the lost engine still says is not heard
  tokens second = part(2, 6, {302});
  second.steps = 2, second.preemptions = 1, second.drafted = 2, second.accepted = 2;
  b.take(second, 3);
  second.first_pos = 7, second.ids = {303}, second.steps = 3;
  b.take(second, 4);
  BOOST_REQUIRE(b.begin_next_attempt()); // and ends before its first token
  BOOST_TEST(b.end(finish_reason::error, {"engine_lost", "test"}, 5).ended);

  const generation_result& r = b.result();
  BOOST_TEST(r.token_ids == (std::vector<std::int32_t>{300, 301, 302, 303}), boost::test_tools::per_element());
  BOOST_TEST(r.usage.attempts == 3);
  BOOST_TEST(r.usage.steps == 3 + 3);
  BOOST_TEST(r.usage.preemptions == 2);
  BOOST_TEST(r.usage.drafted == 6);
  BOOST_TEST(r.usage.accepted == 3);
}

// A step brings four drafts and a token that was drawn; the third draft completes a stop string.
BOOST_AUTO_TEST_CASE(drafts_behind_a_stop_string_are_not_counted) {
  const auto vocabulary =
      std::make_shared<const tokenizer>(tokenizer::load(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json"));
  const std::vector<std::int32_t> ids = vocabulary->encode("one two three four five", encode_mode::plain);
  BOOST_REQUIRE(ids.size() >= 5u);
  branch_setup setup;
  setup.prompt_tokens = 4;
  setup.params.stop = {vocabulary->decode(std::span(ids).subspan(2, 1))};
  branch b(vocabulary, setup);
  tokens before = part(1, 4, {300, 301});
  before.accepted = 1;
  b.take(before, 1);
  tokens step = part(1, 6, {ids.begin(), ids.begin() + 5});
  step.accepted = 1 + 4;
  const branch::update u = b.take(step, 2);
  BOOST_TEST(u.ended);
  BOOST_TEST(u.cancel);
  BOOST_TEST(b.result().token_ids.size() == 2u + 3u);
  BOOST_TEST(b.result().usage.accepted == 1 + 3);
}

BOOST_AUTO_TEST_CASE(as_many_engines_try_as_may) {
  const auto vocabulary =
      std::make_shared<const tokenizer>(tokenizer::load(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json"));
  for (const std::uint32_t most : {1u, 3u}) {
    branch_setup setup;
    setup.prompt_tokens = 4;
    setup.max_attempts = most;
    branch b(vocabulary, setup);
    for (std::uint32_t attempt = 1; attempt < most; ++attempt)
      BOOST_TEST((b.begin_next_attempt() && b.begin_next_attempt(false)));
    BOOST_TEST(b.begin_next_attempt(false)); // no engine has tried
    BOOST_TEST(b.attempt() == 2 * most);
    BOOST_TEST(!b.begin_next_attempt());
  }
}

BOOST_AUTO_TEST_SUITE_END()
