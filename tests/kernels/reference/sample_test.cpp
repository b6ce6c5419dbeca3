#include "kernels/reference/sample.hpp"

#include "kernels/plain/sample.hpp"
#include "runtime/base/noise.hpp"

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

using namespace troupe;

namespace {

using pairs = std::vector<std::pair<std::int32_t, float>>;
constexpr float inf = std::numeric_limits<float>::infinity();

const std::vector<float> x{2, 1, .5f, .5f, -1, -3, .5f, 0};
const std::vector<float> d{1.5f, 1.25f, .75f, 0, -1, -2, .5f, .25f};

std::uint32_t bits(float v) {
  return std::bit_cast<std::uint32_t>(v);
}

sample_result sample(const sample_args& a, pairs* top = nullptr) {
  sample_scratch scratch(a.logits.size());
  if (top != nullptr)
    top->assign(static_cast<std::size_t>(a.top_logprobs), {-7, 7.0f});
  return sample_row(a, scratch, top != nullptr ? std::span{*top} : std::span<std::pair<std::int32_t, float>>{});
}

std::vector<std::int32_t> tokens(sample_args a, std::uint64_t from, std::uint64_t to) {
  std::vector<std::int32_t> out;
  for (a.position = from; a.position <= to; ++a.position)
    out.push_back(sample(a).token);
  return out;
}

std::vector<std::int32_t> kept(const sample_args& a, std::uint64_t* mass = nullptr) {
  sample_scratch scratch(a.logits.size());
  std::vector<std::uint64_t> w(a.logits.size(), 99);
  BOOST_REQUIRE(kept_weights(a, scratch, w) == sample_status::ok);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < w.size(); ++i)
    if (w[i] != 0)
      ids.push_back(static_cast<std::int32_t>(i));
  if (mass != nullptr)
    *mass = std::accumulate(w.begin(), w.end(), std::uint64_t{0});
  return ids;
}

using ids = std::vector<std::int32_t>;

std::vector<float> random_row(std::uint64_t key, std::size_t n, float spread, bool coarse) {
  std::vector<float> row(n);
  for (std::size_t i = 0; i < n; ++i) {
    const philox_words w = philox(key, static_cast<std::uint32_t>(i), 1, 2, 3);
    const float u = static_cast<float>(w.w[0]) * 0x1p-32f - 0.5f, v = static_cast<float>(w.w[1]) * 0x1p-32f - 0.5f;
    row[i] = spread * (u + v);
    if (coarse) // many exact ties, zeros of both signs
      row[i] = std::round(row[i] * 2) / 2;
  }
  return row;
}

