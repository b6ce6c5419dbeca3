#include "runtime/request/ledger.hpp"

#include "runtime/base/noise.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

using namespace troupe;

namespace {

using ids = std::vector<std::int32_t>;
using verdict = token_ledger::verdict;

ids content(const token_ledger& l) {
  return {l.tokens().begin(), l.tokens().end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(request_ledger)

BOOST_AUTO_TEST_CASE(appends_in_order_and_ignores_overlap) {
  token_ledger l(10);
  BOOST_TEST(l.next_position() == 10);
  auto o = l.accept(1, 10, ids{5, 6});
  BOOST_TEST((o.what == verdict::accepted));
  BOOST_TEST(o.fresh == 0u);
  o = l.accept(1, 11, ids{6, 7, 8});
  BOOST_TEST((o.what == verdict::accepted));
  BOOST_TEST(o.fresh == 1u);
  o = l.accept(1, 10, ids{5, 6});
  BOOST_TEST((o.what == verdict::accepted));
  BOOST_TEST(o.fresh == 2u);
  BOOST_TEST(content(l) == (ids{5, 6, 7, 8}));
  BOOST_TEST(l.next_position() == 14);
}

BOOST_AUTO_TEST_CASE(refuses_gaps_strangers_and_divergence) {
  token_ledger l(3);
  l.accept(1, 3, ids{1, 2, 3});
  BOOST_TEST((l.accept(1, 7, ids{9}).what == verdict::gap));
  BOOST_TEST((l.accept(2, 6, ids{9}).what == verdict::stale));
  BOOST_TEST((l.accept(0, 6, ids{9}).what == verdict::stale));
  const auto o = l.accept(1, 4, ids{2, 4, 5});
  BOOST_TEST((o.what == verdict::diverged));
  BOOST_TEST(o.diverged_at == 5);
  BOOST_TEST((l.accept(1, 2, ids{1, 1}).what == verdict::diverged));
  BOOST_TEST((l.accept(1, -5, ids{}).what == verdict::diverged));
  BOOST_TEST(content(l) == (ids{1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(a_new_attempt_replaces_the_old_one) {
  token_ledger l(0, 3);
  l.accept(1, 0, ids{1, 2});
  BOOST_TEST(*l.next_attempt() == 2u);
  BOOST_TEST((l.accept(1, 2, ids{3}).what == verdict::stale));
  BOOST_TEST((l.accept(2, 0, ids{1, 2, 3}).what == verdict::accepted));
  BOOST_TEST(content(l) == (ids{1, 2, 3}));
  BOOST_TEST(*l.next_attempt() == 3u);
  BOOST_TEST(!l.next_attempt().has_value());
  BOOST_TEST(l.attempt() == 3u);
}

// Reports lost, repeated, reordered and cut at will: what is taken is always a prefix of the true output, never shorter
// than before, and complete once everything was sent in order.
BOOST_AUTO_TEST_CASE(any_delivery_gives_a_prefix_of_the_truth) {
  for (std::uint32_t round = 0; round < 300; ++round) {
    const auto pick = [&](std::uint32_t k, std::uint32_t n) { return philox(12, k, round, 0, 0).w[0] % n; };
    ids truth;
    for (std::uint32_t i = 0; i < 40; ++i)
      truth.push_back(static_cast<std::int32_t>(pick(i, 1000)));
    token_ledger l(100);
    for (std::uint32_t k = 0; k < 60; ++k) {
      const std::size_t from = pick(100 + k, 40), n = std::min<std::size_t>(pick(200 + k, 6), 40 - from);
      const std::size_t before = l.tokens().size();
      const auto o = l.accept(l.attempt(), 100 + static_cast<std::int64_t>(from), std::span{truth}.subspan(from, n));
      BOOST_REQUIRE(o.what == (from > before ? verdict::gap : verdict::accepted));
      BOOST_REQUIRE_EQUAL(l.tokens().size(), std::max(before, from > before ? before : from + n));
      BOOST_REQUIRE(std::equal(l.tokens().begin(), l.tokens().end(), truth.begin()));
      if (pick(300 + k, 20) == 0 && l.attempt() < 8)
        l.next_attempt();
    }
    l.accept(l.attempt(), 100, truth);
    BOOST_REQUIRE(content(l) == truth);
  }
}

BOOST_AUTO_TEST_CASE(what_another_process_took_is_gone_on_with_and_leaves_all_attempts) {
  token_ledger l(4, 3);
  l.accept(1, 4, ids{1, 2});
  l.go_on_at(9);
  BOOST_TEST(l.attempt() == 9u);
  BOOST_TEST((l.accept(1, 6, ids{3}).what == verdict::stale));
  BOOST_TEST((l.accept(9, 4, ids{1, 5}).what == verdict::diverged));
  BOOST_TEST((l.accept(9, 6, ids{3}).what == verdict::accepted));
  BOOST_TEST(content(l) == (ids{1, 2, 3}));
  BOOST_TEST(*l.next_attempt() == 10u);
  BOOST_TEST(*l.next_attempt() == 11u);
  BOOST_TEST(!l.next_attempt());
}

BOOST_AUTO_TEST_SUITE_END()
