#include "runtime/speculation/verify.hpp"

#include "kernels/reference/sample.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

using namespace troupe;

namespace {

const std::vector<float> x{2, 1, .5f, .5f, -1, -3, .5f, 0};
const std::vector<float> d{1.5f, 1.25f, .75f, 0, -1, -2, .5f, .25f};

std::vector<std::uint64_t> weights(const sample_args& a) {
  sample_scratch scratch(a.logits.size());
  std::vector<std::uint64_t> w(a.logits.size());
  BOOST_REQUIRE(kept_weights(a, scratch, w) == sample_status::ok);
  return w;
}

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_verify)

BOOST_AUTO_TEST_CASE(t6_rejection_rule) {
  const auto p = weights({.logits = x}), q = weights({.logits = d});
  const std::vector<std::int32_t> drafts{0, 0, 0, 6, 1, 3, 0, 0}, emitted{0, 0, 0, 6, 0, 3, 0, 0},
      fresh{0, 1, 0, 0, 0, 7, 0, 1};
  for (std::size_t k = 0; k < 8; ++k) {
    const std::uint64_t t = 100 + k;
    BOOST_TEST(draft_draw(q, 42, t) == drafts[k]);
    const verified_token v = verify_row(p, q, drafts[k], 42, t);
    BOOST_TEST(v.accepted == (t != 104));
    BOOST_TEST(v.token == emitted[k]);
    BOOST_TEST(fresh_draw(p, 42, t) == fresh[k]);
  }
}

BOOST_AUTO_TEST_CASE(t3_coupled_drafts) {
  std::vector<std::int32_t> drafts, targets;
  sample_scratch scratch(8);
  for (std::uint64_t t = 100; t < 108; ++t) {
    drafts.push_back(sample_row({.logits = d, .seed = 42, .position = t}, scratch).token);
    targets.push_back(sample_row({.logits = x, .seed = 42, .position = t}, scratch).token);
  }
  BOOST_TEST(coupled_prefix(drafts, targets) == 6u);
  BOOST_TEST(coupled_prefix({}, targets) == 0u);
  BOOST_TEST(coupled_prefix(targets, targets) == 8u);
}

// The emitted law must be the target's whatever the drafter proposes; a drafter close to it must be accepted as often
// as the overlap of the laws allows.
BOOST_AUTO_TEST_CASE(emitted_tokens_follow_the_target) {
  const auto p = weights({.logits = x, .temperature = .8f, .top_k = 7}),
             q = weights({.logits = d, .temperature = 1.3f, .top_p = .9f});
  double sp = 0, sq = 0;
  for (std::size_t i = 0; i < 8; ++i)
    sp += static_cast<double>(p[i]), sq += static_cast<double>(q[i]);
  std::vector<int> count(8);
  int accepted = 0;
  const int draws = 60000;
  for (int seed = 0; seed < draws; ++seed) {
    const auto s = static_cast<std::uint64_t>(seed);
    const verified_token v = verify_row(p, q, draft_draw(q, s, 11), s, 11);
    ++count[static_cast<std::size_t>(v.token)];
    accepted += v.accepted;
  }
  double chi2 = 0, overlap = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const double want = draws * static_cast<double>(p[i]) / sp;
    overlap += std::min(static_cast<double>(p[i]) / sp, static_cast<double>(q[i]) / sq);
    if (p[i] == 0)
      BOOST_TEST(count[i] == 0);
    else
      chi2 += (count[i] - want) * (count[i] - want) / want;
  }
  BOOST_TEST(chi2 < 22.5); // 99.9 %, 6 degrees of freedom
  BOOST_TEST(std::fabs(accepted / static_cast<double>(draws) - overlap) < 0.008);
}

BOOST_AUTO_TEST_CASE(equal_laws_always_accept_and_disjoint_ones_never) {
  const auto p = weights({.logits = x});
  const std::vector<std::uint64_t> left{5, 3, 0, 0}, right{0, 0, 1, 9};
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    BOOST_REQUIRE(verify_row(p, p, draft_draw(p, seed, 1), seed, 1).accepted);
    const verified_token v = verify_row(left, right, draft_draw(right, seed, 1), seed, 1);
    BOOST_REQUIRE(!v.accepted);
    BOOST_REQUIRE(v.token == 0 || v.token == 1);
  }
}

BOOST_AUTO_TEST_CASE(greedy_weights_make_the_rule_equality) {
  const auto p = weights({.logits = x, .temperature = 0}), q = weights({.logits = d, .temperature = 0});
  const std::vector<float> other{0, 5, 1, 1, 1, 1, 1, 1};
  const auto r = weights({.logits = other, .temperature = 0});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    BOOST_TEST(verify_row(p, q, 0, seed, 4).accepted);
    const verified_token v = verify_row(p, r, 1, seed, 4);
    BOOST_TEST(!v.accepted);
    BOOST_TEST(v.token == 0);
  }
}

BOOST_AUTO_TEST_CASE(impossible_drafts_are_rejected) {
  const auto p = weights({.logits = x});
  const std::vector<std::uint64_t> q{1, 0, 0, 0, 0, 0, 0, 0};
  for (const std::int32_t bad : {-1, 1, 8, 1 << 30}) {
    const verified_token v = verify_row(p, q, bad, 42, 101);
    BOOST_TEST(!v.accepted);
    BOOST_TEST(v.token == fresh_draw(p, 42, 101));
  }
}

BOOST_AUTO_TEST_SUITE_END()