// exactness.md §4-5 word by word: whole vocabulary sorted, every definition applied to every id.
struct oracle_result {
  std::int32_t token = -1;
  float logprob = 0;
  pairs top;
};
oracle_result oracle(const sample_args& a) {
  __extension__ typedef unsigned __int128 wide;
  const std::size_t n = a.logits.size();
  std::vector<float> row(a.logits.begin(), a.logits.end());
  for (auto [id, b] : a.logit_bias)
    row[static_cast<std::size_t>(id)] = row[static_cast<std::size_t>(id)] + b;
  std::set<std::int32_t> gone(a.blacklist.begin(), a.blacklist.end());
  for (std::size_t i = 0; !a.mask.empty() && i < n; ++i)
    if (!(a.mask[i / 32] & (1u << (i % 32))))
      gone.insert(static_cast<std::int32_t>(i));
  std::set<std::int32_t> all = gone;
  all.insert(a.suppressed.begin(), a.suppressed.end());
  for (const std::int32_t id : all.size() < n ? all : gone)
    row[static_cast<std::size_t>(id)] = -inf;

  const auto sorted = [n](const std::vector<float>& r) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return r[i] > r[j]; });
    return order;
  };
  const bool greedy = double{a.temperature} < 1e-5;
  const double t = greedy ? 1.0 : double{a.temperature};
  std::vector<std::size_t> order = sorted(row);
  const double zmax = double{row[order[0]]} / t;
  std::vector<std::uint64_t> w(n);
  wide m = 0;
  for (std::size_t i = 0; i < n; ++i)
    m += w[i] = exact_mass(double{row[i]} / t - zmax);
  std::set<std::size_t> keep;
  wide before = 0;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const std::size_t i = order[rank];
    bool ok = row[i] > -inf && (!greedy || rank == 0);
    if (!greedy && a.top_k >= 1)
      ok = ok && rank < static_cast<std::size_t>(a.top_k);
    if (!greedy && a.top_p < 1)
      ok = ok && before <= wide(std::floor(double{a.top_p} * 4294967296.0)) * m / 4294967296u;
    if (!greedy && a.min_p > 0)
      ok = ok && double(w[i]) >= std::floor(double{a.min_p} * 17592186044416.0);
    if (!ok && rank > 0)
      break;
    keep.insert(i);
    before += w[i];
  }
  oracle_result out;
  double best = -std::numeric_limits<double>::infinity();
  for (const std::size_t i : keep) {
    const double score = double{row[i]} / t + (greedy ? 0 : gumbel(a.seed, a.position, static_cast<std::uint32_t>(i)));
    if (score > best) {
      best = score;
      out.token = static_cast<std::int32_t>(i);
    }
  }
  if (a.forced >= 0)
    out.token = a.forced;
  std::vector<float> lp(n, -9999.0f);
  if (a.processed) {
    wide mass = 0;
    for (const std::size_t i : keep)
      mass += w[i];
    for (const std::size_t i : keep)
      lp[i] = static_cast<float>((double{row[i]} / t - zmax) -
                                 exact_ln(double(static_cast<std::uint64_t>(mass)) * 0x1p-44));
  } else {
    order = sorted({a.logits.begin(), a.logits.end()});
    const double top = double{a.logits[order[0]]};
    wide mass = 0;
    for (const float v : a.logits)
      mass += exact_mass(double{v} - top);
    for (std::size_t i = 0; i < n; ++i)
      lp[i] = static_cast<float>((double{a.logits[i]} - top) -
                                 exact_ln(double(static_cast<std::uint64_t>(mass)) * 0x1p-44));
  }
  for (float& v : lp)
    v = v < -9999.0f ? -9999.0f : v;
  out.logprob = lp[static_cast<std::size_t>(out.token)];
  if (a.processed) // kept ids in order, then the rest by id
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
      const bool ki = keep.contains(i), kj = keep.contains(j);
      return ki != kj ? ki : !ki && i < j;
    });
  for (std::size_t k = 0; k < static_cast<std::size_t>(a.top_logprobs) && k < n; ++k)
    out.top.emplace_back(static_cast<std::int32_t>(order[k]), lp[order[k]]);
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(sample_vectors)

BOOST_AUTO_TEST_CASE(t3_plain_draws) {
  const sample_args of_x{.logits = x, .seed = 42};
  BOOST_TEST(tokens(of_x, 100, 109) == (ids{0, 4, 7, 6, 6, 3, 0, 0, 1, 0}));
  sample_args at100 = of_x;
  at100.position = 100;
  BOOST_TEST(bits(sample(at100).logprob) == 0xbf4d3669u);
  BOOST_TEST(tokens({.logits = d, .seed = 42}, 100, 107) == (ids{0, 4, 7, 6, 6, 3, 6, 6}));
}

BOOST_AUTO_TEST_CASE(t4_filters) {
  sample_args a{.logits = x, .temperature = .7f, .top_p = .9f, .seed = 42, .processed = true};
  std::uint64_t mass = 0;
  BOOST_TEST(kept(a, &mass) == (ids{0, 1, 2, 3, 6}));
  BOOST_TEST(mass == 27999873124232u);
  BOOST_TEST(tokens(a, 100, 105) == (ids{0, 1, 0, 6, 6, 3}));
  a.position = 100;
  BOOST_TEST(bits(sample(a).logprob) == 0xbeedf314u);
  a.position = 101;
  BOOST_TEST(bits(sample(a).logprob) == 0xbff25833u);
  BOOST_TEST(kept({.logits = x, .temperature = 1.5f, .min_p = .2f}) == (ids{0, 1, 2, 3, 6, 7}));
  BOOST_TEST(kept({.logits = x, .temperature = .7f, .top_p = .8f, .top_k = 2}) == (ids{0, 1}));
  kept({.logits = x, .temperature = .7f}, &mass);
  BOOST_TEST(mass == 29266279928594u);
  plain::sample_view view;
  view.top_p = .9f;
  BOOST_TEST(plain::top_p_limit(view, mass) == 26339651237972u);
}

