#include "tests/support/covering_array.hpp"
#include <boost/test/unit_test.hpp>

using namespace test_support;

BOOST_AUTO_TEST_SUITE(covering_arrays)

BOOST_AUTO_TEST_CASE(every_pair_occurs_and_rows_are_few) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{2, 2, 2}, {5, 6, 6, 3, 3, 4, 2, 2, 3}, {3, 1, 4}, {7, 2}, {4, 4, 4, 4, 4}})
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      const auto rows = covering_array(sizes, seed);
      std::set<setting_pair> met;
      for (const std::vector<int>& row : rows) {
        BOOST_REQUIRE(row.size() == sizes.size());
        for (std::size_t a = 0; a < row.size(); ++a) {
          BOOST_TEST((row[a] >= 0 && row[a] < sizes[a]));
          for (std::size_t b = a + 1; b < row.size(); ++b)
            met.insert({a, row[a], b, row[b]});
        }
      }
      BOOST_TEST((met == all_pairs(sizes)));
      std::vector<int> sorted = sizes;
      std::ranges::sort(sorted, std::greater<>{});
      BOOST_TEST(rows.size() >= static_cast<std::size_t>(sorted[0] * sorted[1])); // no array can be shorter
      BOOST_TEST(rows.size() <= static_cast<std::size_t>(2 * sorted[0] * sorted[1] + 8));
      BOOST_TEST((covering_array(sizes, seed) == rows)); // the seed decides
    }
}

BOOST_AUTO_TEST_SUITE_END()
