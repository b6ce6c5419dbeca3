// Asynchronous scheduling against the invariants Z1-Z7 of engine.md §8.5, and the tests that prove each:
// Z1 same bytes with and without: the axis `async` of actors/determinism_test on the model; scheduler_property (async
// is
//    drawn, the oracle is each request alone) and drafts_test on the stub.
// Z2 no block is handed out under a step that may still write it: steps run in the order of their plans, so a later
//    owner's rows come behind the older one's. The stub's caches hold what was really written, and show every violation
//    in scheduler_property, c03 and c06.
// Z3 no placeholder becomes a token: c04; on the device steps_out_test and kernels/reference/decode_vectors_test.
// Z4 at most one step is out beyond the oldest: core_world::check in every test of the scheduler.
// Z5 nothing comes after the end: core_outcome::late, judged by scheduler_property, c03, c06 and c11.
// Z6 and Z7: below.
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

using steps_of_tokens = std::map<std::uint64_t, std::vector<std::uint64_t>>;

// How many steps had been planned when each token could be seen. Requests come when so many steps have been planned.
steps_of_tokens seen(const scheduler_limits& l, const std::vector<std::pair<std::uint64_t, core_request>>& requests) {
  core_world w(l);
  steps_of_tokens at;
  std::size_t next = 0;
  do {
    for (; next < requests.size() && requests[next].first <= w.core.steps(); ++next)
      BOOST_REQUIRE(w.submit(requests[next].second));
    BOOST_REQUIRE(w.step());
    for (const auto& [id, outcome] : w.results)
      at[id].resize(outcome.tokens.size(), w.core.steps());
  } while (w.core.live() > 0 || next < requests.size());
  BOOST_TEST(w.healthy(), w.trouble);
  return at;
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_overlap)

// None of the requests waits for another's end, which is seen a step late: what waits for ends of n others may be n
// steps later, though each of its tokens is seen as soon as here.
BOOST_AUTO_TEST_CASE(z6_a_token_is_seen_at_most_one_step_later) {
  for (const std::int32_t nextn : {0, 3}) {
    std::vector<std::pair<std::uint64_t, core_request>> requests;
    requests.emplace_back(0, core_request(1, made_prompt(10), 60, 1));
    requests.emplace_back(0, core_request(2, made_prompt(600, 3), 30, 2)); // in several chunks
    requests.emplace_back(7, core_request(3, made_prompt(40, 5), 50, 3));
    requests.emplace_back(12, core_request(4, made_prompt(300, 7), 20, 4));
    requests.back().second.spec->eos_ids = {7}; // its end is not known before
    scheduler_limits l = small_limits();
    l.nextn = nextn;
    const steps_of_tokens sync = seen(l, requests);
    l.async = true;
    const steps_of_tokens async = seen(l, requests);
    std::size_t later = 0;
    for (std::uint64_t id = 1; id <= 4; ++id) {
      const auto &a = async.at(id), &s = sync.at(id);
      BOOST_REQUIRE(a.size() == s.size());
      BOOST_REQUIRE(!a.empty());
      for (std::size_t i = 0; i < a.size(); ++i) {
        BOOST_TEST(a[i] <= s[i] + 1, "nextn " << nextn << ", request " << id << ", token " << i << ": " << a[i]
                                              << " steps, without async " << s[i]);
        later += a[i] > s[i];
      }
    }
    BOOST_TEST(later > 100u); // two steps were out
  }
}

// The original empties its pipeline around every prefill step. Here a plan is complete in itself and steps run in
// order: one of either kind follows the other while that is out. What stops all (stop, loss of the executor, a change
// of who is in the group) ends or moves the requests at once, and nothing that was out counts: scheduler_core_test,
// a_lost_executor...; step_group_test, a_rank_joins_and_leaves_at_a_step_boundary; actors/engine_test,
// stop_ends_live_requests....
BOOST_AUTO_TEST_CASE(z7_steps_of_both_kinds_are_out_at_once) {
  core_world w(small_limits(true));
  const core_request first(1, made_prompt(10), 40, 1), second(2, made_prompt(600, 3), 20, 2);
  BOOST_REQUIRE(w.submit(first));
  for (int i = 0; i < 5; ++i)
    BOOST_REQUIRE(w.step());
  BOOST_REQUIRE(w.submit(second));
  std::string out_together;
  while (w.core.live() > 0) {
    while (turn(w)) {
    }
    BOOST_REQUIRE(!w.out.empty());
    if (w.out.size() == 2 && w.out[0].kind != w.out[1].kind)
      out_together += w.out[0].kind == step_kind::prefill ? 'P' : 'D';
    w.finish_step();
  }
  BOOST_TEST(out_together.starts_with("DPDP"), out_together);
  BOOST_TEST(w.results[1].tokens == alone(first, w), boost::test_tools::per_element());
  BOOST_TEST(w.results[2].tokens == alone(second, w), boost::test_tools::per_element());
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_SUITE_END()