BOOST_AUTO_TEST_CASE(t5_mass_before_may_equal_the_limit) {
  const std::vector<float> equal(4, 1.5f);
  for (const auto& [p, n] : {std::pair{.25f, 2}, {.5f, 3}, {.51f, 3}, {.75f, 4}}) {
    ids want(static_cast<std::size_t>(n));
    std::iota(want.begin(), want.end(), 0);
    BOOST_TEST(kept({.logits = equal, .top_p = p}) == want);
  }
}

BOOST_AUTO_TEST_CASE(t6_raw_logprobs) {
  const std::uint32_t want[] = {0xbf4d3669, 0xbfe69b34, 0xc0134d9a, 0xc0134d9a,
                                0xc0734d9a, 0xc0b9a6cd, 0xc0134d9a, 0xc0334d9a};
  for (std::int32_t i = 0; i < 8; ++i) {
    BOOST_TEST(bits(row_logprob(x, i).logprob) == want[i]);
    BOOST_TEST(bits(sample({.logits = x, .temperature = .3f, .top_k = 1, .forced = i}).logprob) == want[i]);
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(sample_properties)

// Every combination of settings on random rows, with and without ties, against the sorted definition.
BOOST_AUTO_TEST_CASE(equals_the_sorted_definition) {
  int differing_from_argmax = 0, cases = 0, masked_alone = 0;
  for (std::uint64_t round = 0; round < 1500; ++round) {
    const philox_words r = philox(77, static_cast<std::uint32_t>(round), 0, 0, 0);
    const philox_words s = philox(78, static_cast<std::uint32_t>(round), 0, 0, 0);
    const std::size_t n = round % 50 == 0 ? 8192 : 1 + r.w[0] % 700;
    std::vector<float> row = random_row(round, n, std::ldexp(4.0f, static_cast<int>(r.w[1] % 5)), round % 3 == 0);
    if (round % 7 == 0)
      for (std::size_t i = 0; i + 1 < n; i += 2)
        row[i] = -inf;
    const float temperatures[] = {1, 0, .7f, .05f, 3, 1e-4f}, shares[] = {1, .9f, .5f, .999f},
                floors[] = {0, 0, .05f, .5f};
    const std::int32_t ks[] = {-1, 1, 5, 300, 100000};
    sample_args a{.logits = row,
                  .temperature = temperatures[r.w[2] % 6],
                  .top_p = shares[r.w[3] % 4],
                  .top_k = ks[s.w[0] % 5],
                  .min_p = floors[s.w[1] % 4],
                  .seed = round * 1234567,
                  .position = round};
    const auto any = [&](std::uint32_t k) {
      return static_cast<std::int32_t>(philox(79, k, static_cast<std::uint32_t>(round), 0, 0).w[0] % n);
    };
    std::vector<std::pair<std::int32_t, float>> bias;
    ids black, quiet;
    std::vector<std::uint32_t> mask;
    if (s.w[2] % 3 == 0) {
      bias = {{any(0), 3.5f}};
      a.logit_bias = bias;
    }
    if (s.w[2] % 5 == 0 && n > 4) {
      black = {any(1), any(2)};
      a.blacklist = black;
    }
    if (s.w[2] % 7 < 3) { // words half full, or mostly empty, or mostly full
      for (std::size_t i = 0; i < (n + 31) / 32; ++i) {
        const philox_words w = philox(80, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(round), 0, 0);
        const bool mixed = s.w[2] % 7 == 0 || w.w[1] % 8 == 0;
        mask.push_back(mixed ? w.w[0] : s.w[2] % 7 == 1 ? 0u : ~0u);
      }
      a.mask = mask;
      masked_alone += a.logit_bias.empty() && a.blacklist.empty() && s.w[2] % 2 != 0 ? 1 : 0;
    }
    if (s.w[2] % 2 == 0) {
      quiet = {any(3), any(4)};
      a.suppressed = quiet;
    }
    if (s.w[3] % 6 == 0)
      a.forced = any(5);
    a.processed = s.w[3] % 2 == 0;
    const std::int32_t lists[] = {0, 1, 5, 40};
    a.top_logprobs = lists[(s.w[3] >> 8) % 4];
    pairs top;
    const sample_result got = sample(a, &top);
    if (got.status == sample_status::nothing_left)
      continue; // everything masked: tested below
    BOOST_REQUIRE(got.status == sample_status::ok);
    const oracle_result want = oracle(a);
    BOOST_REQUIRE_MESSAGE(got.token == want.token, "round " << round);
    BOOST_REQUIRE_MESSAGE(bits(got.logprob) == bits(want.logprob), "round " << round);
    top.resize(static_cast<std::size_t>(got.top));
    BOOST_REQUIRE_EQUAL(top.size(), want.top.size());
    for (std::size_t k = 0; k < top.size(); ++k) {
      BOOST_REQUIRE_MESSAGE(top[k].first == want.top[k].first, "round " << round << " entry " << k);
      BOOST_REQUIRE_EQUAL(bits(top[k].second), bits(want.top[k].second));
    }
    differing_from_argmax += want.token != std::max_element(row.begin(), row.end()) - row.begin();
    ++cases;
  }
  BOOST_TEST(cases > 1300);
  BOOST_TEST(masked_alone > 120);
  BOOST_TEST(differing_from_argmax > 300);
}

BOOST_AUTO_TEST_CASE(greedy_takes_the_lowest_id_of_a_tie) {
  const std::vector<float> row{-1, 3, 3, -0.0f, 3};
  for (const float t : {0.0f, 1e-6f, 9.9e-6f})
    BOOST_TEST(sample({.logits = row, .temperature = t, .seed = 5}).token == 1);
  const std::vector<float> zeros{-1, -0.0f, 0.0f, -0.0f};
  BOOST_TEST(sample({.logits = zeros, .temperature = 0}).token == 1);
  pairs top;
  sample({.logits = zeros, .temperature = 0, .top_logprobs = 4}, &top);
  BOOST_TEST(top[0].first == 1);
  BOOST_TEST(top[1].first == 2);
  BOOST_TEST(top[2].first == 3);
  BOOST_TEST(top[3].first == 0);
  BOOST_TEST(kept({.logits = zeros, .top_k = 2}) == (ids{1, 2}));
}

BOOST_AUTO_TEST_CASE(small_temperature_and_top_k_1_equal_argmax) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> row = random_row(seed, 500, 8, false);
    const auto best = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    BOOST_REQUIRE_EQUAL(sample({.logits = row, .temperature = 2e-5f, .seed = seed, .position = 9}).token, best);
    BOOST_REQUIRE_EQUAL(sample({.logits = row, .temperature = 5, .top_k = 1, .seed = seed, .position = 9}).token, best);
    BOOST_REQUIRE_EQUAL(sample({.logits = row, .temperature = 5, .min_p = 1, .seed = seed, .position = 9}).token, best);
  }
}

