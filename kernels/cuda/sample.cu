// sample_rows: a block for each row. Every pass counts or takes a maximum over the vocabulary, in integers, so the
// members' order does not matter; the kept set is found by searching the key of its last id bit by bit.
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/plain/index.hpp"
#include "kernels/plain/sample.hpp"

namespace troupe::cuda {
namespace {

constexpr int threads = 512;
constexpr std::size_t most_blocks = 256; // rows in flight, each with its own scratch

// Order of finite or infinite doubles as integers; -0 equals +0.
__device__ std::uint64_t order_key(double v) {
  const std::uint64_t b = noise_detail::bits_of(noise_detail::add(v, 0.0));
  return (b >> 63) != 0 ? ~b : b | 0x8000000000000000u;
}

struct parts { // shared memory of one block: sums of its members' stretches of a row
  unsigned_128 of_member[threads];
  std::int64_t id;
};

class team_steps {
public:
  __device__ team_steps(block_team& t, parts& p, float* row, std::uint64_t* masses)
      : t_(t), parts_(p), row_(row), masses_(masses) {}

  __device__ plain::row_extent extent(const plain::masked_row& x, std::int64_t n) {
    std::uint64_t best = 0, best_allowed = 0, bad = 0; // the best hold the bits of the largest below its order
    for (std::int64_t i = t_.rank(); i < n; i += t_.size()) {
      const float v = x.logits[i];
      const std::uint64_t key = v == v ? std::uint64_t{plain::order_key(v)} << 32 | float_bits(v) : 0;
      best = plain::larger(best, key);
      best_allowed = x.allows(i) ? plain::larger(best_allowed, key) : best_allowed;
      bad |= v <= bits_float(0x7f7fffffu) ? 0u : 1u; // largest finite number
    }
    const auto largest = [&](std::uint64_t key) {
      key = t_.largest(key);
      return key == 0 ? plain::minus_infinity() : bits_float(static_cast<std::uint32_t>(key));
    };
    plain::row_extent e;
    e.max = largest(best);
    e.allowed_max = x.mask == nullptr ? e.max : largest(best_allowed);
    e.unusable = t_.largest(bad) != 0;
    return e;
  }
  __device__ bool any_nan(const float* logits, std::int64_t n) {
    return t_.largest(any(n, [&](std::int64_t i) { return logits[i] != logits[i]; })) != 0;
  }
  __device__ std::uint64_t mass(const plain::distribution& d) {
    std::uint64_t sum = 0;
    for (std::int64_t i = t_.rank(); i < d.n; i += t_.size())
      sum += d.mass(i);
    return t_.total(sum);
  }
  __device__ std::int64_t first_of(const plain::masked_row& x, std::int64_t n, float v) {
    std::uint64_t best = 0; // larger = earlier
    for (std::int64_t i = t_.rank(); i < n; i += t_.size())
      if (x[i] == v)
        best = plain::larger(best, static_cast<std::uint64_t>(n - i));
    best = t_.largest(best);
    return best == 0 ? 0 : n - static_cast<std::int64_t>(best);
  }
  __device__ float* row() { return row_; }
  template <class Fn> __device__ void each(std::int64_t n, const Fn& fn) {
    for (std::int64_t i = t_.rank(); i < n; i += t_.size())
      fn(i);
    t_.sync();
  }
  template <class Fn> __device__ void in_order(std::int64_t n, const Fn& fn) {
    if (t_.rank() == 0)
      for (std::int64_t i = 0; i < n; ++i)
        fn(i);
    t_.sync();
  }

