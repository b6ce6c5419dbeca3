// By rejection tokens depend on how many drafts are verified (exactness.md §8, §9): with whole blocks that follows from
// the request alone, and in any case it says nothing of what the drafts are.
#include "tests/support/core_world.hpp"
#include "tests/support/hand_masks.hpp"
#include "tests/support/stub_constraints.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

using list = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();

scheduler_limits by_rejection(bool async = false, bool varlen = false) {
  scheduler_limits l = small_limits(async);
  l.nextn = 5;
  l.rejection = true;
  l.varlen = varlen;
  l.prefix_cache = !async; // two steps out and a snapshot due: a block is cut
  return l;
}

struct rejection_world : core_world {
  rejection_world(const scheduler_limits& l, double right, std::shared_ptr<mask_helpers> helpers = nullptr)
      : core_world(l, 0, step_cost({{1, 1.0}, {64, 1.1}}), std::move(helpers)) {
    model.rejection = true;
    model.right = right;
  }
};

// Of all kinds: free, known to the host, constrained.
core_request made(std::uint64_t id, std::int32_t prompt, std::int32_t max_tokens) {
  core_request r(id, made_prompt(prompt, static_cast<std::int32_t>(id)), max_tokens, 90 + id);
  r.ask.host_paced = id % 3 == 1;
  if (id % 3 == 2) {
    r.spec->eos_ids = {stub_end};
    r.ask.constraint = stub_constraint("regex", "[a-z]{100,300}");
  }
  return r;
}

list with_room(const core_request& r, scheduler_limits l, double right) {
  l.kv_blocks = 60, l.max_num_batched_tokens = 256;
  rejection_world w(l, right);
  BOOST_REQUIRE(w.submit(r));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  return w.results[r.spec->id.value].tokens;
}

// Of the drafts in a plan those that its sequence's constraint allows, up to the first that it does not.
std::int32_t legal_of(const step_plan& p, const planned_sequence& s, constraint_matcher matcher) {
  std::int32_t legal = 0;
  while (legal < s.drafts &&
         matcher.accept(p.tokens[static_cast<std::size_t>(s.first_token + s.rows - s.drafts + legal)]))
    ++legal;
  return legal;
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_rejection)

BOOST_AUTO_TEST_CASE(a_lost_cache_changes_no_token) {
  int lost = 0;
  for (const bool async : {false, true})
    for (const double right : {0.0, 0.6, 1.0})
      for (std::int32_t boundary = 1; boundary <= 14; ++boundary) {
        auto l = by_rejection(async);
        l.kv_blocks = 1 + 5;
        const core_request first = made(3, 257 - boundary, 100),
                           second = made(static_cast<std::uint64_t>(4 + boundary % 3), 300, 60);
        rejection_world w(l, right);
        BOOST_REQUIRE(w.submit(first));
        BOOST_REQUIRE(w.submit(second));
        w.run();
        BOOST_TEST(w.healthy(), w.trouble);
        for (const core_request* r : {&first, &second}) {
          lost += w.results[r->spec->id.value].preemptions;
          BOOST_TEST(w.results[r->spec->id.value].tokens == with_room(*r, l, right), each);
          BOOST_TEST(!w.results[r->spec->id.value].late);
        }
      }
  BOOST_TEST(lost >= 30);
}

// A worker dies: another one has what was given out, which ends where a step ended.
BOOST_AUTO_TEST_CASE(a_replay_changes_no_token) {
  for (const bool async : {false, true})
    for (std::uint64_t id = 1; id <= 3; ++id) {
      core_request r = made(id, 120, 30);
      const list whole = with_room(r, by_rejection(async), 0.6);
      for (int steps = 1; steps < 9; ++steps) {
        rejection_world before(by_rejection(async), 0.6);
        BOOST_REQUIRE(before.submit(r));
        for (int i = 0; i < steps; ++i)
          BOOST_REQUIRE(before.step());
        core_request again = made(id, 120, 30);
        again.ask.emitted = before.results[id].tokens;
        rejection_world w(by_rejection(async), 0.6);
        w.results[id].tokens = again.ask.emitted;
        w.model.right = before.model.right;
        BOOST_REQUIRE(w.submit(again));
        w.run();
        BOOST_TEST(w.healthy(), w.trouble);
        BOOST_TEST(w.results[id].tokens == whole, each);
      }
    }
}