BOOST_AUTO_TEST_CASE(stricter_filters_keep_subsets) {
  const std::vector<float> row = random_row(3, 2000, 12, true);
  const auto inside = [](const ids& a, const ids& b) { return std::includes(b.begin(), b.end(), a.begin(), a.end()); };
  ids wide_p = kept({.logits = row}), wide_k = wide_p, wide_m = wide_p;
  for (int i = 1; i < 40; ++i) {
    const auto f = static_cast<float>(i) / 40;
    const ids p = kept({.logits = row, .top_p = 1 - f}), k = kept({.logits = row, .top_k = 2000 - 50 * i}),
              m = kept({.logits = row, .min_p = f});
    BOOST_TEST(inside(p, wide_p));
    BOOST_TEST(inside(k, wide_k));
    BOOST_TEST(inside(m, wide_m));
    BOOST_TEST(k.size() == static_cast<std::size_t>(2000 - 50 * i));
    wide_p = p, wide_k = k, wide_m = m;
  }
  BOOST_TEST(wide_p.size() < 100u);
}

// Chi square of counts against shares that sum to 1.
double chi_square(const std::vector<double>& counts, const std::vector<double>& shares) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    sum += (counts[i] - n * shares[i]) * (counts[i] - n * shares[i]) / (n * shares[i]);
  return sum;
}

// Shares of the ids that a kept set of x holds.
std::vector<double> shares_of(float temperature, float top_p) {
  sample_scratch scratch(x.size());
  std::vector<std::uint64_t> w(x.size());
  BOOST_REQUIRE(kept_weights({.logits = x, .temperature = temperature, .top_p = top_p}, scratch, w) ==
                sample_status::ok);
  const double all = static_cast<double>(std::accumulate(w.begin(), w.end(), std::uint64_t{0}));
  std::vector<double> shares;
  for (const std::uint64_t mass : w)
    if (mass != 0)
      shares.push_back(static_cast<double>(mass) / all);
  return shares;
}

