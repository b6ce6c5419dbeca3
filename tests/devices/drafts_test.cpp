// The split of a step's drafts on a device (speculation.md §6.2).
#include "runtime/base/draft_split.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

using namespace troupe;
using namespace troupe::row_cases;
using ints = std::vector<std::int32_t>;

namespace {

const std::vector<std::string> devices = test::with_gpu({"reference", "cpu"});

} // namespace

BOOST_AUTO_TEST_SUITE(drafts_on_a_device)

// The device's split is the host's, whatever the confidences: ties, zeros, NaN.
BOOST_DATA_TEST_CASE(drafts_are_shared_out_as_the_host_does, boost::unit_test::data::make(devices), name) {
  if (!test::can_run(name))
    return;
  const auto d = make_device(name, {});
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    numbers n(seed, 1);
    const int before = n.below(3), sharing = n.between(1, seed % 8 == 0 ? 300 : 20), block = 5, width = n.between(1, 5);
    const int sequences = before + sharing, wanted = n.below(sharing * width + 1);
    std::vector<float> confidence;
    for (int i = 0; i < (sequences + 1) * block; ++i)
      confidence.push_back(n.below(9) == 0 ? bits_float(0x7fc00000u) : 0.25f * static_cast<float>(n.below(6)));
    ints slot, first(static_cast<std::size_t>(sequences), -1), drafts(static_cast<std::size_t>(sequences), -1),
        expected;
    for (int s = 0; s < sequences; ++s)
      slot.push_back(1 + (s * 7) % sequences); // not in their order
    if (std::set<std::int32_t>(slot.begin(), slot.end()).size() != slot.size())
      std::iota(slot.begin(), slot.end(), 1);
    first[static_cast<std::size_t>(before)] = 10;
    std::vector<float> table(static_cast<std::size_t>(sharing * width));
    for (int s = 0; s < sharing; ++s)
      survivals_of(confidence.data() + slot[static_cast<std::size_t>(before + s)] * block, width, width,
                   table.data() + s * width);
    expected.resize(static_cast<std::size_t>(sharing));
    split_drafts(table.data(), sharing, width, wanted, expected.data());

    arena m(*d);
    share_drafts_args a;
    a.map.sequences = sequences;
    a.map.slot = m.put(slot);
    a.state.block = block;
    a.state.confidence = m.put(confidence);
    a.width = width;
    a.shared = m.put(ints{before, sharing, wanted});
    a.survival = m.room<float>(table.size());
    a.drafts = m.put(drafts), a.draws = m.put(drafts), a.row_count = m.put(drafts);
    a.first_row = m.put(first);
    const auto rows = static_cast<std::size_t>(10 + sharing + wanted);
    a.sequence = m.put(ints(rows, -1)), a.ids = m.put(ints(rows, -1));
    d->ops().share_drafts(*m.s, a);
    const auto all = static_cast<std::size_t>(sequences);
    const auto get = [&](dev_ptr<std::int32_t> p, std::size_t count) {
      return m.get(dev_ptr<const std::int32_t>(p), count);
    };
    const ints lengths = get(a.drafts, all), draws = get(a.draws, all), count = get(a.row_count, all),
               begin = get(a.first_row, all), sequence = get(a.sequence, rows), ids = get(a.ids, rows);
    std::size_t row = 10;
    for (int s = 0; s < sharing; ++s) {
      const auto at = static_cast<std::size_t>(before + s);
      BOOST_REQUIRE_MESSAGE(lengths[at] == expected[static_cast<std::size_t>(s)],
                            "seed " << seed << ", sequence " << s);
      BOOST_REQUIRE(draws[at] == lengths[at] + 1);
      BOOST_REQUIRE(count[at] == lengths[at] + 1);
      BOOST_REQUIRE(begin[at] == static_cast<std::int32_t>(row));
      for (int k = 0; k <= lengths[at]; ++k, ++row) {
        BOOST_REQUIRE(sequence[row] == before + s);
        BOOST_REQUIRE(ids[row] == (k == 0 ? token_in_flight : draft_in_flight));
      }
    }
    BOOST_REQUIRE(row == rows);
    for (std::size_t s = 0; s < static_cast<std::size_t>(before); ++s)
      BOOST_REQUIRE(lengths[s] == -1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
