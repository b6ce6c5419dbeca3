// Rows that fill a step up to a fixed size: they go to no expert, count nowhere and change no other row.
#include "tests/support/gpu.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/data/test_case.hpp>

using namespace troupe;
using namespace troupe::row_cases;

namespace {

const std::vector<std::string> devices = test::with_gpu({"reference", "cpu"});

struct routed {
  std::vector<std::int32_t> expert;
  std::vector<float> weight;
  std::vector<std::uint32_t> counts;
};

constexpr int experts = 12, k = 3;

routed route(device& d, std::uint64_t seed, int rows, int live, const std::vector<std::uint32_t>& counts) {
  arena m(d);
  std::vector<float> logits;
  for (int r = 0; r < rows; ++r) {
    const auto row = numbers(seed, 1, r).reals(experts, 4);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  if (live >= 0)
    for (std::size_t i = static_cast<std::size_t>(live * experts); i < logits.size(); ++i)
      logits[i] = bits_float(0x7fc00000u); // whatever a placeholder holds
  route_args a;
  a.logits = m.put(logits);
  a.bias = m.put(std::vector<float>(experts, 0.0f));
  a.rows = rows;
  a.experts = experts;
  a.k = k;
  a.expert = m.put(std::vector<std::int32_t>(static_cast<std::size_t>(rows * k), 99));
  a.weight = m.put(std::vector<float>(static_cast<std::size_t>(rows * k), 99));
  if (live >= 0)
    a.live = m.put(std::vector<std::int32_t>{live});
  a.counts = m.put(counts);
  d.ops().route(*m.s, a);
  const auto n = static_cast<std::size_t>(rows * k);
  return {m.get(dev_ptr<const std::int32_t>(a.expert), n), m.get(dev_ptr<const float>(a.weight), n),
          m.get(dev_ptr<const std::uint32_t>(a.counts), experts)};
}

} // namespace

BOOST_AUTO_TEST_SUITE(placeholder_rows)

BOOST_DATA_TEST_CASE(only_live_rows_are_routed_and_counted, boost::unit_test::data::make(devices), name) {
  if (!test::can_run(name))
    return;
  const auto d = make_device(name, {});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const int rows = numbers(seed, 9).between(1, 70), live = numbers(seed, 10).below(rows + 1);
    const std::vector<std::uint32_t> before(experts, 5);
    const routed part = route(*d, seed, rows, live, before);
    const auto n = static_cast<std::size_t>(live * k);
    std::vector<std::uint32_t> expected = before;
    if (live > 0) {
      const routed alone = route(*d, seed, live, -1, before);
      for (std::size_t i = 0; i < n; ++i) {
        BOOST_REQUIRE(part.expert[i] == alone.expert[i]);
        BOOST_REQUIRE(float_bits(part.weight[i]) == float_bits(alone.weight[i]));
        ++expected[static_cast<std::size_t>(alone.expert[i])];
      }
      BOOST_TEST(alone.counts == expected, boost::test_tools::per_element());
    }
    for (std::size_t i = n; i < part.expert.size(); ++i) {
      BOOST_REQUIRE(part.expert[i] == -1);
      BOOST_REQUIRE(part.weight[i] == 0.0f);
    }
    BOOST_TEST(part.counts == expected, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
