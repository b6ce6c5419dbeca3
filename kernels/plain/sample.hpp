// The sampler (exactness.md §4-5): one row of logits to one token, in integers and binary64. What a row means stands
// here; the passes over the vocabulary are a shell's own "steps", since a CPU sorts where a GPU counts. Both find the
// same sets, because every sum in here is an integer and every choice has a rule for ties.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/plain/qualifiers.hpp"
#include "runtime/base/noise.hpp"
#include "runtime/base/number_formats.hpp"
#include "runtime/base/uniform.hpp"

namespace troupe {

enum class sample_status : std::uint8_t { ok, not_a_number, positive_infinity, nothing_left };

struct sample_result {
  sample_status status = sample_status::ok; // not ok: nothing else counts
  std::int32_t token = -1;
  float logprob = 0;    // of token; never below -9999
  std::int32_t top = 0; // entries written to the top list: min(top_logprobs, V, its length)
};

} // namespace troupe

namespace troupe::plain {

inline constexpr float lowest_logprob = -9999.0f;
inline constexpr std::uint64_t full_mass = std::uint64_t{1} << mass_bits;
inline constexpr std::uint64_t no_key = ~std::uint64_t{0};

TROUPE_PLAIN float minus_infinity() {
  return bits_float(0xff800000u);
}

// sample_args (kernels/reference/sample.hpp) as bare pointers; the fields mean the same.
struct sample_view {
  const float* logits = nullptr;
  std::int64_t vocab = 0;
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = -1;
  std::uint64_t seed = 0, position = 0;
  const std::pair<std::int32_t, float>* logit_bias = nullptr;
  std::int64_t biases = 0;
  const std::int32_t* blacklist = nullptr;
  std::int64_t blacklisted = 0;
  const std::uint32_t* mask = nullptr; // null: everything is allowed
  const std::int32_t* suppressed = nullptr;
  std::int64_t suppressions = 0;
  std::int32_t forced = -1;
  bool logprob = true, processed = false;
  std::int32_t top_logprobs = 0;
  draw_rule draw = draw_rule::coupled;
  std::int32_t draft_number = 0; // of its block, with draw_rule::proposal
  std::int32_t draft = -1;       // that the row verifies, with draw_rule::fresh; drawn from
  const float* draft_logits = nullptr;
};

// Row i of a call.
TROUPE_PLAIN sample_view sample_view_of(const sample_rows_args& a, std::int64_t i) {
  const sample_row_params& p = a.params.raw()[a.rule ? a.rule.raw()[i] : i];
  sample_view v;
  v.logits = a.logits.raw() + i * a.vocab;
  v.vocab = a.vocab;
  v.temperature = p.temperature;
  v.top_p = p.top_p;
  v.min_p = p.min_p;
  v.top_k = p.top_k;
  v.seed = p.seed;
  v.position = a.row_position ? static_cast<std::uint64_t>(a.row_position.raw()[i]) + 1 : p.position;
  v.logit_bias = a.bias.raw() + p.first_bias;
  v.biases = p.biases;
  v.blacklist = a.blacklist.raw();
  v.blacklisted = a.blacklisted;
  v.mask = p.mask >= 0 ? a.masks.raw() + std::int64_t{p.mask} * ((a.vocab + 31) / 32) : nullptr;
  v.suppressed = a.suppressed.raw() + p.first_suppressed;
  v.suppressions = v.position < p.suppressed_until ? p.suppressed : 0;
  if (v.position >= p.forced_at && v.position - p.forced_at < static_cast<std::uint64_t>(p.forced))
    v.forced = a.forced.raw()[static_cast<std::uint64_t>(p.first_forced) + v.position - p.forced_at];
  v.logprob = p.logprob != 0;
  v.processed = p.processed != 0;
  v.top_logprobs = p.top_logprobs < a.max_top ? p.top_logprobs : a.max_top;
  v.draw = p.draw;
  v.draft_number = a.draft_number;
  if (const std::int32_t verifies = a.verifies ? a.verifies.raw()[i] : -1; verifies >= 0) {
    v.draft = a.drafts.raw()[verifies];
    v.draft_logits = a.draft_logits.raw() + std::int64_t{verifies} * a.vocab;
  }
  return v;
}

// What row i of a call leaves behind; r.token is -1 when nothing was drawn.
TROUPE_PLAIN void put_sample(const sample_rows_args& a, std::int64_t i, const sample_result& r) {
  const bool ok = r.status == sample_status::ok && r.token >= 0;
  a.token.raw()[i] = ok ? r.token : -1;
  a.logprob.raw()[i] = ok ? r.logprob : 0.0f;
  a.status.raw()[i] = static_cast<std::int32_t>(r.status);
}

TROUPE_PLAIN bool allows(const std::uint32_t* mask, std::int64_t id) {
  const auto i = static_cast<std::uint64_t>(id); // never negative, and unsigned shifts are cheaper
  return (mask[i / 32] >> (i % 32) & 1u) != 0;
}

// A row as its mask leaves it: what is forbidden reads as -inf. Nothing is written for a mask, and a pass over the row
// costs a bit more for each number.
struct masked_row {
  const float* logits = nullptr;
  const std::uint32_t* mask = nullptr; // null: everything is allowed