// A million draws with fixed seeds over the positions of one request, and a million over the seeds of one position: the
// frequencies are those of the kept mass, and what was drawn before says nothing about the next.
BOOST_AUTO_TEST_CASE(frequencies_follow_the_mass_and_neighbours_are_independent) {
  const std::vector<double> want = shares_of(.7f, .9f); // ids 0 1 2 3 6 (T4)
  BOOST_REQUIRE(want.size() == 5u);
  std::vector<double> pair_shares;
  for (const double a : want)
    for (const double b : want)
      pair_shares.push_back(a * b);
  for (const bool over_positions : {true, false}) {
    sample_scratch scratch(x.size());
    std::vector<double> counts(5), neighbours(25);
    std::size_t before = 5;
    for (std::uint64_t i = 0; i < 1000000; ++i) {
      const std::int32_t token = sample_row({.logits = x,
                                             .temperature = .7f,
                                             .top_p = .9f,
                                             .seed = over_positions ? 42 : i,
                                             .position = over_positions ? i : 42,
                                             .logprob = false},
                                            scratch)
                                     .token;
      const std::size_t at = token == 6 ? 4 : static_cast<std::size_t>(token);
      BOOST_REQUIRE(at < 5u);
      ++counts[at];
      if (before < 5)
        ++neighbours[5 * before + at];
      before = at;
    }
    BOOST_TEST(chi_square(counts, want) < 18.47);                 // 99.9 % at 4 degrees of freedom
    BOOST_TEST(chi_square(neighbours, pair_shares) < 51.18);      // at 24
    BOOST_TEST(chi_square(counts, shares_of(.72f, .9f)) > 18.47); // fine enough to see a temperature 3 % off
  }
}

