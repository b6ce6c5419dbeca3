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

using cases::size;
const std::vector<std::string> devices = test::with_gpu({"reference", "cpu"});

} // namespace

BOOST_AUTO_TEST_SUITE(drafts_on_a_device)

// The device's split is the host's, whatever the confidences: ties, zeros, NaN. Sequences that do not share verify what
// is planned, those that have stopped nothing, and what is left over are placeholders.
BOOST_DATA_TEST_CASE(drafts_are_shared_out_as_the_host_does, boost::unit_test::data::make(devices), name) {
  if (!test::can_run(name))
    return;
  const auto d = make_device(name, {});
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    numbers n(seed, 1);
    const int before = n.below(3), planned = n.below(4), sharing = n.between(planned > 0 ? 0 : 1, 20);
    const int more = seed % 8 == 0 ? 300 : 0, block = 5, width = n.between(1, 5), decided = planned + sharing + more;
    const int sequences = before + decided, shared = sharing + more, wanted = n.below(shared * width + 1);
    std::vector<float> confidence;
    ints stopped;
    for (int i = 0; i < (sequences + 1) * block; ++i)
      confidence.push_back(n.below(9) == 0 ? bits_float(0x7fc00000u) : 0.25f * static_cast<float>(n.below(6)));
    for (int i = 0; i < sequences + 1; ++i)
      stopped.push_back(seed % 3 > 0 && n.below(4) == 0);
    ints slot;
    for (int s = 0; s < sequences; ++s)
      slot.push_back(1 + (s * 7) % sequences); // not in their order
    if (std::set<std::int32_t>(slot.begin(), slot.end()).size() != slot.size())
      std::iota(slot.begin(), slot.end(), 1);
    const auto stopped_at = [&](int s) { return stopped[size(slot[size(before + s)])] != 0; };

    ints expected(size(decided)), first(size(sequences + 1), -1), drafts = first;
    std::int32_t room = decided + wanted; // rows that the host has planned
    for (int s = 0; s < planned; ++s) {
      drafts[size(before + s)] = n.below(width + 1);
      room += drafts[size(before + s)];
      expected[size(s)] = stopped_at(s) ? 0 : drafts[size(before + s)];
    }
    std::vector<float> table(size(shared * width));
    for (int s = 0; s < shared; ++s)
      survivals_of(confidence.data() + slot[size(before + planned + s)] * block, stopped_at(planned + s) ? 0 : width,
                   width, table.data() + s * width);
    split_drafts(table.data(), shared, width, wanted, expected.data() + planned);
    first[size(before)] = 10;
    slot.push_back(0);
    const std::size_t rows = size(10 + room + n.below(4)); // the last ones were placeholders before

    arena m(*d);
    share_drafts_args a;
    a.map.rows = static_cast<std::int32_t>(rows);
    a.map.sequences = sequences + 1;
    a.map.slot = m.put(slot);
    a.state.block = block;
    a.state.confidence = m.put(confidence), a.state.stopped = m.put(stopped);
    a.width = width;
    a.shared = m.put(ints{before, decided, shared, wanted});
    a.survival = m.room<float>(table.size() + 1);
    a.drafts = m.put(drafts), a.draws = m.put(ints(first.size(), -1)), a.row_count = m.put(ints(first.size(), -1));
    a.first_row = m.put(first);
    a.sequence = m.put(ints(rows, -1)), a.ids = m.put(ints(rows, -1));
    a.live = m.put(ints{-1});
    d->ops().share_drafts(*m.s, a);
    const auto get = [&](dev_ptr<std::int32_t> p, std::size_t count) {
      return m.get(dev_ptr<const std::int32_t>(p), count);
    };
    const ints lengths = get(a.drafts, first.size()), draws = get(a.draws, first.size()),
               count = get(a.row_count, first.size()), begin = get(a.first_row, first.size()),
               sequence = get(a.sequence, rows), ids = get(a.ids, rows);
    std::size_t row = 10;
    for (int s = 0; s < decided; ++s) {
      const std::size_t at = size(before + s);
      BOOST_REQUIRE_MESSAGE(lengths[at] == expected[size(s)], "seed " << seed << ", sequence " << s);
      BOOST_REQUIRE(draws[at] == lengths[at] + 1);
      BOOST_REQUIRE(count[at] == lengths[at] + 1);
      BOOST_REQUIRE(begin[at] == static_cast<std::int32_t>(row));
      for (int k = 0; k <= lengths[at]; ++k, ++row) {
        BOOST_REQUIRE(sequence[row] == before + s);
        BOOST_REQUIRE(ids[row] == (k == 0 ? token_in_flight : draft_in_flight));
      }
    }
    BOOST_REQUIRE(get(a.live, 1) == ints{static_cast<std::int32_t>(row)});
    BOOST_REQUIRE(begin[size(sequences)] == static_cast<std::int32_t>(row));
    BOOST_REQUIRE(count[size(sequences)] == static_cast<std::int32_t>(rows - row));
    for (; row < rows; ++row) {
      BOOST_REQUIRE(sequence[row] == sequences);
      BOOST_REQUIRE(ids[row] == 0);
    }
    for (std::size_t s = 0; s < size(before); ++s)
      BOOST_REQUIRE(lengths[s] == -1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
