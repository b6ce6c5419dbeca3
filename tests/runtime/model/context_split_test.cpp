// The balanced split of a prefill step over context-parallel ranks: the vectors of engine.md §7.5, and its properties.
#include "runtime/model/context_split.hpp"
#include "runtime/model/step_input.hpp"
#include "tests/support/tiny_model.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

using ints = std::vector<std::int32_t>;
ints list(std::span<const std::int32_t> s) {
  return {s.begin(), s.end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(context_split_of_rows)

BOOST_AUTO_TEST_CASE(vectors) {
  context_split s(2);
  s.assign(ints{10, 3});
  BOOST_TEST(s.places() == 8);
  BOOST_TEST(list(s.mirror_index(0)) == (ints{0, 1, 2, 9, -1, -1, 10, -1}), boost::test_tools::per_element());
  BOOST_TEST(list(s.mirror_index(1)) == (ints{3, 4, 5, 6, 7, 8, 11, 12}), boost::test_tools::per_element());
  BOOST_TEST(list(s.reverse_index()) == (ints{0, 1, 2, 8, 9, 10, 11, 12, 13, 3, 6, 14, 15}),
             boost::test_tools::per_element());
  // without the padding
  BOOST_TEST(list(s.rows_of(0)) == (ints{0, 1, 2, 9, 10}), boost::test_tools::per_element());
  BOOST_TEST(list(s.rows_of(1)) == (ints{3, 4, 5, 6, 7, 8, 11, 12}), boost::test_tools::per_element());
  const std::vector<context_run> runs{{0, 0, 0, 3}, {1, 0, 3, 6}, {0, 3, 9, 2}, {1, 6, 11, 2}};
  BOOST_TEST((std::vector(s.runs().begin(), s.runs().end()) == runs));
  BOOST_TEST((s.row(11, 5) == context_run{1, 6, 5, 1}));
}

// engine.md §6.3 for four ranks counts chunks of a step of 128 rows in whole multiples of 8, as places of the split:
// 20 rows as 24, which leaves 104 (docs/decisions/12). Ranks compute no padding: 20 and 108 rows are 128 in all.
BOOST_AUTO_TEST_CASE(ranks_compute_no_padding) {
  for (const auto& [rows, places, most] : {std::tuple(ints{20, 104}, 128, 32), std::tuple(ints{20, 108}, 136, 34)}) {
    context_split s(4);
    s.assign(rows);
    BOOST_TEST(4 * s.places() == places);
    std::size_t computed = 0, of_one = 0;
    for (int rank = 0; rank < 4; ++rank) {
      computed += s.rows_of(rank).size();
      of_one = std::max(of_one, s.rows_of(rank).size());
    }
    BOOST_TEST(computed == static_cast<std::size_t>(rows[0] + rows[1]));
    BOOST_TEST(of_one <= static_cast<std::size_t>(most));
  }
}

// The same step as index arrays: first and last compressed key of every place, the keys of all sequences in one list
// (ks and ke of engine.md §7.5), from what each row sees.
BOOST_AUTO_TEST_CASE(vectors_of_visible_keys) {
  const auto dev = make_device("reference", {});
  const auto work = dev->make_stream();
  step_input_builder builder(test::tiny_checkpoint()->config(), *dev, 16, 2, 128);
  step_rows rows;
  rows.slot = {1, 2};
  rows.start = {0, 5};
  rows.rows = {10, 3};
  rows.first_block = {0, 1};
  rows.blocks_of = {1, 1};
  rows.blocks = {1, 2};
  rows.tokens = ints(13, 7);
  rows.history = ints(6, -1);
  context_split s(2);
  s.assign(rows.rows);
  const std::vector<ints> ks{{0, 0, 0, 0, 0, 0, 5, 5}, {0, 0, 0, 0, 0, 0, 5, 5}},
      ke{{0, 1, 1, 5, 0, 0, 8, 5}, {2, 2, 3, 3, 4, 4, 8, 9}};
  for (int rank = 0; rank < 2; ++rank) {
    const step_input in = builder.backbone(*work, rows, s.rows_of(rank));
    BOOST_TEST(in.map.rows == static_cast<std::int32_t>(s.rows_of(rank).size()));
    BOOST_TEST(in.map.key_rows == 13);
    BOOST_TEST(in.keys.rows == 13);
    BOOST_TEST(in.ratio[2].blocks == 7);
    std::int32_t row = 0;
    for (std::size_t place = 0; place < 8; ++place) {
      const auto step_row = s.mirror_index(rank)[place];
      if (step_row < 0) {
        BOOST_TEST(ke[static_cast<std::size_t>(rank)][place] == ks[static_cast<std::size_t>(rank)][place]);
        continue;
      }
      const auto position = step_row < 10 ? step_row : step_row - 5;
      BOOST_TEST(in.map.position.raw()[row] == position);
      BOOST_TEST(in.map.sequence.raw()[row] == (step_row < 10 ? 0 : 1));
      BOOST_TEST(in.map.window_hi.raw()[row] == position);
      BOOST_TEST(in.ratio[2].visible.raw()[row] ==
                 ke[static_cast<std::size_t>(rank)][place] - ks[static_cast<std::size_t>(rank)][place]);
      ++row;
    }
  }
}

BOOST_AUTO_TEST_CASE(every_row_has_one_place_and_the_way_back_is_the_inverse) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    ints rows(1 + random() % 5);
    for (auto& q : rows)
      q = 1 + static_cast<std::int32_t>(random() % 300);
    const std::int32_t n = std::accumulate(rows.begin(), rows.end(), 0);
    context_split s(ranks);
    s.assign(ints{5, 2}); // a split before leaves nothing behind
    s.assign(rows);
    ints seen(static_cast<std::size_t>(n), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto index = s.mirror_index(rank);
      BOOST_REQUIRE_EQUAL(index.size(), static_cast<std::size_t>(s.places()));
      ints dense;
      for (std::size_t place = 0; place < index.size(); ++place) {
        if (index[place] < 0)
          continue;
        ++seen[static_cast<std::size_t>(index[place])];
        BOOST_REQUIRE_EQUAL(s.reverse_index()[static_cast<std::size_t>(index[place])],
                            rank * s.places() + static_cast<std::int32_t>(place));
        BOOST_REQUIRE((s.row(index[place], 9) == context_run{rank, static_cast<std::int32_t>(dense.size()), 9, 1}));
        dense.push_back(index[place]);
      }
      BOOST_REQUIRE(dense == list(s.rows_of(rank)));
    }
    BOOST_REQUIRE(seen == ints(static_cast<std::size_t>(n), 1));
    std::int32_t next = 0;
    for (const context_run& r : s.runs()) { // in step order, and each names the rows it means
      BOOST_REQUIRE_EQUAL(r.to, next);
      for (std::int32_t i = 0; i < r.rows; ++i)
        BOOST_REQUIRE_EQUAL(s.rows_of(r.rank)[static_cast<std::size_t>(r.from + i)], r.to + i);
      next += r.rows;
    }
    BOOST_REQUIRE_EQUAL(next, n);
    BOOST_REQUIRE(s.runs().size() <= rows.size() * static_cast<std::size_t>(2 * ranks));
  }
}

