#include "kernels/reference/sample.hpp"

#include "kernels/clones.hpp"
#include "runtime/base/check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

// Passes over the vocabulary get one clone per instruction set; without contraction all give the same bits. Those that
// only compare are faster by 32 bytes than by 64 (as GCC 12 makes them).
#define TROUPE_WIDE_CLONES TROUPE_CLONES("arch=x86-64-v4", "avx2", "default")
#define TROUPE_NARROW_CLONES TROUPE_CLONES("avx2", "default")

namespace troupe {

namespace {

using plain::distribution;
using plain::id_of;
using plain::key_of;
using plain::masked_row;
using plain::row_extent;
using plain::sample_view;

constexpr float minus_inf = -std::numeric_limits<float>::infinity();
constexpr std::int64_t block = 64; // constant trip count: the compiler vectorises without a remainder loop

// No branch depends on the mask: what it forbids becomes a NaN, which no comparison finds larger.
TROUPE_NARROW_CLONES row_extent extent_of(const masked_row& x, std::int64_t n) {
  constexpr std::int64_t word = 32;
  float lane[word], allowed[word];
  std::uint32_t bad[word];
  for (std::int64_t j = 0; j < word; ++j) {
    lane[j] = allowed[j] = minus_inf;
    bad[j] = 0;
  }
  std::int64_t i = 0;
  for (; i + word <= n; i += word) {
    const float* raw = x.logits + i;
    for (std::int64_t j = 0; j < word; ++j) {
      lane[j] = raw[j] > lane[j] ? raw[j] : lane[j];
      bad[j] |= raw[j] <= std::numeric_limits<float>::max() ? 0u : 1u;
    }
    if (x.mask == nullptr)
      continue;
    const std::uint32_t bits = x.mask[i / word];
    for (std::int64_t j = 0; j < word; ++j) {
      const float open = bits_float(float_bits(raw[j]) | ((bits >> j & 1u) - 1u));
      allowed[j] = open > allowed[j] ? open : allowed[j];
    }
  }
  for (; i < n; ++i) {
    const float raw = x.logits[i], open = x[i];
    lane[0] = raw > lane[0] ? raw : lane[0];
    bad[0] |= raw <= std::numeric_limits<float>::max() ? 0u : 1u;
    allowed[0] = open > allowed[0] ? open : allowed[0];
  }
  row_extent e{minus_inf, minus_inf, false};
  for (std::int64_t j = 0; j < word; ++j) {
    e.max = lane[j] > e.max ? lane[j] : e.max;
    e.allowed_max = allowed[j] > e.allowed_max ? allowed[j] : e.allowed_max;
    e.unusable |= bad[j] != 0;
  }
  if (x.mask == nullptr)
    e.allowed_max = e.max;
  return e;
}

TROUPE_NARROW_CLONES std::int64_t first_equal(const masked_row& x, std::int64_t n, float v) {
  std::int64_t i = 0;
  for (; i + block <= n; i += block) {
    std::uint32_t found = 0;
    for (std::int64_t j = 0; j < block; ++j)
      found |= x.logits[i + j] == v ? 1u : 0u;
    for (std::int64_t j = 0; found != 0 && j < block; ++j)
      if (x[i + j] == v)
        return i + j;
  }
  for (; i < n; ++i)
    if (x[i] == v)
      return i;
  return 0;
}

// x[first, first + 32) as its mask leaves it; no branch depends on the mask.
inline void copy_word(const masked_row& x, std::int64_t first, float* to) {
  const std::uint32_t word = x.mask[first / 32];
  for (std::int64_t j = 0; j < 32; ++j) {
    const std::uint32_t forbidden = (word >> j & 1u) - 1u;
    to[j] = bits_float((float_bits(x.logits[first + j]) & ~forbidden) | (float_bits(minus_inf) & forbidden));
  }
}

// Sum of MASS(x_i / t - top): integers, so the order does not matter.
TROUPE_WIDE_CLONES std::uint64_t mass_of(const masked_row& x, std::int64_t n, double t, double top) {
  std::uint64_t sum[block] = {};
  float copy[block];
  std::int64_t i = 0;
  for (; i + block <= n; i += block) {
    const float* open = x.logits + i;
    if (x.mask != nullptr) {
      copy_word(x, i, copy);
      copy_word(x, i + 32, copy + 32);
      open = copy;
    }
    for (std::int64_t j = 0; j < block; ++j)
      sum[j] += exact_mass(static_cast<double>(open[j]) / t - top);
  }
  for (; i < n; ++i)
    sum[0] += exact_mass(static_cast<double>(x[i]) / t - top);
  for (std::int64_t j = 1; j < block; ++j)
    sum[0] += sum[j];
  return sum[0];
}

// The first `count` entries of the order by key among keys[sorted, n) are put in place.
void sort_more(std::span<std::uint64_t> keys, std::size_t sorted, std::size_t count) {
  const auto from = keys.begin() + static_cast<std::ptrdiff_t>(sorted),
             to = keys.begin() + static_cast<std::ptrdiff_t>(count);
  if (to != keys.end())
    std::nth_element(from, to, keys.end());
  std::sort(from, to);
}

// The passes of plain::sample_row by one thread.
class lone_steps {
public:
  explicit lone_steps(sample_scratch& scratch) : scratch_(scratch) {}