  __device__ std::uint64_t keep(const plain::sample_view& a, const plain::distribution& d, std::uint64_t& kept_mass) {
    each(d.n, [&](std::int64_t i) { masses_[i] = d.mass(i); });
    const std::uint64_t limit = a.top_p < 1 ? plain::top_p_limit(a, mass(d)) : ~std::uint64_t{0};
    const std::uint64_t most = a.top_k >= 1 ? static_cast<std::uint64_t>(a.top_k) : ~std::uint64_t{0};
    // an id of this key would be kept, as far as rank and mass before it go; false from some key on
    const auto fits = [&](std::uint64_t key) {
      std::uint64_t count = 0, sum = 0;
      for (std::int64_t i = t_.rank(); i < d.n; i += t_.size())
        if (d.x[i] > plain::minus_infinity() && plain::key_of(d.x[i], i) < key) {
          ++count;
          sum += masses_[i];
        }
      count = t_.total(count);
      sum = t_.total(sum);
      return count < most && sum <= limit;
    };
    int id_bits = 1;
    while (id_bits < 31 && d.n > std::int64_t{1} << id_bits)
      ++id_bits;
    std::uint64_t last = 0;
    for (int bit = 63; bit >= 0; bit = bit == 32 ? id_bits - 1 : bit - 1)
      if (fits(last | std::uint64_t{1} << bit))
        last |= std::uint64_t{1} << bit;
    // the first id that is too light ends the prefix
    const std::uint64_t least = plain::min_p_limit(a);
    std::uint64_t light = 0, first = 0; // complements: the largest belongs to the smallest key
    for (std::int64_t i = t_.rank(); i < d.n; i += t_.size())
      if (d.x[i] > plain::minus_infinity()) {
        const std::uint64_t key = ~plain::key_of(d.x[i], i);
        first = plain::larger(first, key);
        if (masses_[i] < least)
          light = plain::larger(light, key);
      }
    first = ~t_.largest(first);
    light = t_.largest(light);
    if (light != 0)
      last = plain::smaller(last, ~light - 1);
    last = plain::larger(last, first); // the first is always kept
    std::uint64_t sum = 0;
    for (std::int64_t i = t_.rank(); i < d.n; i += t_.size())
      if (d.x[i] > plain::minus_infinity() && plain::key_of(d.x[i], i) <= last)
        sum += masses_[i];
    kept_mass = t_.total(sum);
    return last;
  }

  __device__ std::int64_t draw(const plain::sample_view& a, const plain::distribution& d, std::int64_t first, bool) {
    std::uint64_t best = 0, place = 0;
    for (std::int64_t i = t_.rank(); i < d.n; i += t_.size()) {
      if (!d.kept(i))
        continue;
      const std::uint64_t key = order_key(plain::gumbel_score(a, d, i));
      if (key > best) { // ids ascend, so the earlier one of equals stays
        best = key;
        place = static_cast<std::uint64_t>(d.n - i);
      }
    }
    const std::uint64_t winner = t_.largest(best);
    place = t_.largest(best == winner ? place : 0);
    return place == 0 ? first : d.n - static_cast<std::int64_t>(place);
  }

  template <class Weight> __device__ unsigned_128 sum(std::int64_t n, const Weight& weight) {
    sum_stretches(n, weight);
    unsigned_128 all = 0; // every member for itself
    for (int m = 0; m < t_.size(); ++m)
      all += parts_.of_member[m];
    t_.sync();
    return all;
  }
  template <class Weight> __device__ std::int64_t id_at(std::int64_t n, const Weight& weight, unsigned_128 v) {
    sum_stretches(n, weight);
    if (t_.rank() == 0) {
      int m = 0;
      for (; m + 1 < t_.size() && parts_.of_member[m] <= v; ++m)
        v -= parts_.of_member[m];
      std::int64_t i = m * stretch(n);
      for (; i + 1 < n; ++i) {
        const unsigned_128 w = weight(i);
        if (w > v)
          break;
        v -= w;
      }
      parts_.id = i;
    }
    t_.sync();
    const std::int64_t id = parts_.id;
    t_.sync();
    return id;
  }