// Work of row l of a fresh sequence: the l + 1 keys it sees. No rank has more than its share of the padded sequence.
BOOST_AUTO_TEST_CASE(causal_work_is_balanced) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t ranks = 1 + random() % 8, exact = random() % 2;
    std::int32_t q = 1 + static_cast<std::int32_t>(random() % 2000);
    if (exact)
      q = static_cast<std::int32_t>((q + 2 * ranks - 1) / (2 * ranks) * 2 * ranks);
    context_split s(static_cast<int>(ranks));
    s.assign(ints{q});
    const std::int64_t padded = s.places() * ranks, share = padded * (padded + 1) / 2 / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t work = 0;
      for (const auto l : s.rows_of(rank))
        work += l + 1;
      BOOST_REQUIRE_LE(work, share);
      if (exact)
        BOOST_REQUIRE_EQUAL(work, share);
    }
  }
}

BOOST_AUTO_TEST_CASE(steps_that_are_shared) {
  BOOST_TEST(!context_split_pays(ints{1000}, 1));
  BOOST_TEST(!context_split_pays(ints{63}, 2));
  BOOST_TEST(context_split_pays(ints{64}, 2));
  BOOST_TEST(!context_split_pays(ints{127}, 4));
  BOOST_TEST(context_split_pays(ints{100, 28}, 4));
  BOOST_TEST(!context_split_pays(ints(500, 1), 2)); // all of them on rank 0
  BOOST_TEST(context_split_pays(ints(500, 2), 2));
  BOOST_TEST(!context_split_pays(ints(500, 2), 4));
  std::mt19937 random(3);
  int shared = 0;
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 7);
    ints rows(1 + random() % 60);
    for (auto& q : rows)
      q = 1 + static_cast<std::int32_t>(random() % (round % 2 ? 12 : 80));
    if (!context_split_pays(rows, ranks))
      continue;
    ++shared;
    context_split s(ranks);
    s.assign(rows);
    for (int rank = 0; rank < ranks; ++rank)
      BOOST_REQUIRE(!s.rows_of(rank).empty());
  }
  BOOST_TEST(shared > 200);
}

BOOST_AUTO_TEST_SUITE_END()
