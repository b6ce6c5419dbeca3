#include "kernels/reference/sample.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/noise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

// The two passes over the vocabulary get one clone per instruction set; without contraction all give the same bits.
// Sanitizers do not support the start-up resolver that clones need.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&                \
    !defined(__SANITIZE_ADDRESS__)
#define TROUPE_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define TROUPE_CLONES
#endif

namespace troupe {

namespace {

__extension__ typedef unsigned __int128 u128;

constexpr float minus_inf = -std::numeric_limits<float>::infinity();
constexpr float lowest_logprob = -9999.0f;
constexpr std::uint64_t full_mass = std::uint64_t{1} << mass_bits;
constexpr std::size_t block = 64; // constant trip count: the compiler vectorises without a remainder loop

struct row_extent {
  float max = minus_inf;
  bool unusable = false; // a NaN or +inf somewhere
};

TROUPE_CLONES row_extent extent_of(const float* x, std::size_t n) {
  float lane[block];
  std::uint32_t bad[block];
  for (std::size_t j = 0; j < block; ++j) {
    lane[j] = minus_inf;
    bad[j] = 0;
  }
  std::size_t i = 0;
  for (; i + block <= n; i += block)
    for (std::size_t j = 0; j < block; ++j) {
      lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
      bad[j] |= x[i + j] <= std::numeric_limits<float>::max() ? 0u : 1u;
    }
  for (; i < n; ++i) {
    lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    bad[0] |= x[i] <= std::numeric_limits<float>::max() ? 0u : 1u;
  }
  row_extent e;
  for (std::size_t j = 0; j < block; ++j) {
    e.max = lane[j] > e.max ? lane[j] : e.max;
    e.unusable |= bad[j] != 0;
  }
  return e;
}

// Sum of MASS(x_i / t - top): integers, so the order does not matter.
TROUPE_CLONES std::uint64_t mass_of(const float* x, std::size_t n, double t, double top) {
  std::uint64_t sum[block] = {};
  std::size_t i = 0;
  for (; i + block <= n; i += block)
    for (std::size_t j = 0; j < block; ++j)
      sum[j] += exact_mass(static_cast<double>(x[i + j]) / t - top);
  for (; i < n; ++i)
    sum[0] += exact_mass(static_cast<double>(x[i]) / t - top);
  for (std::size_t j = 1; j < block; ++j)
    sum[0] += sum[j];
  return sum[0];
}

// Ascending keys = larger value first (-0 equals +0), then smaller id.
std::uint64_t key_of(float v, std::size_t id) {
  const std::uint32_t b = std::bit_cast<std::uint32_t>(v + 0.0f); // -0 becomes +0
  const std::uint32_t ascending = (b >> 31) != 0 ? ~b : b | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | id;
}
std::size_t id_of(std::uint64_t key) {
  return static_cast<std::size_t>(key & 0xffffffffu);
}

// Steps 1 and 2 on a copy of the row.
void bias_and_mask(const sample_args& a, std::span<float> x) {
  std::copy(a.logits.begin(), a.logits.end(), x.begin());
  const auto inside = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < x.size(); };
  for (const auto& [id, bias] : a.logit_bias)
    if (inside(id))
      x[static_cast<std::size_t>(id)] += bias;
  for (const std::int32_t id : a.blacklist)
    if (inside(id))
      x[static_cast<std::size_t>(id)] = minus_inf;
  if (!a.mask.empty())
    for (std::size_t i = 0; i < x.size(); ++i)
      if ((a.mask[i / 32] >> (i % 32) & 1u) == 0)
        x[i] = minus_inf;
}

// A row after step 3: what log-probabilities and draws are made of.
struct distribution {
  const float* x = nullptr;
  std::size_t n = 0;
  double t = 1;                               // divisor
  double top = 0;                             // largest z
  double ln_mass = 0;                         // LN of the kept mass / 2^44
  std::uint64_t last_key = ~std::uint64_t{0}; // of the last kept id

