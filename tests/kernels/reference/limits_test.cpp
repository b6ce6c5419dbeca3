// Bad weights are refused with a reason, odd scores and empty contexts never
// leave the arrays.
#include "kernels/reference/cache.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <limits>

using namespace troupe;
using namespace troupe::row_cases;

namespace {

using ints = std::vector<std::int32_t>;

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const device_error& e) {
    return e.what();
  }
  return "";
}

struct bench {
  std::unique_ptr<device> d = make_device("reference", {});
  arena m{*d};
  ints get(dev_ptr<std::int32_t> p, std::size_t n) { return m.get(dev_ptr<const std::int32_t>(p), n); }
  ints candidates_of(const std::vector<float>& scores, std::int32_t visible, std::int32_t limit) {
    const auto out = m.room<std::int32_t>(static_cast<std::size_t>(limit));
    d->ops().candidates(*m.s, {0, 1, m.put(scores), 0, m.put(ints{visible}), 2, limit, out});
    return get(out, static_cast<std::size_t>(limit));
  }
  ints select_of(const std::vector<float>& scores, std::int32_t visible, std::int32_t topk, const ints& blocks = {}) {
    select_args a{0,
                  1,
                  {},
                  0,
                  m.put(ints{visible}),
                  {},
                  2,
                  static_cast<std::int32_t>(blocks.size()),
                  topk,
                  m.room<std::int32_t>(static_cast<std::size_t>(topk))};
    if (!scores.empty())
      a.scores = m.put(scores);
    if (!blocks.empty())
      a.candidates = m.put(blocks);
    d->ops().select(*m.s, a);
    return get(a.selected, static_cast<std::size_t>(topk));
  }
};

const float inf = std::numeric_limits<float>::infinity(), nan_ = std::numeric_limits<float>::quiet_NaN();

} // namespace

BOOST_FIXTURE_TEST_SUITE(reference_limits, bench)

BOOST_AUTO_TEST_CASE(weights_of_wrong_size_are_refused_by_name) {
  const std::vector<std::byte> bytes(4096);
  const auto source = [&](weight_format f, std::int64_t rows, std::int64_t cols, std::size_t data, std::size_t scale) {
    return weight_source{f, rows, cols, std::span(bytes).first(data), std::span(bytes).first(scale), {}};
  };
  struct item {
    weight_source source;
    const char* reason; // empty: accepted
  };
  const item items[] = {
      {source(weight_format::f32, 3, 5, 60, 0), ""},
      {source(weight_format::f32, 3, 5, 59, 0), "f32 [3, 5]: data has 59 bytes, expected 60"},
      {source(weight_format::f32, 3, 5, 60, 4), "scale has 4 bytes, expected 0"},
      {source(weight_format::f32, 0, 5, 0, 0), "must be positive"},
      {source(weight_format::f32, -3, -5, 60, 0), "must be positive"},
      {source(weight_format::f32, std::int64_t{1} << 40, std::int64_t{1} << 40, 60, 0), "too large"},
      {source(weight_format::bf16, 3, 5, 30, 0), ""},
      {source(weight_format::bf16, 3, 5, 60, 0), "expected 30"},
      {source(weight_format::fp8_block, 33, 40, 33 * 40, 4), ""},
      {source(weight_format::fp8_block, 33, 40, 33 * 40, 2), "fp8_block [33, 40]: scale has 2 bytes, expected 4"},
      {source(weight_format::fp8_row, 3, 64, 192, 6), ""},
      {source(weight_format::fp8_row, 3, 64, 192, 5), "expected 6"},
      {source(weight_format::fp8_row, 3, 48, 144, 6), "multiple of 32"},
      {source(weight_format::mxfp4, 3, 64, 96, 6), ""},
      {source(weight_format::mxfp4, 3, 64, 192, 6), "expected 96"},
      {source(weight_format::mxfp4, 3, 16, 24, 3), "multiple of 32"},
      {source(static_cast<weight_format>(99), 3, 5, 60, 0), "unknown format"},
  };
  for (const item& i : items) {
    const std::string a = refusal([&] { (void)d->pack(i.source); }),
                      b = refusal([&] { (void)d->pack_table(i.source); });
    BOOST_TEST(a == b);
    BOOST_TEST(a.empty() == (*i.reason == 0), a);
    BOOST_TEST(a.find(i.reason) != a.npos, a);
  }
  const weight_source w1 = source(weight_format::f32, 4, 8, 128, 0), w2 = source(weight_format::f32, 8, 4, 128, 0);
  BOOST_TEST(refusal([&] { (void)d->pack_experts(std::vector<expert_source>{{w1, w1, w2}}); }).empty());
  const std::string wrong = refusal([&] {
    (void)d->pack_experts(std::vector<expert_source>{{w1, w1, w2}, {w1, w1, w1}});
  });
  BOOST_TEST(wrong.find("w2 of the expert in slot 1 must be [8, 4]") != wrong.npos, wrong);
}

