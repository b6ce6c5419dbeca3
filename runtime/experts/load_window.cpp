#include "runtime/experts/load_window.hpp"
#include <algorithm>

namespace troupe {

load_window::load_window(std::int32_t layers, std::int32_t experts, std::int32_t steps)
    : layers_(layers), experts_(experts), capacity_(std::max(steps, 1)) {
  ring_.resize(cells() * static_cast<std::size_t>(capacity_));
  sums_.resize(cells());
}

bool load_window::add(std::span<const std::uint32_t> counts) {
  if (counts.size() != cells())
    return false;
  std::uint32_t* place = ring_.data() + cells() * static_cast<std::size_t>(next_);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sums_[i] += counts[i];
    sums_[i] -= filled_ == capacity_ ? place[i] : 0;
    place[i] = counts[i];
  }
  next_ = (next_ + 1) % capacity_;
  filled_ = std::min(filled_ + 1, capacity_);
  ++steps_ever_;
  return true;
}

std::uint64_t load_window::rows(std::int32_t layer, std::int32_t expert) const {
  return sums_[static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts_) + static_cast<std::size_t>(expert)];
}

layer_load load_window::layer(std::int32_t layer) const {
  layer_load out{std::max(filled_, 1), experts_, {}};
  for (std::int32_t step = 0; step < filled_; ++step) {
    const std::int32_t place = (next_ - filled_ + step + capacity_) % capacity_;
    const std::uint32_t* counts = ring_.data() + cells() * static_cast<std::size_t>(place) +
                                  static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts_);
    for (std::int32_t e = 0; e < experts_; ++e)
      out.rows.push_back(static_cast<float>(counts[e]));
  }
  out.rows.resize(static_cast<std::size_t>(out.steps) * static_cast<std::size_t>(experts_));
  return out;
}

double load_window::balancedness(const expert_placement& p) const {
  double mean = 0, peak = 0;
  std::vector<double> load(static_cast<std::size_t>(p.ranks));
  for (std::int32_t layer = 0; layer < layers_ && layer < p.layers; ++layer) {
    const auto slots = slots_of(p, layer);
    for (std::int32_t step = 0; step < filled_; ++step) {
      const std::uint32_t* counts = ring_.data() + cells() * static_cast<std::size_t>(step) +
                                    static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts_);
      std::fill(load.begin(), load.end(), 0.0);
      double total = 0;
      for (std::size_t e = 0; e < slots.size() && e < static_cast<std::size_t>(experts_); ++e) {
        total += counts[e];
        for (const std::int32_t slot : slots[e])
          load[static_cast<std::size_t>(slot / p.slots_per_rank)] +=
              static_cast<double>(counts[e]) / static_cast<double>(slots[e].size());
      }
      mean += total / p.ranks;
      peak += *std::max_element(load.begin(), load.end());
    }
  }
  return peak > 0 ? mean / peak : 1;
}

} // namespace troupe