  static row_extent extent(const masked_row& x, std::int64_t n) { return extent_of(x, n); }
  static bool any_nan(const float* logits, std::int64_t n) {
    return std::any_of(logits, logits + n, [](float v) { return std::isnan(v); });
  }
  static std::uint64_t mass(const distribution& d) { return mass_of(d.x, d.n, d.t, d.top); }
  static std::int64_t first_of(const masked_row& x, std::int64_t n, float v) { return first_equal(x, n, v); }
  float* row() { return scratch_.row.data(); }
  template <class Fn> static void each(std::int64_t n, const Fn& fn) {
    for (std::int64_t i = 0; i < n; ++i)
      fn(i);
  }
  template <class Fn> static void in_order(std::int64_t n, const Fn& fn) { each(n, fn); }

  std::uint64_t keep(const sample_view& a, const distribution& d, std::uint64_t& kept_mass);
  std::int64_t draw(const sample_view& a, const distribution& d, std::int64_t first, bool listed) const {
    return listed ? draw_of_list(a, d) : draw_of_all(a, d, first);
  }
  template <class Weight> static unsigned_128 sum(std::int64_t n, const Weight& weight) {
    unsigned_128 all = 0;
    for (std::int64_t i = 0; i < n; ++i)
      all += weight(i);
    return all;
  }
  template <class Weight> static std::int64_t id_at(std::int64_t n, const Weight& weight, unsigned_128 v) {
    unsigned_128 so_far = 0;
    std::int64_t i = 0;
    while (i + 1 < n && (so_far += weight(i)) <= v)
      ++i;
    return i;
  }
  std::int32_t top_list(const distribution& d, std::int64_t n, std::pair<std::int32_t, float>* out);
  std::span<const std::uint64_t> kept() const { return std::span{scratch_.keys}.first(kept_); } // after keep

private:
  std::int64_t draw_of_list(const sample_view& a, const distribution& d) const;
  static std::int64_t draw_of_all(const sample_view& a, const distribution& d, std::int64_t start);

