// By rejection tokens depend on how many drafts are verified; it says nothing of what the drafts are.
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