  double z(std::size_t i) const { return static_cast<double>(x[i]) / t; }
  bool kept(std::size_t i) const { return x[i] > minus_inf && key_of(x[i], i) <= last_key; }
  float logprob(std::size_t i) const {
    if (!kept(i))
      return lowest_logprob;
    const float lp = static_cast<float>((z(i) - top) - ln_mass);
    return lp < lowest_logprob ? lowest_logprob : lp;
  }
};

double ln_of_mass(std::uint64_t mass) {
  return exact_ln(static_cast<double>(mass) * 0x1p-44);
}

std::size_t argmax(const float* x, std::size_t n, float max) {
  for (std::size_t i = 0; i < n; ++i)
    if (x[i] == max)
      return i;
  return 0;
}

// The model's own distribution: T = 1, before bias and masks.
distribution raw_distribution(std::span<const float> logits, float max) {
  distribution d{logits.data(), logits.size()};
  d.top = static_cast<double>(max);
  d.ln_mass = ln_of_mass(mass_of(d.x, d.n, 1, d.top));
  return d;
}

// The first `count` entries of the order by key among keys[sorted, n) are put in place.
void sort_more(std::span<std::uint64_t> keys, std::size_t sorted, std::size_t count) {
  const auto from = keys.begin() + static_cast<std::ptrdiff_t>(sorted),
             to = keys.begin() + static_cast<std::ptrdiff_t>(count);
  if (to != keys.end())
    std::nth_element(from, to, keys.end());
  std::sort(from, to);
}

bool filters(const sample_args& a) {
  return a.top_p < 1 || a.min_p > 0 || a.top_k >= 1;
}

// Step 4. Returns the number of kept ids; their keys stand sorted at the front of `keys`, kept_mass is their sum.
// The order is built only as far as it is walked.
std::size_t keep(const sample_args& a, const distribution& d, std::span<std::uint64_t> keys, std::uint64_t& kept_mass) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < d.n; ++i)
    if (d.x[i] > minus_inf)
      keys[n++] = key_of(d.x[i], i);
  keys = keys.first(n);
  const std::size_t most = a.top_k >= 1 ? std::min(n, static_cast<std::size_t>(a.top_k)) : n;
  std::uint64_t limit = ~std::uint64_t{0};
  if (a.top_p < 1) {
    const auto share = static_cast<std::uint64_t>(static_cast<double>(a.top_p) * 0x1p32);
    limit = static_cast<std::uint64_t>((u128{share} * mass_of(d.x, d.n, d.t, d.top)) >> 32);
  }
  const auto least = static_cast<std::uint64_t>(static_cast<double>(a.min_p) * 0x1p44);
  std::size_t kept = 0, sorted = 0;
  kept_mass = 0;
  while (kept < most) {
    if (kept == sorted) {
      const std::size_t more = std::min(most, std::max<std::size_t>(64, 4 * sorted));
      sort_more(keys, sorted, more);
      sorted = more;
    }
    const std::uint64_t w = exact_mass(d.z(id_of(keys[kept])) - d.top);
    if (kept > 0 && (kept_mass > limit || w < least))
      break;
    kept_mass += w;
    ++kept;
  }
  return kept;
}

// Step 5 over a list of ids.
std::size_t draw_of_list(const sample_args& a, const distribution& d, std::span<const std::uint64_t> keys) {
  std::size_t best = id_of(keys[0]);
  double best_score = 0;
  bool first = true;
  for (const std::uint64_t key : keys) {
    const std::size_t i = id_of(key);
    const double score = d.z(i) + gumbel(a.seed, a.position, static_cast<std::uint32_t>(i));
    if (first || score > best_score || (score == best_score && i < best)) {
      best = i;
      best_score = score;
      first = false;
    }
  }
  return best;
}

