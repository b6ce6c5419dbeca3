#include "runtime/model/engram.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/numpy_random.hpp"
#include <limits>

namespace troupe {
namespace {

__extension__ using uint128 = unsigned __int128;

std::uint64_t power_mod(std::uint64_t base, std::uint64_t exponent, std::uint64_t modulus) {
  std::uint64_t y = 1;
  for (base %= modulus; exponent; exponent >>= 1) {
    if (exponent & 1)
      y = static_cast<std::uint64_t>(uint128{y} * base % modulus);
    base = static_cast<std::uint64_t>(uint128{base} * base % modulus);
  }
  return y;
}

// Miller-Rabin; these witnesses decide every n < 2^64.
bool is_prime(std::uint64_t n) {
  constexpr std::uint64_t witnesses[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (n < 2)
    return false;
  for (std::uint64_t p : witnesses)
    if (n % p == 0)
      return n == p;
  std::uint64_t odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2)
    ++twos;
  for (std::uint64_t a : witnesses) {
    std::uint64_t x = power_mod(a, odd, n);
    if (x == 1 || x == n - 1)
      continue;
    int i = 1;
    for (; i < twos && x != n - 1; ++i)
      x = static_cast<std::uint64_t>(uint128{x} * x % n);
    if (x != n - 1)
      return false;
  }
  return true;
}

} // namespace

std::vector<std::vector<std::int64_t>> engram_primes(std::int64_t vocab_size, int layers, int orders, int heads) {
  TROUPE_CHECK(vocab_size >= 3, "engram_primes: vocab_size below 3");
  // Each (layer, order) starts again at vocab_size and skips what is used. Everything used so far is the run of primes
  // from vocab_size on, so the walk as a whole visits consecutive primes.
  std::uint64_t at = static_cast<std::uint64_t>(vocab_size) - 1;
  std::vector<std::vector<std::int64_t>> primes(static_cast<std::size_t>(layers));
  for (auto& of_layer : primes)
    for (int i = 0; i < orders * heads; ++i) {
      do
        ++at;
      while (!is_prime(at));
      of_layer.push_back(static_cast<std::int64_t>(at));
    }
  return primes;
}

std::vector<std::int64_t> engram_multipliers(int layer, std::int64_t compressed_vocab_size, int n) {
  const std::int64_t bound = std::numeric_limits<std::int64_t>::max() / compressed_vocab_size / 2;
  numpy_random random(10007ULL * static_cast<std::uint64_t>(layer));
  std::vector<std::int64_t> multipliers;
  for (int i = 0; i < n; ++i)
    multipliers.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound))) * 2 + 1);
  return multipliers;
}

std::vector<engram_table> engram_tables(const model_config& config) {
  const int n = config.engram_max_ngram_size;
  std::vector<engram_table> tables;
  if (config.engram_layer_ids.empty())
    return tables;
  auto primes = engram_primes(config.engram_vocab_size, static_cast<int>(config.engram_layer_ids.size()), n - 1,
                              config.engram_n_heads);
  for (std::size_t i = 0; i < primes.size(); ++i) {
    engram_table t;
    t.layer = config.engram_layer_ids[i];
    t.multipliers = engram_multipliers(t.layer, config.engram_compressed_vocab_size, n);
    t.primes = std::move(primes[i]);
    for (std::int64_t p : t.primes) {
      t.offsets.push_back(t.rows);
      t.rows += p;
    }
    tables.push_back(std::move(t));
  }
  return tables;
}

void engram_context(std::span<const std::int32_t> compressed, std::int64_t t, std::int32_t pad,
                    std::span<std::int32_t> context) {
  TROUPE_CHECK(t >= 0 && t < static_cast<std::int64_t>(compressed.size()),
               "engram_context: position outside the sequence");
  bool open = true; // no image token and no start of the sequence met so far
  for (std::size_t i = 0; i < context.size(); ++i) {
    const std::int64_t at = t - static_cast<std::int64_t>(i);
    open = open && at >= 0 && compressed[static_cast<std::size_t>(at)] >= 0;
    context[i] = open ? compressed[static_cast<std::size_t>(at)] : pad;
  }
}

void engram_hash_rows(const engram_table& table, std::span<const std::int32_t> context, std::span<std::int64_t> rows) {
  const std::size_t orders = table.multipliers.size() - 1, heads = table.primes.size() / orders;
  TROUPE_CHECK(context.size() == orders + 1 && rows.size() == table.primes.size(),
               "engram_hash_rows: wrong span sizes");
  std::int64_t hash = context[0] * table.multipliers[0];
  for (std::size_t i = 0; i < orders; ++i) {
    hash ^= context[i + 1] * table.multipliers[i + 1];
    for (std::size_t j = 0; j < heads; ++j)
      rows[i * heads + j] = table.offsets[i * heads + j] + hash % table.primes[i * heads + j];
  }
}

} // namespace troupe
