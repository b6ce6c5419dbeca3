#include "runtime/request/seeds.hpp"

#include <boost/test/unit_test.hpp>
#include <set>
#include <string>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(request_seeds)

BOOST_AUTO_TEST_CASE(t10_from_run_seed_and_id) {
  BOOST_TEST(derived_seed(0, "r1") == 4455775677501943u);
  BOOST_TEST(derived_seed(0, "r2") == 7862257940660785u);
  BOOST_TEST(derived_seed(7, "r1") == 107904788684558u);
}

BOOST_AUTO_TEST_CASE(t10_branches) {
  BOOST_TEST(branch_seed(42, 0) == 0x2au);
  BOOST_TEST(branch_seed(42, 1) == 0x4606f0b9321422bfu);
  BOOST_TEST(branch_seed(42, 2) == 0x7ca0359b6a465ed0u);
  BOOST_TEST(branch_seed(42, 3) == 0x6e63d095fb8f95abu);
}

BOOST_AUTO_TEST_CASE(derived_seeds_have_53_bits_and_differ) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i)
    for (std::uint64_t s : {0ull, 1ull, ~0ull}) {
      const std::uint64_t seed = derived_seed(s, std::to_string(i));
      BOOST_TEST(seed < (1ull << 53));
      seen.insert(seed);
    }
  BOOST_TEST(seen.size() == 3000u);
}

BOOST_AUTO_TEST_SUITE_END()