// Step 5 over all ids. Skips ids that provably lose: G stays below 36.75, and a G of g needs random bits that begin
// with about g / ln 2 ones. With n leading ones 1 - u > 2^-(n+2), so G < (n + 2) ln 2 < 0.7 (n + 2). Beyond 2^40 a sum
// may round up to a tie, so nothing is skipped there.
std::size_t draw_of_all(const sample_args& a, const distribution& d, std::size_t start) {
  const auto score_of = [&](std::size_t i, std::uint64_t r) { return d.z(i) + gumbel_of(r); };
  std::size_t best = start;
  double best_score = score_of(start, gumbel_bits(a.seed, a.position, static_cast<std::uint32_t>(start)));
  const bool may_skip = std::fabs(d.top) < 0x1p40;
  double cut = may_skip ? (best_score - 37.25) * d.t : -std::numeric_limits<double>::infinity();
  const auto visit = [&](std::size_t i, std::uint64_t r) {
    if (!(static_cast<double>(d.x[i]) > cut) || i == start)
      return;
    if (may_skip) {
      const int ones = std::countl_one(r);
      if (ones <= 40 && best_score - d.z(i) >= 0.7 * (ones + 2))
        return;
    }
    const double score = score_of(i, r);
    if (score > best_score || (score == best_score && i < best)) {
      best = i;
      best_score = score;
      if (may_skip)
        cut = (best_score - 37.25) * d.t;
    }
  };
  for (std::size_t i = 0; i < d.n; i += 2) {
    const bool pair = i + 1 < d.n;
    if (!(static_cast<double>(d.x[i]) > cut) && !(pair && static_cast<double>(d.x[i + 1]) > cut))
      continue;
    const bit_pair r = gumbel_bits_pair(a.seed, a.position, static_cast<std::uint32_t>(i >> 1));
    visit(i, r.even);
    if (pair)
      visit(i + 1, r.odd);
  }
  return best;
}

// The n first ids of the order: kept ones by value, then the others, all at -9999, by id.
std::int32_t top_list(const distribution& d, std::span<std::uint64_t> keys, std::size_t n,
                      std::span<std::pair<std::int32_t, float>> out) {
  n = std::min({n, d.n, out.size()});
  if (n == 0)
    return 0;
  std::size_t have = 0; // keys[0, have): a heap whose front is the worst of the best so far
  for (std::size_t i = 0; i < d.n; ++i) {
    if (!d.kept(i))
      continue;
    const std::uint64_t key = key_of(d.x[i], i);
    const auto begin = keys.begin();
    if (have < n) {
      keys[have++] = key;
      std::push_heap(begin, begin + static_cast<std::ptrdiff_t>(have));
    } else if (key < keys[0]) {
      std::pop_heap(begin, begin + static_cast<std::ptrdiff_t>(n));
      keys[n - 1] = key;
      std::push_heap(begin, begin + static_cast<std::ptrdiff_t>(n));
    }
  }
  std::sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(have));
  for (std::size_t k = 0; k < have; ++k)
    out[k] = {static_cast<std::int32_t>(id_of(keys[k])), d.logprob(id_of(keys[k]))};
  for (std::size_t i = 0; have < n; ++i)
    if (!d.kept(i))
      out[have++] = {static_cast<std::int32_t>(i), lowest_logprob};
  return static_cast<std::int32_t>(n);
}

// Steps 1-3: the row to draw from, in place when nothing changes it.
sample_status prepare(const sample_args& a, sample_scratch& scratch, const row_extent& raw, distribution& d,
                      float& max) {
  d = {a.logits.data(), a.logits.size()};
  max = raw.max;
  if (!a.logit_bias.empty() || !a.blacklist.empty() || !a.mask.empty() || !a.suppressed.empty()) {
    const std::span<float> x = std::span{scratch.row}.first(d.n);
    d.x = x.data();
    bias_and_mask(a, x);
    for (const std::int32_t id : a.suppressed)
      if (id >= 0 && static_cast<std::size_t>(id) < d.n)
        x[static_cast<std::size_t>(id)] = minus_inf;
    row_extent e = extent_of(d.x, d.n);
    if (e.max == minus_inf && !a.suppressed.empty()) {
      bias_and_mask(a, x);
      e = extent_of(d.x, d.n);
    }
    if (e.unusable)
      return sample_status::positive_infinity; // the raw row was finite: a bias overflowed
    max = e.max;
  }
  if (max == minus_inf)
    return sample_status::nothing_left;
  if (static_cast<double>(a.temperature) >= 1e-5) {
    d.t = static_cast<double>(a.temperature);
    d.top = static_cast<double>(max) / d.t; // division by a positive number keeps the order
  } else {
    d.top = static_cast<double>(max);
  }
  return sample_status::ok;
}

bool greedy(const sample_args& a) {
  return static_cast<double>(a.temperature) < 1e-5;
}

sample_status check_row(std::span<const float> logits, row_extent& raw) {
  raw = extent_of(logits.data(), logits.size());
  if (raw.unusable)
    return std::ranges::any_of(logits, [](float v) { return std::isnan(v); }) ? sample_status::not_a_number
                                                                              : sample_status::positive_infinity;
  return raw.max == minus_inf ? sample_status::nothing_left : sample_status::ok;
}