  __device__ std::int32_t top_list(const plain::distribution& d, std::int64_t wanted,
                                   std::pair<std::int32_t, float>* out) {
    const std::int64_t n = plain::larger(plain::smaller(wanted, d.n), std::int64_t{0});
    std::int64_t have = 0;
    for (std::uint64_t next = 0; have < n; ++have) { // next: smallest key that may follow
      std::uint64_t best = 0;                        // complement of the smallest
      for (std::int64_t i = t_.rank(); i < d.n; i += t_.size())
        if (d.kept(i) && plain::key_of(d.x[i], i) >= next)
          best = plain::larger(best, ~plain::key_of(d.x[i], i));
      best = t_.largest(best);
      if (best == 0)
        break; // no further kept id
      next = ~best + 1;
      if (t_.rank() == 0) {
        out[have].first = static_cast<std::int32_t>(plain::id_of(~best));
        out[have].second = d.logprob(plain::id_of(~best));
      }
    }
    for (std::int64_t base = 0; have < n && base < d.n; base += t_.size()) {
      const std::int64_t i = base + t_.rank();
      std::int32_t all = 0;
      const bool left_out = i < d.n && !d.kept(i);
      const std::int32_t before = t_.before(left_out, all);
      if (left_out && have + before < n) {
        out[have + before].first = static_cast<std::int32_t>(i);
        out[have + before].second = plain::lowest_logprob;
      }
      have += all;
    }
    t_.sync();
    return static_cast<std::int32_t>(n);
  }

private:
  __device__ std::int64_t stretch(std::int64_t n) const { return (n + t_.size() - 1) / t_.size(); }
  template <class Weight> __device__ void sum_stretches(std::int64_t n, const Weight& weight) {
    unsigned_128 mine = 0;
    const std::int64_t from = t_.rank() * stretch(n), to = plain::smaller(from + stretch(n), n);
    for (std::int64_t i = from; i < to; ++i)
      mine += weight(i);
    parts_.of_member[t_.rank()] = mine;
    t_.sync();
  }
  template <class Fn> __device__ std::uint64_t any(std::int64_t n, const Fn& fn) {
    std::uint64_t found = 0;
    for (std::int64_t i = t_.rank(); i < n; i += t_.size())
      found |= fn(i) ? 1u : 0u;
    return found;
  }

  block_team& t_;
  parts& parts_;
  float* row_;
  std::uint64_t* masses_;
};

std::size_t row_room(const sample_rows_args& a) { // numbers of a row's scratch, even
  return (static_cast<std::size_t>(a.vocab) + 1) / 2 * 2;
}

__global__ void sample_kernel(const sample_rows_args a, std::byte* scratch, std::size_t room,
                              std::uint32_t* fault_word) {
  __shared__ block_team::cells cells;
  block_team t(cells);
  std::uint64_t* masses = reinterpret_cast<std::uint64_t*>(scratch + blockIdx.x * room * (8 + 4));
  __shared__ parts shared_parts;
  team_steps steps(t, shared_parts, reinterpret_cast<float*>(masses + room), masses);
  for (std::int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
    const plain::sample_view v = plain::sample_view_of(a, i);
    std::pair<std::int32_t, float>* top = a.top.raw() + i * (a.max_top > 0 ? a.max_top : 0);
    for (std::int32_t j = t.rank(); j < a.max_top; j += t.size()) {
      top[j].first = -1;
      top[j].second = plain::lowest_logprob;
    }
    t.sync();
    const bool bad = v.forced >= a.vocab;
    if (bad && t.rank() == 0)
      report(fault_word, fault::forced_token);
    sample_result r; // no token
    if (!bad)
      r = plain::sample_row(steps, v, top);
    if (t.rank() == 0)
      plain::put_sample(a, i, r);
    t.sync();
  }
}

unsigned blocks_of(const sample_rows_args& a) {
  const auto rows = static_cast<std::size_t>(a.rows);
  return static_cast<unsigned>(rows < most_blocks ? rows : most_blocks);
}

} // namespace

std::size_t sample_scratch_bytes(const sample_rows_args& a) {
  return a.rows <= 0 ? 0 : blocks_of(a) * row_room(a) * (8 + 4);
}
void sample_rows(const launch& l, const sample_rows_args& a, std::byte* scratch) {
  if (a.rows <= 0)
    return;
  sample_kernel<<<blocks_of(a), threads, 0, l.stream>>>(a, scratch, row_room(a), l.fault_word);
  check_launch("sample_rows");
}

} // namespace troupe::cuda
