// Operations that read cached context against the PyTorch reference model: attention, index, selection, compressor. The
// context is fed in chunks of several sizes: every way of cutting must give the same bits.
#include "tests/support/row_cases.hpp"
#include "tests/support/tensor_file.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>

using namespace troupe;
using namespace troupe::row_cases;
using namespace troupe::test;

namespace {

double distance(const std::vector<float>& got, const std::vector<float>& want) {
  BOOST_REQUIRE_EQUAL(got.size(), want.size());
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    wrong += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    all += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(wrong / all);
}

using ints = std::vector<std::int32_t>;
std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

struct context {
  std::map<std::string, tensor> file = read_tensor_file(TROUPE_TEST_DATA "/kernels/vectors.safetensors");
  std::unique_ptr<device> d = make_device("reference", {});
  arena m{*d};
  std::vector<float> f32(const char* name) const { return file.at(name).f32(); }
  ints i32(const char* name) const { return file.at(name).i32(); }

  // Rows [first, first + count) of one sequence in slot 1 with block table {2, 1, 3}.
  row_map chunk(std::int32_t first, std::int32_t count, std::int32_t window) {
    ints position, low, zeros(size(count), 0);
    for (std::int32_t i = 0; i < count; ++i) {
      position.push_back(first + i);
      low.push_back(std::max(first + i - window + 1, 0));
    }
    const auto p = m.put(position);
    return {count,
            1,
            count,
            p,
            m.put(zeros),
            m.put(low),
            p,
            m.put(ints{0}),
            m.put(ints{count}),
            m.put(ints{first}),
            m.put(ints{1}),
            m.put(ints{2, 1, 3}),
            3};
  }
  template <class T> std::vector<T> part(const std::vector<T>& v, std::int64_t first, std::int64_t count) {
    return {v.begin() + first, v.begin() + first + count};
  }
};
const ints cuttings[] = {{20}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 9, 8}, {15, 1, 4}};

} // namespace

BOOST_FIXTURE_TEST_SUITE(reference_context, context)

