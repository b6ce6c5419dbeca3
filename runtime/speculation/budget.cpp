#include "runtime/speculation/budget.hpp"
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace troupe {

row_budget budget_of(std::int32_t sequences, std::span<const float> survivals, std::span<const timed_size> times) {
  row_budget b{sequences + static_cast<std::int64_t>(survivals.size()), static_cast<float>(sequences), 0};
  for (const float v : survivals)
    b.expected += v;
  if (!times.empty()) {
    const auto size = std::ranges::lower_bound(times, b.rows, {}, &timed_size::rows);
    b.ms = size == times.end() ? times.back().ms : size->ms;
  }
  return b;
}

row_budget best_budget(std::int32_t sequences, std::span<const float> survivals, std::span<const timed_size> times) {
  if (times.empty())
    return budget_of(sequences, survivals, times);
  row_budget at = budget_of(sequences, {}, times);
  auto size = std::ranges::lower_bound(times, sequences, {}, &timed_size::rows);
  if (size == times.end())
    return at;
  row_budget best = at;
  double best_rate = static_cast<double>(at.expected) / at.ms;
  for (const float v : survivals) {
    at.expected += v;
    if (++at.rows > size->rows) {
      if (++size == times.end())
        break;
      at.ms = size->ms;
    }
    const double rate = static_cast<double>(at.expected) / at.ms;
    if (rate > best_rate) {
      best = at;
      best_rate = rate;
    }
  }
  return best;
}

// Numbers in [0, 1] are ordered like their bits, of which 30 are used: three passes over ten bits each take a fraction
// of what comparing takes, which no branch predictor foresees.
void sort_descending(std::vector<float>& values, std::vector<float>& scratch) {
  constexpr std::uint32_t digits = 1024;
  std::array<std::array<std::uint32_t, digits>, 3> place{};
  const auto digit = [](float v, int pass) { return ~std::bit_cast<std::uint32_t>(v) >> 10 * pass & (digits - 1); };
  for (const float v : values)
    for (int pass = 0; pass < 3; ++pass)
      ++place[static_cast<std::size_t>(pass)][digit(v, pass)];
  scratch.resize(values.size());
  for (int pass = 0; pass < 3; ++pass) {
    auto& next = place[static_cast<std::size_t>(pass)];
    std::uint32_t sum = 0;
    for (std::uint32_t& n : next)
      sum += std::exchange(n, sum);
    for (const float v : values)
      scratch[next[digit(v, pass)]++] = v;
    values.swap(scratch);
  }
}

} // namespace troupe