BOOST_AUTO_TEST_CASE(unusable_rows_are_reported) {
  for (std::size_t n : {1u, 5u, 64u, 200u})
    for (std::size_t at = 0; at < n; at += 3) {
      std::vector<float> row(n, 1.0f);
      row[at] = std::numeric_limits<float>::quiet_NaN();
      BOOST_REQUIRE(sample({.logits = row}).status == sample_status::not_a_number);
      row[at] = inf;
      BOOST_REQUIRE(sample({.logits = row, .temperature = 0}).status == sample_status::positive_infinity);
      BOOST_REQUIRE(row_logprob(row, 0).status == sample_status::positive_infinity);
    }
  const std::vector<float> nothing(70, -inf);
  BOOST_TEST((sample({.logits = nothing}).status == sample_status::nothing_left));
  const ids everything{0, 1, 2, 3, 4, 5, 6, 7};
  BOOST_TEST((sample({.logits = x, .blacklist = everything}).status == sample_status::nothing_left));
  const pairs bias{{0, 3e38f}};
  const std::vector<float> large(3, 3e38f);
  BOOST_TEST((sample({.logits = large, .logit_bias = bias}).status == sample_status::positive_infinity));
  BOOST_TEST(std::string{describe(sample_status::not_a_number)}.find("NaN") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(suppression_yields_when_nothing_else_is_left) {
  const ids end{0, 1}, rest{2, 3, 4, 5, 6, 7};
  BOOST_TEST(sample({.logits = x, .temperature = 0, .suppressed = end}).token == 2);
  BOOST_TEST(sample({.logits = x, .temperature = 0, .blacklist = rest, .suppressed = end}).token == 0);
  const std::vector<std::uint32_t> only1{2};
  BOOST_TEST(sample({.logits = x, .temperature = 0, .mask = only1, .suppressed = end}).token == 1);
}

// What a mask forbids stays forbidden whatever its bias; what it allows takes its bias, and the blacklist wins over
// both.
BOOST_AUTO_TEST_CASE(bias_does_not_open_what_a_mask_forbids) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::uint32_t> all_but_0{0xfe}, only_0_and_3{0x09};
  for (const float b : {inf, nan, 1e30f, -inf}) {
    const std::vector<std::pair<std::int32_t, float>> bias{{0, b}};
    BOOST_TEST(sample({.logits = x, .temperature = 0, .logit_bias = bias, .mask = all_but_0}).token == 1);
  }
  const std::vector<std::pair<std::int32_t, float>> up{{3, 5}, {2, 100}};
  BOOST_TEST(sample({.logits = x, .temperature = 0, .logit_bias = up, .mask = only_0_and_3}).token == 3);
  const ids three{3};
  BOOST_TEST(
      sample({.logits = x, .temperature = 0, .logit_bias = up, .blacklist = three, .mask = only_0_and_3}).token == 0);
  const std::vector<std::pair<std::int32_t, float>> overflow{{3, inf}};
  BOOST_TEST(int(sample({.logits = x, .logit_bias = overflow, .mask = only_0_and_3}).status) ==
             int(sample_status::positive_infinity));
}

// A row that cannot be used is told by all its numbers, forbidden ones too; what is forbidden never wins, nor stands
// for an equal that comes later.
BOOST_AUTO_TEST_CASE(masks_hide_numbers_from_draws_and_not_from_checks) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::uint32_t> not_1{~2u, ~0u, ~0u};
  for (const std::size_t n : {2u, 33u, 64u, 65u, 70u}) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> row(n, .5f);
      row[1] = 9;
      row[at] += 1;
      const auto highest = static_cast<std::int32_t>(at == 1 ? 0 : at);
      const sample_args a{.logits = row, .temperature = 0, .mask = not_1};
      BOOST_REQUIRE_EQUAL(sample(a).token, highest);
      row[at] = nan;
      BOOST_REQUIRE(sample(a).status == sample_status::not_a_number);
      row[at] = inf;
      BOOST_REQUIRE(sample(a).status == sample_status::positive_infinity);
    }
    std::vector<float> row(n, -inf);
    row[1] = 9;
    BOOST_REQUIRE(sample({.logits = row, .temperature = 0, .mask = not_1}).status == sample_status::nothing_left);
    row[1] = -inf;
    BOOST_REQUIRE(sample({.logits = row, .temperature = 0, .mask = not_1}).status == sample_status::nothing_left);
  }
  const std::vector<float> twins{3, 1, 3, 3};
  const std::vector<std::uint32_t> last_two{0xc};
  BOOST_TEST(sample({.logits = twins, .temperature = 0, .mask = last_two}).token == 2);
  pairs top; // of the model's own row: no mask; of what was drawn from: forbidden ones last
  const sample_result own = sample({.logits = twins, .temperature = 0, .mask = last_two, .top_logprobs = 4}, &top);
  BOOST_TEST(top[0].first == 0);
  BOOST_TEST(bits(own.logprob) == bits(top[0].second));
  sample({.logits = twins, .mask = last_two, .processed = true, .top_logprobs = 4}, &top);
  BOOST_TEST((top == pairs{{2, top[0].second}, {3, top[0].second}, {0, -9999.0f}, {1, -9999.0f}}));
  BOOST_TEST(std::abs(top[0].second + std::log(2.0f)) < 1e-6f);
}

BOOST_AUTO_TEST_CASE(processed_greedy_is_certain) {
  pairs top;
  const sample_result r = sample({.logits = x, .temperature = 0, .processed = true, .top_logprobs = 3}, &top);
  BOOST_TEST(r.logprob == 0.0f);
  BOOST_TEST((top == pairs{{0, 0.0f}, {1, -9999.0f}, {2, -9999.0f}}));
  BOOST_TEST(sample({.logits = x, .temperature = 0, .forced = 4, .processed = true}).logprob == -9999.0f);
}

BOOST_AUTO_TEST_CASE(logprobs_have_a_floor) {
  const std::vector<float> row{0, -20000, -inf};
  BOOST_TEST(row_logprob(row, 0).logprob == 0.0f);
  BOOST_TEST(row_logprob(row, 1).logprob == -9999.0f);
  BOOST_TEST(row_logprob(row, 2).logprob == -9999.0f);
}

// Logits so large that sums with the noise round: the shortcut over losing ids must not change ties.
BOOST_AUTO_TEST_CASE(huge_logits_match_the_definition) {
  for (std::uint64_t round = 0; round < 60; ++round) {
    std::vector<float> row = random_row(round, 300, 1, false);
    for (float& v : row)
      v = std::ldexp(1.0f + std::ldexp(std::round(v * 8), -23), 20 + static_cast<int>(round));
    sample_args a{.logits = row, .temperature = round % 2 == 0 ? 1.0f : 2e-5f, .seed = round};
    for (a.position = 0; a.position < 20; ++a.position)
      BOOST_REQUIRE_EQUAL(sample(a).token, oracle(a).token);
  }
}

BOOST_AUTO_TEST_SUITE_END()