// Neither blocks that are short nor rows that others take shorten a block of drafts.
BOOST_AUTO_TEST_CASE(company_changes_no_token) {
  auto l = by_rejection();
  l.kv_blocks = 1 + 9;
  l.max_num_batched_tokens = 16;
  rejection_world w(l, 0.7);
  std::vector<core_request> all;
  for (std::uint64_t id = 1; id <= 8; ++id)
    all.push_back(made(id, 90 + 5 * static_cast<std::int32_t>(id), 120));
  for (const core_request& r : all)
    BOOST_REQUIRE(w.submit(r));
  w.run();
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(w.core.preemptions() > 0u);
  for (const core_request& r : all)
    BOOST_TEST(w.results[r.spec->id.value].tokens == with_room(r, l, 0.7), each);
}

// The first draft that a constraint forbids is verified under the mask of its position, and refused there.
BOOST_AUTO_TEST_CASE(a_forbidden_draft_has_its_row) {
  rejection_world w(by_rejection(), 1);
  const core_request r = made(2, 20, 60);
  BOOST_REQUIRE(w.submit(r));
  constraint_matcher matcher(r.ask.constraint->grammar, {}, 64);
  int forbidden = 0, planned = 0;
  while (w.begin_turn() && w.end_turn()) {
    const step_plan& p = w.out.back();
    const planned_sequence& s = p.sequences[0];
    if (p.kind == step_kind::decode && s.limit - s.start > 5) {
      const std::int32_t legal = legal_of(p, s, matcher);
      ++planned;
      if (legal == s.drafts) {
        BOOST_TEST(s.drafts == 5);
      } else {
        ++forbidden;
        BOOST_TEST(s.drafts == legal + 1);
        BOOST_TEST(p.mask_rows[static_cast<std::size_t>(s.first_mask + legal)] >= 0);
        BOOST_TEST(p.mask_rows[static_cast<std::size_t>(s.first_mask + legal + 1)] == -1);
      }
    }
    const std::size_t before = w.results[2].tokens.size();
    w.finish_step();
    for (std::size_t i = before; i < w.results[2].tokens.size(); ++i)
      BOOST_REQUIRE(matcher.accept(w.results[2].tokens[i]));
  }
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(planned > 3);
  BOOST_TEST(forbidden > 3);
}

// Masks that are too much work for a step tell something of the drafts; how many are verified does not change any more.
BOOST_AUTO_TEST_CASE(late_masks_leave_the_number_of_drafts) {
  auto l = by_rejection(false, true);
  l.mask_work = 1;
  const auto helpers = std::make_shared<hand_masks>();
  rejection_world w(l, 1, helpers);
  core_request r = made(2, 20, 60);
  r.ask.constraint = stub_constraint("regex", "[a-z0-9, ]{50,300}"); // most drafts are legal
  BOOST_REQUIRE(w.submit(r));
  int late = 0;
  bool made_late = false; // so long the verifier wants all drafts verified, then none
  for (int n = 0; w.core.live() > 0 && n < 500; ++n) {
    w.core.planner().advise({w.core.draft_round() + 1, 1, made_late ? 1 : 6});
    while (w.begin_turn())
      w.end_turn();
    if (!w.out.empty()) {
      const planned_sequence& s = w.out.back().sequences[0];
      if (w.out.back().kind == step_kind::decode && s.limit - s.start > 5) {
        BOOST_TEST(made_late);
        BOOST_TEST(s.drafts >= 1);
        ++late;
      }
      w.finish_step();
      made_late = false;
    } else if (helpers->work_on()) {
      w.core.masks_made();
      made_late = true;
    }
  }
  BOOST_TEST(w.healthy(), w.trouble);
  BOOST_TEST(late > 3);
}

BOOST_AUTO_TEST_SUITE_END()