void check_sizes(const sample_args& a, const sample_scratch& scratch) {
  TROUPE_CHECK(scratch.row.size() >= a.logits.size() && scratch.keys.size() >= a.logits.size(),
               "sampler scratch too small");
  TROUPE_CHECK(a.mask.empty() || a.mask.size() * 32 >= a.logits.size(), "sampler mask too short");
  TROUPE_CHECK(a.forced < 0 || static_cast<std::size_t>(a.forced) < a.logits.size(),
               "forced token outside the vocabulary");
}

} // namespace

const char* describe(sample_status s) {
  switch (s) {
  case sample_status::ok:
    break;
  case sample_status::not_a_number:
    return "the logits of this position hold a NaN";
  case sample_status::positive_infinity:
    return "the logits of this position hold +inf";
  case sample_status::nothing_left:
    return "no token is left to choose from at this position (all logits are -inf)";
  }
  return nullptr;
}

sample_result sample_row(const sample_args& a, sample_scratch& scratch, std::span<std::pair<std::int32_t, float>> top) {
  check_sizes(a, scratch);
  sample_result out;
  row_extent raw;
  out.status = check_row(a.logits, raw);
  if (out.status != sample_status::ok)
    return out;
  const bool wants_logprobs = a.logprob || a.top_logprobs > 0;
  const bool wants_processed = wants_logprobs && a.processed;
  distribution d;
  if (a.forced < 0 || wants_processed) {
    float max = 0;
    out.status = prepare(a, scratch, raw, d, max);
    if (out.status != sample_status::ok)
      return out;
    const std::size_t first = argmax(d.x, d.n, max);
    std::size_t token = first;
    if (greedy(a)) {
      d.last_key = key_of(max, first);
    } else if (filters(a)) {
      std::uint64_t mass = 0;
      const std::size_t kept = keep(a, d, scratch.keys, mass);
      d.last_key = scratch.keys[kept - 1];
      d.ln_mass = ln_of_mass(mass);
      if (a.forced < 0)
        token = draw_of_list(a, d, std::span{scratch.keys}.first(kept));
    } else {
      if (wants_processed)
        d.ln_mass = ln_of_mass(mass_of(d.x, d.n, d.t, d.top));
      if (a.forced < 0)
        token = draw_of_all(a, d, first);
    }
    out.token = static_cast<std::int32_t>(token);
  }
  if (a.forced >= 0)
    out.token = a.forced;
  if (wants_logprobs) {
    if (!a.processed)
      d = raw_distribution(a.logits, raw.max);
    out.logprob = d.logprob(static_cast<std::size_t>(out.token));
    out.top = top_list(d, scratch.keys, static_cast<std::size_t>(std::max(a.top_logprobs, 0)), top);
  }
  return out;
}

sample_status kept_weights(const sample_args& a, sample_scratch& scratch, std::span<std::uint64_t> weights) {
  check_sizes(a, scratch);
  TROUPE_CHECK(weights.size() == a.logits.size(), "weights of another length than the row");
  row_extent raw;
  if (const sample_status s = check_row(a.logits, raw); s != sample_status::ok)
    return s;
  distribution d;
  float max = 0;
  if (const sample_status s = prepare(a, scratch, raw, d, max); s != sample_status::ok)
    return s;
  std::ranges::fill(weights, 0);
  if (greedy(a)) {
    weights[argmax(d.x, d.n, max)] = full_mass;
  } else if (filters(a)) {
    std::uint64_t mass = 0;
    const std::size_t kept = keep(a, d, scratch.keys, mass);
    for (const std::uint64_t key : std::span{scratch.keys}.first(kept))
      weights[id_of(key)] = exact_mass(d.z(id_of(key)) - d.top);
  } else {
    for (std::size_t i = 0; i < d.n; ++i)
      weights[i] = exact_mass(d.z(i) - d.top);
  }
  return sample_status::ok;
}

sample_result row_logprob(std::span<const float> logits, std::int32_t token) {
  TROUPE_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "token outside the vocabulary");
  sample_result out;
  row_extent raw;
  out.status = check_row(logits, raw);
  if (out.status != sample_status::ok)
    return out;
  out.token = token;
  out.logprob = raw_distribution(logits, raw.max).logprob(static_cast<std::size_t>(token));
  return out;
}

} // namespace troupe
