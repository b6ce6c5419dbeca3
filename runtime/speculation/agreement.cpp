#include "runtime/speculation/agreement.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace troupe {

namespace {

std::vector<double> probabilities(std::span<const float> logits) {
  const double highest = *std::ranges::max_element(logits);
  std::vector<double> p(logits.size());
  std::ranges::transform(logits, p.begin(), [&](float l) { return std::exp(static_cast<double>(l) - highest); });
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p)
    v /= sum;
  return p;
}

} // namespace

// max(p_y / p_x, d_y / d_x) is the first where p_y / d_y is at least p_x / d_x: with the tokens in the order of that
// ratio, the sums over y are one over those behind x and one over those before it.
double coupled_agreement(std::span<const float> target, std::span<const float> draft) {
  TROUPE_CHECK(!target.empty() && target.size() == draft.size(), "two rows of one vocabulary");
  const std::vector<double> p = probabilities(target), d = probabilities(draft);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> ratio(p.size()); // as a logarithm, the same constant left out of all
  std::ranges::transform(target, draft, ratio.begin(), [](float t, float l) { return double{t} - l; });
  std::ranges::sort(order, std::ranges::greater(), [&](std::size_t i) { return ratio[i]; });
  std::vector<double> d_behind(p.size() + 1, 0.0); // of the tokens from this place on
  for (std::size_t i = p.size(); i-- > 0;)
    d_behind[i] = d_behind[i + 1] + d[order[i]];
  double sum = 0, p_before = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const std::size_t x = order[i];
    p_before += p[x];
    if (p[x] > 0 && d[x] > 0)
      sum += 1 / (p_before / p[x] + d_behind[i + 1] / d[x]);
  }
  return std::min(sum, 1.0);
}

double common_mass(std::span<const float> target, std::span<const float> draft) {
  TROUPE_CHECK(!target.empty() && target.size() == draft.size(), "two rows of one vocabulary");
  const std::vector<double> p = probabilities(target), d = probabilities(draft);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    sum += std::min(p[i], d[i]);
  return std::min(sum, 1.0);
}

} // namespace troupe