  TROUPE_PLAIN bool allows(std::int64_t i) const { return mask == nullptr || plain::allows(mask, i); }
  TROUPE_PLAIN float operator[](std::int64_t i) const { return allows(i) ? logits[i] : minus_infinity(); }
};

struct row_extent {
  float max = 0;         // -inf for a row without a number
  float allowed_max = 0; // of what the mask allows
  bool unusable = false; // a NaN or +inf somewhere, forbidden or not
};

// Ascending keys = larger value first (-0 equals +0), then smaller id.
TROUPE_PLAIN std::uint64_t key_of(float v, std::int64_t id) {
  const std::uint32_t b = float_bits(v + 0.0f); // -0 becomes +0
  const std::uint32_t ascending = (b >> 31) != 0 ? ~b : b | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | static_cast<std::uint64_t>(id);
}
TROUPE_PLAIN std::int64_t id_of(std::uint64_t key) {
  return static_cast<std::int64_t>(key & 0xffffffffu);
}

TROUPE_PLAIN double ln_of_mass(std::uint64_t mass) {
  return exact_ln(static_cast<double>(mass) * 0x1p-44);
}

// A row after step 3: what log-probabilities and draws are made of.
struct distribution {
  masked_row x;
  std::int64_t n = 0;
  double t = 1;                    // divisor
  double top = 0;                  // largest z
  double ln_mass = 0;              // LN of the kept mass / 2^44
  std::uint64_t last_key = no_key; // of the last kept id