BOOST_AUTO_TEST_CASE(tables_copy_what_has_no_owner_and_give_zeros_outside) {
  std::vector<float> numbers_ = {1, 2, 3, 4, 5, 6};
  auto owned = std::make_shared<std::vector<float>>(numbers_);
  const auto span_of = [](const std::vector<float>& v) { return std::as_bytes(std::span(v)); };
  const auto copied = d->pack_table({weight_format::f32, 3, 2, span_of(numbers_), {}, {}});
  const auto kept = d->pack_table({weight_format::f32, 3, 2, span_of(*owned), {}, owned});
  numbers_.assign(6, 9.0f);
  const std::weak_ptr<std::vector<float>> watch = owned;
  owned.reset();
  BOOST_TEST(!watch.expired());
  for (const auto& table : {copied, kept}) {
    const auto out = m.put(std::vector<float>(10, 7.0f));
    d->ops().embed(*m.s, {table.get(), m.put(ints{2, -1, 3, 0, 2147483647}), 5, 1, out});
    const std::vector<float> want = {5, 6, 0, 0, 0, 0, 1, 2, 0, 0};
    BOOST_TEST(m.get(dev_ptr<const float>(out), 10) == want, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(objects_of_another_kind_are_refused) {
  struct foreign : weight {};
  foreign w;
  w.rows = w.cols = 1;
  const auto x = m.room<float>(1);
  BOOST_TEST(refusal([&] {
               d->ops().linear(*m.s, {x, &w, 1, 1, x});
             }).find("not packed by this device") != std::string::npos);
  const auto cpu = make_device("cpu", {1, {}});
  const std::vector<float> one = {1};
  const auto other = cpu->pack({weight_format::f32, 1, 1, std::as_bytes(std::span(one)), {}, {}});
  BOOST_TEST(!refusal([&] { d->ops().linear(*m.s, {x, other.get(), 1, 1, x}); }).empty());
}

BOOST_AUTO_TEST_CASE(candidates_of_odd_scores) {
  // blocks of 2: NaN counts as the smallest, +inf is capped, the block of the
  // last visible position always wins
  BOOST_TEST(candidates_of({5, 5, 4, 4, 3, 3, 2, 2, 1}, 9, 2) == (ints{0, 4}), boost::test_tools::per_element());
  BOOST_TEST(candidates_of({5, 5, 4, 4, 3, 3, 2, 2, 1}, 4, 3) == (ints{0, 1, -1}), boost::test_tools::per_element());
  BOOST_TEST(candidates_of({nan_, nan_, -inf, -inf, nan_, 1, 0, 0}, 8, 2) == (ints{2, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(candidates_of({nan_, nan_, -inf, -inf, nan_, nan_, 0, 0}, 8, 2) == (ints{1, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(candidates_of({1, 0, inf, 0, 3.4e38f, 0, 0, 0}, 8, 2) == (ints{1, 3}), boost::test_tools::per_element());
  // +inf and everything above the largest BF16 number tie: smaller block
  BOOST_TEST(candidates_of({1, 0, 3.4e38f, 0, inf, 0, 0, 0}, 8, 2) == (ints{1, 3}), boost::test_tools::per_element());
  BOOST_TEST(candidates_of({0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, 0, 0}, 8, 3) == (ints{0, 1, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(candidates_of({}, 0, 2) == (ints{-1, -1}), boost::test_tools::per_element());
  BOOST_TEST(candidates_of({}, -5, 1) == (ints{-1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(selection_of_odd_scores) {
  BOOST_TEST(select_of({1, 3, 2, 3, 3}, 5, 2) == (ints{1, 3}), boost::test_tools::per_element());
  BOOST_TEST(select_of({nan_, -inf, nan_, 2, inf}, 5, 3) == (ints{1, 3, 4}), boost::test_tools::per_element());
  BOOST_TEST(select_of({nan_, nan_, nan_, nan_}, 4, 2) == (ints{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(select_of({-0.0f, 0.0f, -0.0f, 0.0f}, 4, 3) == (ints{0, 1, 2}), boost::test_tools::per_element());
  BOOST_TEST(select_of({inf, inf, inf}, 3, 2) == (ints{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(select_of({-1, -2, -3}, 3, 2) == (ints{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(select_of({}, 3, 5) == (ints{0, 1, 2, -1, -1}), boost::test_tools::per_element());
  BOOST_TEST(select_of({}, 0, 2) == (ints{-1, -1}), boost::test_tools::per_element());
  BOOST_TEST(select_of({}, 9, 2) == (ints{0, 1}), boost::test_tools::per_element());
  // only positions of the candidate blocks compete; the last one is cut by what
  // is visible
  BOOST_TEST(select_of({9, 9, 1, 2, 8, 8, 3}, 7, 3, {1, 3}) == (ints{2, 3, 6}), boost::test_tools::per_element());
  BOOST_TEST(select_of({9, 9, 1, 2, 8, 8, 3}, 7, 2, {1, 3}) == (ints{3, 6}), boost::test_tools::per_element());
  BOOST_TEST(select_of({9, 9, 1, 2, 8, 8, 3}, 7, 3, {-1, -1}) == (ints{-1, -1, -1}), boost::test_tools::per_element());
}

// Against a full sort, with scores of every bit pattern.
BOOST_AUTO_TEST_CASE(selection_equals_a_sort) {
  numbers n(3, 0);
  for (int round = 0; round < 300; ++round) {
    const int count = n.between(1, 60), topk = n.between(1, 60);
    std::vector<float> scores;
    for (int i = 0; i < count; ++i)
      scores.push_back(n.below(3) == 0 ? bits_float(n.bits()) : static_cast<float>(n.between(-2, 2)));
    ints order(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
      order[static_cast<std::size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const float x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
      return std::isnan(y) ? !std::isnan(x) : x > y;
    });
    order.resize(static_cast<std::size_t>(std::min(count, topk)));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<std::size_t>(topk), -1);
    BOOST_TEST(select_of(scores, count, topk) == order, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(routing_of_equal_and_odd_logits) {
  const auto route = [&](const std::vector<float>& logits, const std::vector<float>& bias, std::int32_t k) {
    const auto experts = static_cast<std::int32_t>(logits.size());
    const auto chosen = m.room<std::int32_t>(static_cast<std::size_t>(k));
    const auto weight = m.room<float>(static_cast<std::size_t>(k));
    d->ops().route(*m.s, {m.put(logits), m.put(bias), 1, experts, k, 1.0f, chosen, weight, {}, {}});
    return get(chosen, static_cast<std::size_t>(k));
  };
  const std::vector<float> zero(6, 0.0f);
  BOOST_TEST(route({1, 2, 2, 1, 2, 0}, zero, 4) == (ints{1, 2, 4, 0}), boost::test_tools::per_element());
  BOOST_TEST(route({1, 2, 2, 1, 2, 0}, {0, 0, 0, 9, 0, 0}, 2) == (ints{3, 1}), boost::test_tools::per_element());
  BOOST_TEST(route({nan_, 1, nan_, inf, -inf, 0}, zero, 6) == (ints{3, 1, 5, 4, 0, 2}),
             boost::test_tools::per_element());
  BOOST_TEST(!refusal([&] { (void)route({1, 2}, {0, 0}, 3); }).empty());
}

BOOST_AUTO_TEST_CASE(attention_without_keys_gives_zero) {
  const auto z = m.put(ints{0});
  const auto one = m.put(ints{1});
  const auto empty = m.put(ints{5}); // lowest position above the highest
  const row_map map{1, 1, 1, z, z, empty, z, z, one, z, z, z, 0};
  const auto out = m.put(std::vector<float>(64, 3.0f));
  const auto records = m.room<std::byte>(32 * 4);
  d->ops().attention(*m.s, {map,
                            2,
                            32,
                            1.0f,
                            m.put(std::vector<float>(64, 1.0f)),
                            records,
                            {records, 0, 1, 32, kv_format::f32},
                            {},
                            {},
                            0,
                            m.put(std::vector<float>{0, -3}),
                            out});
  BOOST_TEST(m.get(dev_ptr<const float>(out), 64) == std::vector<float>(64, 0.0f), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(routing_weights_without_any_score_are_zero) {
  const auto chosen = m.room<std::int32_t>(2);
  const auto weight = m.put(std::vector<float>{5, 5});
  d->ops().route(*m.s, {m.put(std::vector<float>{-200, -200, -200}),
                        m.put(std::vector<float>{0, 1, 2}),
                        1,
                        3,
                        2,
                        1.5f,
                        chosen,
                        weight,
                        {},
                        {}});
  BOOST_TEST(get(chosen, 2) == (ints{2, 1}), boost::test_tools::per_element());
  BOOST_TEST(m.get(dev_ptr<const float>(weight), 2) == (std::vector<float>{0, 0}), boost::test_tools::per_element());
}

// |dot| is taken as at least 1e-6: the root of a tiny dot is 1e-3, with its
// sign.
BOOST_AUTO_TEST_CASE(engram_gate_of_tiny_products) {
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> trunk(32, 0.0f), kv(64, 0.0f), w(32, 1.0f);
    trunk[0] = 1;
    kv[0] = 1;
    w[0] = sign * 1e-9f;
    kv[32 + 5] = 1; // the value adds the gate itself to channel 5
    const auto S = m.put(trunk);
    d->ops().engram_gate(*m.s, {S, m.put(kv), m.put(w), 1, 1, 32, 1e-20f});
    const double want = 1 / (1 + std::exp(-static_cast<double>(sign) * 1e-3));
    BOOST_TEST(std::fabs(static_cast<double>(m.get(dev_ptr<const float>(S), 32)[5]) - want) < 1e-7);
  }
}

// Rows that are more than a ring ahead of the sequence's end write nothing:
// parts of a call may run in any order.
BOOST_AUTO_TEST_CASE(ring_keeps_the_last_rows_in_any_order_of_work) {
  constexpr std::int32_t rows = 10, entries = 4, start = 6;
  ints position;
  std::vector<float> x;
  for (std::int32_t i = 0; i < rows; ++i) {
    position.push_back(start + i);
    x.push_back(static_cast<float>(start + i));
  }
  const auto z = m.put(ints(rows, 0)), p = m.put(position);
  const row_map map{rows, 1, rows, p, z, p, p, z, m.put(ints{rows}), m.put(ints{start}), z, z, 0};
  const auto ring = m.room<float>(entries);
  const ring_commit_args a{
      map, m.put(x).as<const std::byte>(), {ring.as<std::byte>(), 4 * entries, entries, 1, kv_format::f32}};
  for (int i = rows - 1; i >= 0; --i)
    reference::ring_commit(a, i, i + 1);
  BOOST_TEST(m.get(dev_ptr<const float>(ring), entries) == (std::vector<float>{12, 13, 14, 15}),
             boost::test_tools::per_element());
}

// Positions that the ring no longer holds are no keys, whatever the row map
// asks for.
BOOST_AUTO_TEST_CASE(attention_reads_no_position_that_the_ring_lost) {
  constexpr std::int32_t dim = 32, entries = 3, start = 20;
  const auto z = m.put(ints{0}), at = m.put(ints{start});
  std::vector<float> ring(entries * dim, 4.0f), own(dim, 8.0f); // three old keys and the row's own: mean 5
  const auto out = m.room<float>(dim);
  const row_map map{1, 1, 1, at, z, z, m.put(ints{start + 50}), z, m.put(ints{1}), at, z, z, 0};
  d->ops().attention(*m.s, {map,
                            1,
                            dim,
                            0.0f,
                            m.put(std::vector<float>(dim, 1.0f)),
                            m.put(own).as<const std::byte>(),
                            {m.put(ring).as<std::byte>(), 0, entries, dim, kv_format::f32},
                            {},
                            {},
                            0,
                            m.put(std::vector<float>{-inf}),
                            out});
  BOOST_TEST(m.get(dev_ptr<const float>(out), dim) == std::vector<float>(dim, 5.0f), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