BOOST_AUTO_TEST_CASE(attention_over_ring_own_rows_and_blocks) {
  constexpr std::int32_t heads = 4, dim = 64, window = 7;
  const std::vector<float> q = f32("att_q"), kv = f32("att_kv");
  const ints chosen = i32("att_chosen");
  for (const bool compressed : {false, true}) {
    std::vector<float> first;
    for (const ints& cutting : cuttings) {
      const ring_view ring{m.room<std::byte>(2 * 9 * dim * 4), 9 * dim * 4, 9, dim, kv_format::f32};
      // compressed positions in blocks of 4: position 0 is the first entry of block 2
      const block_view blocks{m.room<std::byte>(4 * 4 * dim * 4), 4 * dim * 4, 4, dim, kv_format::f32};
      const std::vector<std::int64_t> entry = {8, 9, 10, 11, 4, 5, 6, 7, 12};
      d->ops().block_store(*m.s, {m.put(f32("att_ckv")), m.put(entry), 9, blocks});
      std::vector<float> got;
      std::int32_t at = 0;
      for (const std::int32_t n : cutting) {
        const row_map map = chunk(at, n, window);
        const auto own = m.room<std::byte>(size(n * dim * 4));
        d->ops().encode(*m.s, {m.put(part(kv, at * dim, n * dim)), n, dim, kv_format::f32, own});
        attention_args a{map,
                         heads,
                         dim,
                         0.125f,
                         m.put(part(q, at * heads * dim, n * heads * dim)),
                         own,
                         ring,
                         blocks,
                         {},
                         5,
                         m.put(f32("att_sink")),
                         m.room<float>(size(n * heads * dim))};
        ints selected;
        for (std::int32_t i = at; i < at + n; ++i) {
          selected.insert(selected.end(), chosen.begin() + 3 * i, chosen.begin() + 3 * i + 3);
          selected.insert(selected.end(), {-1, -1});
        }
        if (compressed)
          a.selected = m.put(selected);
        d->ops().attention(*m.s, a);
        d->ops().ring_commit(*m.s, {map, own, ring});
        const auto out = m.get(dev_ptr<const float>(a.out), size(n * heads * dim));
        got.insert(got.end(), out.begin(), out.end());
        at += n;
      }
      BOOST_TEST(distance(got, f32(compressed ? "att_both" : "att_window")) < 1e-6);
      if (first.empty())
        first = got;
      BOOST_TEST((std::memcmp(first.data(), got.data(), got.size() * 4) == 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(compressor_with_its_partner_in_the_step_or_in_the_ring) {
  constexpr std::int32_t dim = 48;
  const std::vector<float> k = f32("comp_k"), g = f32("comp_g");
  std::vector<float> kg, first;
  for (std::int64_t t = 0; t < 12; ++t)
    for (const auto* v : {&k, &g})
      kg.insert(kg.end(), v->begin() + t * dim, v->begin() + (t + 1) * dim);
  for (const ints& cutting : {ints{12}, ints{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, ints{3, 4, 5}, ints{2, 3, 7}}) {
    const ring_view ring{m.room<std::byte>(2 * 3 * 2 * dim * 4), 3 * 2 * dim * 4, 3, 2 * dim, kv_format::f32};
    std::vector<float> got;
    std::int32_t at = 0;
    for (const std::int32_t n : cutting) {
      const row_map map = chunk(at, n, 1);
      ints last;
      for (std::int32_t i = 0; i < n; ++i)
        if ((at + i) % 2 == 1)
          last.push_back(i);
      const auto rows = m.put(part(kg, at * 2 * dim, n * 2 * dim));
      const auto out = m.room<float>(last.size() * dim);
      d->ops().compress(*m.s, {map, rows, ring, m.put(last), static_cast<std::int32_t>(last.size()), dim, out});
      d->ops().ring_commit(*m.s, {map, rows.as<const std::byte>(), ring});
      const auto part_of = m.get(dev_ptr<const float>(out), last.size() * dim);
      got.insert(got.end(), part_of.begin(), part_of.end());
      at += n;
    }
    BOOST_TEST(distance(got, f32("comp_y")) < 1e-6);
    if (first.empty())
      first = got;
    BOOST_TEST((std::memcmp(first.data(), got.data(), got.size() * 4) == 0));
  }
}

BOOST_AUTO_TEST_CASE(index_scores_of_stored_keys) {
  constexpr std::int32_t heads = 4, dim = 64, rows = 6, keys = 200, per_block = 128;
  const block_view blocks{m.room<std::byte>(size(4 * per_block * record_bytes(kv_format::fp4_ue8m0_32, dim))),
                          per_block * record_bytes(kv_format::fp4_ue8m0_32, dim), per_block, dim,
                          kv_format::fp4_ue8m0_32};
  std::vector<std::int64_t> entry;
  for (std::int64_t i = 0; i < keys; ++i)
    entry.push_back(i < per_block ? 2 * per_block + i : i); // block table {2, 1, 3}
  d->ops().block_store(*m.s, {m.put(f32("idx_k")), m.put(entry), keys, blocks});
  const auto scores = m.room<float>(rows * keys);
  d->ops().index_scores(*m.s, {chunk(1000, rows, 1), 0, rows, heads, dim, m.put(f32("idx_q")), m.put(f32("idx_a")),
                               blocks, m.put(ints(rows, keys)), scores, keys});
  BOOST_TEST(distance(m.get(dev_ptr<const float>(scores), rows * keys), f32("idx_scores")) < 1e-6);
}

// 200 scores of few values, so that the boundary of every selection lies among equals.
BOOST_AUTO_TEST_CASE(candidates_and_selection) {
  constexpr std::int32_t rows = 6, stride = 200, limit = 6, topk = 24;
  const auto scores = m.put(f32("sel_scores"));
  const auto visible = m.put(i32("sel_visible"));
  const auto chosen = m.room<std::int32_t>(rows * limit), selected = m.room<std::int32_t>(rows * topk);
  const auto positions = [](const std::vector<float>& flags, int row) {
    ints p;
    for (std::int32_t i = 0; i < stride; ++i)
      if (flags[size(row * stride + i)] != 0)
        p.push_back(i);
    return p;
  };
  const auto rows_of = [&](dev_ptr<std::int32_t> p, int row, std::int32_t width) {
    const ints all = m.get(dev_ptr<const std::int32_t>(p), size(rows * width));
    return part(all, row * width, width);
  };
  d->ops().candidates(*m.s, {0, rows, scores, stride, visible, 8, limit, chosen});
  for (int r = 0; r < rows; ++r) {
    ints want;
    for (const std::int32_t p : positions(f32("sel_candidates"), r))
      if (want.empty() || want.back() != p / 8)
        want.push_back(p / 8);
    want.resize(limit, -1);
    BOOST_TEST(rows_of(chosen, r, limit) == want, boost::test_tools::per_element());
  }
  for (const bool held : {false, true}) {
    select_args a{0, rows, scores, stride, visible, {}, 8, limit, topk, selected};
    if (held)
      a.candidates = chosen;
    d->ops().select(*m.s, a);
    for (int r = 0; r < rows; ++r) {
      ints want = positions(f32(held ? "sel_held" : "sel_free"), r);
      want.resize(topk, -1);
      BOOST_TEST(rows_of(selected, r, topk) == want, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