  TROUPE_PLAIN double z(std::int64_t i) const { return static_cast<double>(x[i]) / t; }
  TROUPE_PLAIN std::uint64_t mass(std::int64_t i) const { return exact_mass(z(i) - top); }
  TROUPE_PLAIN bool kept(std::int64_t i) const { return x[i] > minus_infinity() && key_of(x[i], i) <= last_key; }
  TROUPE_PLAIN std::uint64_t weight(std::int64_t i) const { return kept(i) ? mass(i) : 0; }
  TROUPE_PLAIN float logprob(std::int64_t i) const {
    if (!kept(i))
      return lowest_logprob;
    const float lp = static_cast<float>((z(i) - top) - ln_mass) + 0.0f; // never -0: top may be 0 of either sign
    return lp < lowest_logprob ? lowest_logprob : lp;
  }
};

TROUPE_PLAIN bool greedy(const sample_view& a) {
  return static_cast<double>(a.temperature) < 1e-5;
}
TROUPE_PLAIN bool filters(const sample_view& a) {
  return a.top_p < 1 || a.min_p > 0 || a.top_k >= 1;
}
// Step 4: an id is kept while the mass before it does not exceed this; all_mass = M.
TROUPE_PLAIN std::uint64_t top_p_limit(const sample_view& a, std::uint64_t all_mass) {
  const auto share = static_cast<std::uint64_t>(static_cast<double>(a.top_p) * 0x1p32);
  return share * (all_mass >> 32) + (share * (all_mass & 0xffffffffu) >> 32); // floor(share * all_mass / 2^32)
}
// Step 4: and while its own mass is not below this.
TROUPE_PLAIN std::uint64_t min_p_limit(const sample_view& a) {
  return static_cast<std::uint64_t>(static_cast<double>(a.min_p) * 0x1p44);
}
TROUPE_PLAIN double gumbel_score(const sample_view& a, const distribution& d, std::int64_t i) {
  return d.z(i) + gumbel(a.seed, a.position, static_cast<std::uint32_t>(i));
}

// What a shell's steps offer; all members of a team call them together.
//   extent(x, n)
//     row_extent of x[n], a masked_row
//   any_nan(logits, n)
//   mass(d)
//     sum of d.mass(i) over all i
//   first_of(x, n, v)
//     smallest i with x[i] == v, v > -inf
//   row()
//     V floats of working memory
//   each(n, f)
//     f(i) for every i < n, in any order, finished behind it
//   in_order(n, f)
//     f(i) for every i < n, ascending, finished behind it
//   keep(a, d, mass)
//     step 4: key of the last kept id; mass = kept mass
//   draw(a, d, first, listed)
//     step 5 over the kept ids, first = the argmax; listed: keep() came before
//   sum(n, w)
//     w(0) + ... + w(n - 1), unsigned_128
//   id_at(n, w, v)
//     smallest i with w(0) + ... + w(i) > v; the sum of all exceeds v
//   top_list(d, n, out)
//     the n first ids of the order: kept ones by value, then the others, all at -9999, by id

// Bias and blacklist on a copy of the row; its mask stays beside it. What it forbids takes no bias, which might
// overflow.
template <class Steps> TROUPE_PLAIN void copy_with_bias(Steps& s, const sample_view& a, float* x) {
  const auto inside = [&](std::int32_t id) { return id >= 0 && id < a.vocab; };
  s.each(a.vocab, [&](std::int64_t i) { x[i] = a.logits[i]; });
  s.in_order(a.biases, [&](std::int64_t i) {
    const std::int32_t id = a.logit_bias[i].first;
    if (inside(id) && (a.mask == nullptr || allows(a.mask, id)))
      x[id] += a.logit_bias[i].second;
  });
  s.each(a.blacklisted, [&](std::int64_t i) {
    if (inside(a.blacklist[i]))
      x[a.blacklist[i]] = minus_infinity();
  });
}

// Steps 1-3: the row to draw from, in place when no number changes. raw: of the row with its mask.
template <class Steps>
TROUPE_PLAIN sample_status prepare(Steps& s, const sample_view& a, const row_extent& raw, distribution& d, float& max) {
  d = distribution{};
  d.x = {a.logits, a.mask};
  d.n = a.vocab;
  max = raw.allowed_max;
  if (a.biases > 0 || a.blacklisted > 0 || a.suppressions > 0) {
    float* x = s.row();
    d.x.logits = x;
    copy_with_bias(s, a, x);
    s.each(a.suppressions, [&](std::int64_t i) {
      const std::int32_t id = a.suppressed[i];
      if (id >= 0 && id < a.vocab)
        x[id] = minus_infinity();
    });
    row_extent e = s.extent(d.x, d.n);
    if (e.allowed_max == minus_infinity() && a.suppressions > 0) {
      copy_with_bias(s, a, x);
      e = s.extent(d.x, d.n);
    }
    if (e.unusable)
      return sample_status::positive_infinity; // the raw row was finite: a bias overflowed
    max = e.allowed_max;
  }
  if (max == minus_infinity())
    return sample_status::nothing_left;
  if (greedy(a)) {
    d.top = static_cast<double>(max);
  } else {
    d.t = static_cast<double>(a.temperature);
    d.top = static_cast<double>(max) / d.t; // division by a positive number keeps the order
  }
  return sample_status::ok;
}

template <class Steps>
TROUPE_PLAIN sample_status check_row(Steps& s, const masked_row& x, std::int64_t n, row_extent& raw) {
  raw = s.extent(x, n);
  if (raw.unusable)
    return s.any_nan(x.logits, n) ? sample_status::not_a_number : sample_status::positive_infinity;
  return raw.max == minus_infinity() ? sample_status::nothing_left : sample_status::ok;
}

// The model's own distribution: T = 1, before bias and masks.
template <class Steps>
TROUPE_PLAIN distribution raw_distribution(Steps& s, const float* logits, std::int64_t n, float max) {
  distribution d;
  d.x.logits = logits;
  d.n = n;
  d.top = static_cast<double>(max);
  d.ln_mass = ln_of_mass(s.mass(d));
  return d;
}

// Step 4 on a prepared row; its kept mass. Greedy rows keep their argmax `first`.
template <class Steps>
TROUPE_PLAIN std::uint64_t filter(Steps& s, const sample_view& a, distribution& d, std::int64_t first) {
  if (greedy(a)) {
    d.last_key = key_of(d.x[first], first);
    return d.mass(first);
  }
  if (!filters(a))
    return s.mass(d);
  std::uint64_t mass = 0;
  d.last_key = s.keep(a, d, mass);
  return mass;
}

template <class Steps>
TROUPE_PLAIN std::int64_t weighted_draw(Steps& s, const sample_view& a, const distribution& d, std::uint64_t mass,
                                        draw_case what) {
  return s.id_at(
      d.n, [&](std::int64_t i) { return unsigned_128{d.weight(i)}; }, uniform_below(mass, what, a.seed, a.position));
}

// The row-wise rule of rejection (speculation.md §7.4): the draft or a draw from what it leaves; without a draft that
// can have been drawn, a draw of its own. d: the target, its kept mass.
template <class Steps>
TROUPE_PLAIN std::int64_t verify_or_draw(Steps& s, const sample_view& a, const distribution& d, std::uint64_t mass) {
  sample_view of_draft;
  of_draft.logits = a.draft_logits;
  of_draft.vocab = a.vocab;
  of_draft.temperature = a.temperature;
  of_draft.top_p = a.top_p;
  of_draft.min_p = a.min_p;
  of_draft.top_k = a.top_k;
  row_extent raw;
  distribution q;
  float max = 0;
  if (a.draft < 0 || check_row(s, {of_draft.logits, nullptr}, a.vocab, raw) != sample_status::ok ||
      prepare(s, of_draft, raw, q, max) != sample_status::ok)
    return weighted_draw(s, a, d, mass, draw_case::fresh);
  const unsigned_128 sp = mass, sq = filter(s, of_draft, q, s.first_of(q.x, q.n, max));
  const unsigned_128 p = d.weight(a.draft), w = q.weight(a.draft);
  if (w == 0)
    return weighted_draw(s, a, d, mass, draw_case::fresh);
  if (uniform_below(w * sp, draw_case::accept, a.seed, a.position) < p * sq)
    return a.draft;
  const auto rest = [&](std::int64_t i) {
    const unsigned_128 mine = d.weight(i) * sq, theirs = q.weight(i) * sp;
    return mine > theirs ? mine - theirs : unsigned_128{0};
  };
  return s.id_at(d.n, rest, uniform_below(s.sum(d.n, rest), draw_case::residual, a.seed, a.position));
}

// One row; top: room for a.top_logprobs entries.
template <class Steps>
TROUPE_PLAIN sample_result sample_row(Steps& s, const sample_view& a, std::pair<std::int32_t, float>* top) {
  sample_result out;
  row_extent raw;
  out.status = check_row(s, {a.logits, a.mask}, a.vocab, raw);
  if (out.status != sample_status::ok)
    return out;
  const bool wants_logprobs = a.logprob || a.top_logprobs > 0;
  const bool wants_processed = wants_logprobs && a.processed;
  distribution d;
  if (a.forced < 0 || wants_processed) {
    float max = 0;
    out.status = prepare(s, a, raw, d, max);
    if (out.status != sample_status::ok)
      return out;
    const std::int64_t first = s.first_of(d.x, d.n, max);
    std::int64_t token = first;
    if (greedy(a)) {
      d.last_key = key_of(max, first);
    } else if (a.draw != draw_rule::coupled) {
      const std::uint64_t mass = filter(s, a, d, first);
      d.ln_mass = ln_of_mass(mass);
      if (a.forced < 0)
        token = a.draw == draw_rule::fresh ? verify_or_draw(s, a, d, mass)
                                           : weighted_draw(s, a, d, mass, case_of_draft(a.draft_number));
    } else if (filters(a)) {
      std::uint64_t mass = 0;
      d.last_key = s.keep(a, d, mass);
      d.ln_mass = ln_of_mass(mass);
      if (a.forced < 0)
        token = s.draw(a, d, first, true);
    } else {
      if (wants_processed)
        d.ln_mass = ln_of_mass(s.mass(d));
      if (a.forced < 0)
        token = s.draw(a, d, first, false);
    }
    out.token = static_cast<std::int32_t>(token);
  }
  if (a.forced >= 0)
    out.token = a.forced;
  if (wants_logprobs) {
    if (!a.processed)
      d = raw_distribution(s, a.logits, a.vocab, raw.max);
    out.logprob = d.logprob(out.token);
    out.top = s.top_list(d, a.top_logprobs, top);
  }
  return out;
}

} // namespace troupe::plain