  sample_scratch& scratch_;
  std::size_t kept_ = 0;
};

// The keys of kept ids stand sorted at the front of the scratch's keys. The order is built only as far as it is walked.
std::uint64_t lone_steps::keep(const sample_view& a, const distribution& d, std::uint64_t& kept_mass) {
  std::span<std::uint64_t> keys = scratch_.keys;
  std::size_t n = 0;
  for (std::int64_t i = 0; i < d.n; ++i)
    if (d.x[i] > minus_inf)
      keys[n++] = key_of(d.x[i], i);
  keys = keys.first(n);
  const std::size_t most = a.top_k >= 1 ? std::min(n, static_cast<std::size_t>(a.top_k)) : n;
  const std::uint64_t limit = a.top_p < 1 ? plain::top_p_limit(a, mass(d)) : ~std::uint64_t{0};
  const std::uint64_t least = plain::min_p_limit(a);
  std::size_t sorted = 0;
  kept_ = 0;
  kept_mass = 0;
  while (kept_ < most) {
    if (kept_ == sorted) {
      const std::size_t more = std::min(most, std::max<std::size_t>(64, 4 * sorted));
      sort_more(keys, sorted, more);
      sorted = more;
    }
    const std::uint64_t w = d.mass(id_of(keys[kept_]));
    if (kept_ > 0 && (kept_mass > limit || w < least))
      break;
    kept_mass += w;
    ++kept_;
  }
  return keys[kept_ - 1];
}

std::int64_t lone_steps::draw_of_list(const sample_view& a, const distribution& d) const {
  std::int64_t best = -1;
  double best_score = 0;
  for (const std::uint64_t key : kept()) {
    const std::int64_t i = id_of(key);
    const double score = plain::gumbel_score(a, d, i);
    if (best < 0 || score > best_score || (score == best_score && i < best)) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

// Skips ids that provably lose: G stays below 36.75, and a G of g needs random bits that begin
// with about g / ln 2 ones. With n leading ones 1 - u > 2^-(n+2), so G < (n + 2) ln 2 < 0.7 (n + 2). Beyond 2^40 a sum
// may round up to a tie, so nothing is skipped there.
std::int64_t lone_steps::draw_of_all(const sample_view& a, const distribution& d, std::int64_t start) {
  const auto score_of = [&](std::int64_t i, std::uint64_t r) { return d.z(i) + gumbel_of(r); };
  std::int64_t best = start;
  double best_score = score_of(start, gumbel_bits(a.seed, a.position, static_cast<std::uint32_t>(start)));
  const bool may_skip = std::fabs(d.top) < 0x1p40;
  double cut = may_skip ? (best_score - 37.25) * d.t : -std::numeric_limits<double>::infinity();
  // most ids are out of reach, so that few bits of a mask are asked for
  const auto in_reach = [&](std::int64_t i) { return static_cast<double>(d.x.logits[i]) > cut && d.x.allows(i); };
  const auto visit = [&](std::int64_t i, std::uint64_t r) {
    if (!in_reach(i) || i == start)
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
  for (std::int64_t i = 0; i < d.n; i += 2) {
    const bool pair = i + 1 < d.n;
    if (!in_reach(i) && !(pair && in_reach(i + 1)))
      continue;
    const bit_pair r = gumbel_bits_pair(a.seed, a.position, static_cast<std::uint32_t>(i >> 1));
    visit(i, r.even);
    if (pair)
      visit(i + 1, r.odd);
  }
  return best;
}

std::int32_t lone_steps::top_list(const distribution& d, std::int64_t wanted, std::pair<std::int32_t, float>* out) {
  const auto n = static_cast<std::size_t>(std::clamp<std::int64_t>(wanted, 0, d.n));
  if (n == 0)
    return 0;
  auto& keys = scratch_.keys;
  const auto begin = keys.begin();
  std::size_t have = 0; // keys[0, have): a heap whose front is the worst of the best so far
  for (std::int64_t i = 0; i < d.n; ++i) {
    if (!d.kept(i))
      continue;
    const std::uint64_t key = key_of(d.x[i], i);
    if (have < n) {
      keys[have++] = key;
      std::push_heap(begin, begin + static_cast<std::ptrdiff_t>(have));
    } else if (key < keys[0]) {
      std::pop_heap(begin, begin + static_cast<std::ptrdiff_t>(n));
      keys[n - 1] = key;
      std::push_heap(begin, begin + static_cast<std::ptrdiff_t>(n));
    }
  }
  std::sort(begin, begin + static_cast<std::ptrdiff_t>(have));
  for (std::size_t k = 0; k < have; ++k)
    out[k] = {static_cast<std::int32_t>(id_of(keys[k])), d.logprob(id_of(keys[k]))};
  for (std::int64_t i = 0; have < n; ++i)
    if (!d.kept(i))
      out[have++] = {static_cast<std::int32_t>(i), plain::lowest_logprob};
  return static_cast<std::int32_t>(n);
}

// The arguments as bare pointers, after a check of what only a programming error can get wrong.
sample_view view_of(const sample_args& a, const sample_scratch& scratch, std::size_t top_room = 0) {
  TROUPE_CHECK(scratch.row.size() >= a.logits.size() && scratch.keys.size() >= a.logits.size(),
               "sampler scratch too small");
  TROUPE_CHECK(a.mask.empty() || a.mask.size() * 32 >= a.logits.size(), "sampler mask too short");
  TROUPE_CHECK(a.forced < 0 || static_cast<std::size_t>(a.forced) < a.logits.size(),
               "forced token outside the vocabulary");
  sample_view v;
  v.logits = a.logits.data();
  v.vocab = static_cast<std::int64_t>(a.logits.size());
  v.temperature = a.temperature;
  v.top_p = a.top_p;
  v.min_p = a.min_p;
  v.top_k = a.top_k;
  v.seed = a.seed;
  v.position = a.position;
  v.logit_bias = a.logit_bias.data();
  v.biases = static_cast<std::int64_t>(a.logit_bias.size());
  v.blacklist = a.blacklist.data();
  v.blacklisted = static_cast<std::int64_t>(a.blacklist.size());
  v.mask = a.mask.empty() ? nullptr : a.mask.data();
  v.suppressed = a.suppressed.data();
  v.suppressions = static_cast<std::int64_t>(a.suppressed.size());
  v.forced = a.forced;
  v.logprob = a.logprob || a.top_logprobs > 0;
  v.processed = a.processed;
  v.top_logprobs = std::min(a.top_logprobs, static_cast<std::int32_t>(top_room));
  return v;
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
  lone_steps steps(scratch);
  return plain::sample_row(steps, view_of(a, scratch, top.size()), top.data());
}

sample_result sample_row(const plain::sample_view& v, sample_scratch& scratch,
                         std::span<std::pair<std::int32_t, float>> top) {
  lone_steps steps(scratch);
  return plain::sample_row(steps, v, top.data());
}

sample_status kept_weights(const sample_args& a, sample_scratch& scratch, std::span<std::uint64_t> weights) {
  const sample_view v = view_of(a, scratch);
  TROUPE_CHECK(weights.size() == a.logits.size(), "weights of another length than the row");
  lone_steps steps(scratch);
  row_extent raw;
  if (const sample_status s = plain::check_row(steps, {v.logits, v.mask}, v.vocab, raw); s != sample_status::ok)
    return s;
  distribution d;
  float max = 0;
  if (const sample_status s = plain::prepare(steps, v, raw, d, max); s != sample_status::ok)
    return s;
  plain::filter(steps, v, d, lone_steps::first_of(d.x, d.n, max));
  for (std::int64_t i = 0; i < d.n; ++i)
    weights[static_cast<std::size_t>(i)] = d.weight(i);
  return sample_status::ok;
}

sample_result row_logprob(std::span<const float> logits, std::int32_t token) {
  TROUPE_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "token outside the vocabulary");
  sample_scratch none(0);
  lone_steps steps(none);
  const auto n = static_cast<std::int64_t>(logits.size());
  sample_result out;
  row_extent raw;
  out.status = plain::check_row(steps, {logits.data(), nullptr}, n, raw);
  if (out.status != sample_status::ok)
    return out;
  out.token = token;
  out.logprob = plain::raw_distribution(steps, logits.data(), n, raw.max).logprob(token);
  return out;
}

} // namespace troupe
