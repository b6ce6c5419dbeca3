// A row's result has the same bits alone, in a batch and in another place of a batch (exactness.md §2).
#include "tests/support/op_cases.hpp"
#include <boost/test/unit_test.hpp>
#include <set>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(row_invariance)

BOOST_AUTO_TEST_CASE(every_operation_of_the_reference_device) {
  const auto d = make_device("reference", {});
  for (const op_case& c : op_cases())
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      std::vector<int> batch;
      for (int r = 0; r < 11; ++r)
        batch.push_back(r * 2);
      const row_bits all = c.run(*d, seed, batch);
      const std::vector<int> shuffled = {6, 23, 0, 20, 2, 12, 1, 14, 18};
      const row_bits other = c.run(*d, seed, shuffled);
      std::set<std::vector<std::uint32_t>> distinct(all.begin(), all.end());
      if (all[0].size() >= 8) // otherwise equal rows say nothing
        BOOST_TEST_CONTEXT(c.name << " seed " << seed)
      BOOST_TEST(distinct.size() > 1u);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const std::vector<int> alone = {batch[i]};
        BOOST_REQUIRE_MESSAGE(c.run(*d, seed, alone)[0] == all[i], c.name << " seed " << seed << " row " << batch[i]);
        for (std::size_t j = 0; j < shuffled.size(); ++j)
          if (shuffled[j] == batch[i])
            BOOST_REQUIRE_MESSAGE(other[j] == all[i], c.name << " seed " << seed << " row " << batch[i] << " shuffled");
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
