#include "runtime/speculation/acceptance_forecast.hpp"
#include "runtime/base/draft_split.hpp"
#include <algorithm>

namespace troupe {

void acceptance_forecast::observe(std::span<const float> before, std::int32_t verified, std::int32_t accepted) {
  constexpr double keep = 1 - 1 / window;
  const auto drafts = std::min(positions_.size(), static_cast<std::size_t>(std::max(verified, 0)));
  double survival = 1;
  for (std::size_t j = 0; j < drafts; ++j) {
    position& p = positions_[j];
    const double came = static_cast<std::int32_t>(j) < accepted ? 1 : 0;
    p.all = keep * p.all + 1;
    p.all_y = keep * p.all_y + came;
    // A block whose confidences nobody knows in time is as good as any: where the line lies, though not its slope.
    if (j < before.size())
      survival *= clamped_confidence(before[j]);
    else if (p.n > 0)
      survival = p.x / p.n;
    else
      continue;
    p.n = keep * p.n + 1;
    p.x = keep * p.x + survival;
    p.y = keep * p.y + came;
    p.xx = keep * p.xx + survival * survival;
    p.xy = keep * p.xy + survival * came;
    p.fitted = false;
    if (j < before.size()) {
      make_bins_lighter(p, 1 - 1 / bin_window);
      p.bin_n[bin_of(survival)] += p.bin_weight;
      p.bin_y[bin_of(survival)] += p.bin_weight * came;
    }
  }
}

void acceptance_forecast::make_bins_lighter(position& p, double by) {
  constexpr double heaviest = 1e9;
  p.bin_weight /= by;
  if (p.bin_weight < heaviest)
    return;
  for (std::size_t b = 0; b < bins; ++b) {
    p.bin_n[b] /= p.bin_weight;
    p.bin_y[b] /= p.bin_weight;
  }
  p.bin_weight = 1;
}

// A line through the outcomes. The prior pulls it to y = x: as many outcomes as it stands for have the mean of the
// others for their survivals, and the variance of survivals that are spread evenly.
void acceptance_forecast::fit(const position& p) {
  const double believed = prior_beside(p.n), spread = believed / 12;
  const double mean = p.x / p.n, variance = p.xx - p.x * mean, covariance = p.xy - p.y * mean;
  const double slope = std::clamp((covariance + spread) / (variance + spread), 0.0, 1.0);
  p.slope = static_cast<float>(slope);
  p.offset = static_cast<float>(mean + (p.y - p.x) / (p.n + believed) - slope * mean);
  p.fitted = true;
}

void acceptance_forecast::correct(std::span<float> survivals, bool known) const {
  float most = 1;
  for (std::size_t j = 0; j < std::min(survivals.size(), positions_.size()); ++j) {
    const position& p = positions_[j];
    float s = survivals[j];
    if (known && !p.fitted)
      fit(p);
    if (known) {
      const std::size_t b = bin_of(s);
      s = p.offset + p.slope * s;
      if (const double believed = bin_prior * p.bin_weight; p.bin_n[b] >= believed)
        s = static_cast<float>((p.bin_y[b] + believed * s) / (p.bin_n[b] + believed));
    } else if (const double believed = prior_beside(p.all); p.all > 0)
      s = static_cast<float>((p.all_y + believed * s) / (p.all + believed));
    survivals[j] = most = std::clamp(s, 0.0f, most);
  }
}

} // namespace troupe
