// Counts of observations by size, as Prometheus wants them: plain numbers that their owner bumps and copies.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace troupe {

// Bounds: an ascending std::array of the largest values that the buckets take; what is above all of them has a bucket
// of its own at the end.
template <const auto& Bounds> struct histogram {
  static constexpr const auto& bounds = Bounds;
  std::array<std::uint64_t, Bounds.size() + 1> counts{}; // [buckets], each by itself
  double sum = 0;                                        // of all values

  void observe(double value) {
    ++counts[static_cast<std::size_t>(std::ranges::lower_bound(Bounds, value) - Bounds.begin())];
    sum += value;
  }
  void add(const histogram& other) {
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] += other.counts[i];
    sum += other.sum;
  }
  std::uint64_t count() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }

  bool operator==(const histogram&) const = default;
};

} // namespace troupe
