// Pairwise covering arrays: few combinations of settings in which every value of every setting meets every value of
// every other one.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

namespace test_support {

using setting_pair = std::tuple<std::size_t, int, std::size_t, int>; // setting, its value, a later setting, its value

inline std::set<setting_pair> all_pairs(const std::vector<int>& sizes) {
  std::set<setting_pair> pairs;
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b)
      for (int x = 0; x < sizes[a]; ++x)
        for (int y = 0; y < sizes[b]; ++y)
          pairs.insert({a, x, b, y});
  return pairs;
}

// Rows of one value per setting, sizes[i] values in setting i; the seed decides which of many arrays. Greedy: each row
// starts from a pair that is still missing and takes for each further setting the value that adds most new pairs.
inline std::vector<std::vector<int>> covering_array(const std::vector<int>& sizes, std::uint64_t seed = 1) {
  std::set<setting_pair> missing = all_pairs(sizes);
  auto below = [state = seed * 0x9e3779b97f4a7c15u + 1](std::size_t n) mutable {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<std::size_t>(state % n);
  };
  std::vector<std::vector<int>> rows;
  while (!missing.empty()) {
    std::vector<int> row(sizes.size(), -1);
    const auto [a, x, b, y] = *std::next(missing.begin(), static_cast<std::ptrdiff_t>(below(missing.size())));
    row[a] = x;
    row[b] = y;
    const auto gain = [&](std::size_t setting, int value) {
      std::size_t found = 0;
      for (std::size_t other = 0; other < sizes.size(); ++other)
        if (other != setting && row[other] >= 0)
          found += missing.count(other < setting ? setting_pair{other, row[other], setting, value}
                                                 : setting_pair{setting, value, other, row[other]});
      return found;
    };
    std::vector<std::size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[below(i)]);
    for (const std::size_t setting : order) {
      if (row[setting] >= 0)
        continue;
      const int first = static_cast<int>(below(static_cast<std::size_t>(sizes[setting])));
      int best = first;
      for (int k = 1; k < sizes[setting]; ++k)
        if (const int value = (first + k) % sizes[setting]; gain(setting, value) > gain(setting, best))
          best = value;
      row[setting] = best;
    }
    for (std::size_t p = 0; p < row.size(); ++p)
      for (std::size_t q = p + 1; q < row.size(); ++q)
        missing.erase({p, row[p], q, row[q]});
    rows.push_back(std::move(row));
  }
  return rows;
}

} // namespace test_support
