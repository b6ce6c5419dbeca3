#include "runtime/scheduler/row_shares.hpp"
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

using list = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();

list shares(const list& wants, std::int32_t budget, std::int32_t least = 0) {
  std::vector<row_share> v;
  for (const std::int32_t w : wants)
    v.push_back({w, 0});
  std::vector<std::int32_t> scratch;
  share_rows(v, budget, least, scratch);
  list rows;
  for (const row_share& s : v)
    rows.push_back(s.rows);
  return rows;
}

} // namespace

BOOST_AUTO_TEST_SUITE(row_shares)

// The vector of engine.md §6.3 for four context-parallel ranks (B = 128, prompts 20 and 150: 20, which counts 24, and
// 104) does not apply. There chunks are padded to twice the ranks because every rank computes all places of the split;
// here ranks leave the padding out (context_split::rows_of), so that a step's rows count as what they are, whatever cp
// is (docs/decisions/12).
BOOST_AUTO_TEST_CASE(half_in_order_half_to_the_shortest) {
  BOOST_TEST(shares({100}, 256) == (list{100}), each);
  BOOST_TEST(shares({300}, 256) == (list{256}), each); // alone: everything
  // engine.md §6.3 cuts 100, 300, 50 into 100 and 156 and leaves 50 for a later step; here a short prompt need not
  // wait for a long one before it (C9).
  BOOST_TEST(shares({100, 300, 50}, 256) == (list{100, 106, 50}), each);
  BOOST_TEST(shares({100000, 40, 40, 40}, 256) == (list{136, 40, 40, 40}), each);
  BOOST_TEST(shares({1000, 1000}, 256) == (list{256, 0}), each); // ties in order: one is finished before the next
  BOOST_TEST(shares({1000, 900}, 256) == (list{128, 128}), each);
  BOOST_TEST(shares({5, 5}, 1) == (list{1, 0}), each);
  BOOST_TEST(shares({20, 150}, 128) == (list{20, 108}), each); // no row is lost to an alignment
}

BOOST_AUTO_TEST_CASE(no_share_is_smaller_than_the_least) {
  BOOST_TEST(shares({1000, 240}, 256, 20) == (list{128, 128}), each);
  BOOST_TEST(shares({300, 250}, 256, 200) == (list{256, 0}), each); // half would be too little for the first
  BOOST_TEST(shares({300, 100, 7}, 256, 200) == (list{249, 0, 7}), each);
}

BOOST_AUTO_TEST_CASE(random_shares_keep_the_budget_and_serve_the_first) {
  std::mt19937 random(1);
  std::vector<std::int32_t> scratch;
  for (int i = 0; i < 20000; ++i) {
    const auto budget = static_cast<std::int32_t>(1 + random() % 300);
    const auto least = static_cast<std::int32_t>(random() % 2 == 0 ? 0 : random() % static_cast<unsigned>(budget + 1));
    std::vector<row_share> v(1 + random() % 12);
    std::int64_t wanted = 0;
    for (row_share& s : v)
      wanted += s.wants = static_cast<std::int32_t>(1 + random() % (random() % 2 == 0 ? 20 : 500));
    share_rows(v, budget, least, scratch);
    std::int64_t given = 0;
    for (const row_share& s : v) {
      BOOST_REQUIRE(s.rows >= 0 && s.rows <= s.wants);
      BOOST_REQUIRE(s.rows == 0 || s.rows >= std::min(s.wants, least));
      given += s.rows;
    }
    BOOST_REQUIRE(given <= budget);
    BOOST_REQUIRE(v[0].rows >= std::min(v[0].wants, (budget + 1) / 2));
    if (least == 0)
      BOOST_REQUIRE(given == std::min<std::int64_t>(budget, wanted));
  }
}

BOOST_AUTO_TEST_CASE(whole_prompts_pass_over_what_does_not_fit) {
  std::vector<row_share> v{{300, 0}, {300, 0}, {100, 0}};
  share_whole(v, 512);
  BOOST_TEST(v[0].rows == 300);
  BOOST_TEST(v[1].rows == 0);
  BOOST_TEST(v[2].rows == 100);
}

BOOST_AUTO_TEST_SUITE_END()
