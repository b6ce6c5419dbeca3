// Query rows apart from key rows: some of a step's rows, in any order, get the bits that they get among all of them
// (exactness.md §2; context-parallel ranks compute such shares).
#include "tests/support/gpu.hpp"
#include "tests/support/row_cases.hpp"
#include "tests/support/sanitizers.hpp"
#include <numeric>

using namespace troupe;
using namespace troupe::row_cases;

namespace {

using ints = std::vector<std::int32_t>;

template <class T> std::vector<T> taken(const std::vector<T>& of, std::span<const int> rows, std::int64_t each) {
  std::vector<T> out;
  for (const int r : rows)
    out.insert(out.end(), of.begin() + r * each, of.begin() + (r + 1) * each);
  return out;
}

// Three sequences somewhere in their lives; slot s + 1 belongs to sequence s.
struct made_step {
  static constexpr int sequences = 3, table = 4, entries = 64;
  int rows = 0;
  ints position, sequence, low, first, count, start, slot, blocks, visible;

  explicit made_step(numbers n, int window) {
    for (int s = 0; s < sequences; ++s) {
      first.push_back(rows);
      count.push_back(n.between(1, 40));
      start.push_back(n.below(3) == 0 ? 0 : n.below(300));
      slot.push_back(s + 1);
      for (int i = 0; i < count.back(); ++i) {
        position.push_back(start.back() + i);
        sequence.push_back(s);
        low.push_back(std::max(position.back() - window + 1, 0));
        visible.push_back((position.back() + 1) / 2);
      }
      rows += count.back();
      for (int b = 0; b < table; ++b)
        blocks.push_back(1 + s * table + (b ^ 1));
    }
  }
  row_map map(arena& m, std::span<const int> of) const {
    const auto p = m.put(taken(position, of, 1));
    return {static_cast<std::int32_t>(of.size()),
            sequences,
            rows,
            p,
            m.put(taken(sequence, of, 1)),
            m.put(taken(low, of, 1)),
            p,
            m.put(first),
            m.put(count),
            m.put(start),
            m.put(slot),
            m.put(blocks),
            table};
  }
};

row_bits attention_of(device& d, std::uint64_t seed, std::span<const int> of) {
  arena m(d);
  numbers n(seed, 1);
  const int heads = n.between(1, 20), dim = 32 * n.between(1, 3), window = n.between(1, 50), topk = n.between(1, 30);
  const made_step step(numbers(seed, 2), window);
  const auto f = n.below(2) == 0 ? kv_format::fp8_ue8m0_32 : kv_format::f32;
  const auto records = [&](std::int64_t count, kv_format format) {
    const auto out = m.room<std::byte>(static_cast<std::size_t>(count * record_bytes(format, dim)));
    d.ops().encode(*m.s, {m.put(n.reals(count * dim)), static_cast<std::int32_t>(count), dim, format, out});
    return out;
  };
  attention_args a;
  a.map = step.map(m, of);
  a.heads = heads;
  a.dim = dim;
  a.scale = 0.2f;
  const int ring = window + n.below(9);
  a.ring = {records(std::int64_t{ring} * (step.sequences + 1), f), ring * record_bytes(f, dim), ring, dim, f};
  const auto main = kv_format::fp8_ue8m0_32;
  const int blocks = 1 + step.sequences * step.table;
  a.blocks = {records(std::int64_t{blocks} * step.entries, main), step.entries * record_bytes(main, dim), step.entries,
              dim, main};
  a.own = records(step.rows, f);
  ints selected;
  for (const auto seen : step.visible)
    for (int j = 0; j < topk; ++j)
      selected.push_back(j * 3 < seen ? j * 3 : -1);
  if (n.below(3) != 0) {
    a.selected = m.put(taken(selected, of, topk));
    a.topk = topk;
  }
  const auto q = n.reals(std::int64_t{step.rows} * heads * dim);
  a.q = m.put(taken(q, of, std::int64_t{heads} * dim));
  a.sink = m.put(n.reals(heads));
  const auto out = m.room<float>(of.size() * static_cast<std::size_t>(heads * dim));
  a.out = out;
  d.ops().attention(*m.s, a);
  row_bits o(of.size());
  add_words(m, o, out, static_cast<std::size_t>(heads * dim));
  return o;
}

row_bits index_scores_of(device& d, std::uint64_t seed, std::span<const int> of) {
  arena m(d);
  numbers n(seed, 3);
  const int heads = n.between(1, 20), dim = 32 * n.between(1, 4), stride = 176;
  const made_step step(numbers(seed, 4), 8);
  const auto f = kv_format::fp4_ue8m0_32;
  const int keys = (1 + step.sequences * step.table) * step.entries;
  index_scores_args a;
  const auto stored = m.room<std::byte>(static_cast<std::size_t>(keys * record_bytes(f, dim)));
  d.ops().encode(*m.s, {m.put(n.reals(std::int64_t{keys} * dim)), keys, dim, f, stored});
  a.map = step.map(m, of);
  a.count = static_cast<std::int32_t>(of.size());
  a.heads = heads;
  a.dim = dim;
  a.q = m.put(taken(n.reals(std::int64_t{step.rows} * heads * dim), of, std::int64_t{heads} * dim));
  a.a = m.put(taken(n.reals(std::int64_t{step.rows} * heads), of, heads));
  a.keys = {stored, step.entries * record_bytes(f, dim), step.entries, dim, f};
  a.visible = m.put(taken(step.visible, of, 1));
  a.stride = stride;
  const auto scores = m.room<float>(of.size() * stride);
  a.scores = scores;
  d.ops().index_scores(*m.s, a);
  row_bits o(of.size());
  add_words(m, o, scores, stride);
  return o;
}

row_bits engram_rows_of(device& d, std::uint64_t seed, std::span<const int> of) {
  arena m(d);
  numbers n(seed, 5);
  const made_step step(numbers(seed, 6), 8);
  const int heads = 2, ngram = 4, hashes = (ngram - 1) * heads;
  ints tokens, history, token_map;
  for (int i = 0; i < 100; ++i)
    token_map.push_back(n.below(60));
  for (int i = 0; i < step.rows; ++i)
    tokens.push_back(n.below(100));
  for (int i = 0; i < step.sequences * (ngram - 1); ++i)
    history.push_back(n.between(-1, 99));
  const std::vector<std::int64_t> multipliers{12345677, 987654323, 555555559, 77777771};
  const std::vector<std::int64_t> primes{101, 1009, 10007, 103, 1013, 10009},
      offsets{0, 1000, 3000, 20000, 21000, 23000};
  const auto out = m.room<std::int64_t>(of.size() * hashes);
  d.ops().engram_rows(*m.s, {step.map(m, of), m.put(tokens), m.put(history), m.put(token_map), 7, ngram, heads,
                             m.put(multipliers), m.put(primes), m.put(offsets), out});
  row_bits o(of.size());
  add_words(m, o, out, static_cast<std::size_t>(hashes));
  return o;
}

void check_shares(const std::string& name, int threads) {
  if (!test::can_run(name))
    return;
  const auto d = make_device(name, {threads, {}}), oracle = make_device("reference", {});
  using call = row_bits (*)(device&, std::uint64_t, std::span<const int>);
  const std::array<std::pair<call, std::uint32_t>, 3> calls{
      {{attention_of, 2u}, {index_scores_of, 4u}, {engram_rows_of, 6u}}};
  for (const auto& [run, tag] : calls)
    for (std::uint64_t seed = 0; seed < test::by_build(25u, 4u, 4u); ++seed) {
      numbers n(seed, 7);
      std::vector<int> every(static_cast<std::size_t>(made_step(numbers(seed, tag), 1).rows));
      std::iota(every.begin(), every.end(), 0);
      const row_bits all = run(*oracle, seed, every);
      std::vector<int> share; // stretches of rows that go up, then some anywhere
      for (std::size_t at = 0; at < every.size(); at += static_cast<std::size_t>(n.between(1, 12)))
        for (const std::size_t end = std::min(every.size(), at + static_cast<std::size_t>(n.below(10))); at < end; ++at)
          share.push_back(every[at]);
      for (int i = 0; i < 5; ++i)
        share.push_back(n.below(static_cast<int>(every.size())));
      const row_bits got = run(*d, seed, share);
      for (std::size_t i = 0; i < share.size(); ++i)
        BOOST_REQUIRE_MESSAGE(got[i] == all[static_cast<std::size_t>(share[i])],
                              name << " operation " << tag / 2 << " seed " << seed << " row " << share[i]);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(query_rows)

BOOST_AUTO_TEST_CASE(a_share_of_the_rows_has_the_bits_of_all_rows) {
  check_shares("reference", 1);
  check_shares("cpu", 1);
  check_shares("cpu", 3);
}
BOOST_AUTO_TEST_CASE(a_share_on_a_gpu) {
  check_shares("cuda-reference", 1);
}

BOOST_AUTO_TEST_SUITE_END()
