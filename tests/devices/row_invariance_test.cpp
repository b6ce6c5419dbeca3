// A row's result has the same bits alone, in a batch and in another place of a batch (exactness.md §2).
#include "tests/support/row_cases.hpp"
#include <boost/test/unit_test.hpp>
#include <set>

using namespace troupe;
using namespace troupe::row_cases;

BOOST_AUTO_TEST_SUITE(row_invariance)

// Every operation on one device, against itself and against the reference device.
static void check_rows(device& d) {
  const auto oracle = make_device("reference", {});
  for (const row_case& c : op_cases())
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      std::vector<int> batch;
      for (int r = 0; r < 11; ++r)
        batch.push_back(r * 2);
      const row_bits all = c.run(d, seed, batch);
      BOOST_REQUIRE_MESSAGE(all == c.run(*oracle, seed, batch), c.name << " seed " << seed << " against the reference");
      const std::vector<int> shuffled = {6, 23, 0, 20, 2, 12, 1, 14, 18};
      const row_bits other = c.run(d, seed, shuffled);
      const std::set<std::vector<std::uint32_t>> distinct(all.begin(), all.end());
      if (all[0].size() >= 8) // equal rows would say nothing
        BOOST_REQUIRE_MESSAGE(distinct.size() > 1, c.name << " seed " << seed);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const std::vector<int> alone = {batch[i]};
        BOOST_REQUIRE_MESSAGE(c.run(d, seed, alone)[0] == all[i], c.name << " seed " << seed << " row " << batch[i]);
        for (std::size_t j = 0; j < shuffled.size(); ++j)
          if (shuffled[j] == batch[i])
            BOOST_REQUIRE_MESSAGE(other[j] == all[i], c.name << " seed " << seed << " row " << batch[i] << " shuffled");
      }
    }
}

BOOST_AUTO_TEST_CASE(reference_device) {
  check_rows(*make_device("reference", {}));
}

BOOST_AUTO_TEST_CASE(cpu_device_with_one_and_three_threads) {
  check_rows(*make_device("cpu", {1, {}}));
  check_rows(*make_device("cpu", {3, {}}));
}

BOOST_AUTO_TEST_SUITE_END()
