#include "runtime/speculation/calibration.hpp"
#include "runtime/base/draft_split.hpp"
#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double lowest_temperature = 0.25, highest_temperature = 4;
constexpr int temperature_steps = 32; // equal ratios

std::size_t bin_of(double probability) {
  return std::min(static_cast<std::size_t>(probability * reliability::bins), reliability::bins - 1);
}

double temperature_at(int step) {
  return lowest_temperature *
         std::pow(highest_temperature / lowest_temperature, static_cast<double>(step) / temperature_steps);
}

} // namespace

std::uint64_t reliability::drafts() const {
  std::uint64_t sum = 0;
  for (const reliability_bin& b : bin)
    sum += b.drafts;
  return sum;
}

std::uint64_t reliability::accepted() const {
  std::uint64_t sum = 0;
  for (const reliability_bin& b : bin)
    sum += b.accepted;
  return sum;
}

double reliability::error() const {
  double sum = 0;
  for (const reliability_bin& b : bin)
    sum += std::abs(static_cast<double>(b.accepted) - b.confidence); // the bin's share times its drafts
  const std::uint64_t n = drafts();
  return n > 0 ? sum / static_cast<double>(n) : 0;
}

void calibration::observe(const verified_drafts& v) {
  if (v.confidences.empty())
    return;
  const auto verified = static_cast<std::int32_t>(v.confidences.size());
  const std::int32_t accepted = std::clamp(v.accepted, 0, verified);
  if (positions_.size() < v.confidences.size())
    positions_.resize(v.confidences.size());
  block& kept = recent_.size() < recent_blocks ? recent_.emplace_back() : recent_[blocks_ % recent_blocks];
  kept.confidences.clear();
  kept.accepted = accepted;
  for (std::int32_t j = 0; j < verified; ++j) {
    const float c = clamped_confidence(v.confidences[static_cast<std::size_t>(j)]);
    kept.confidences.push_back(c);
    if (j > accepted)
      continue; // not reached
    reliability_bin& b = positions_[static_cast<std::size_t>(j)].bin[bin_of(c)];
    ++b.drafts;
    b.confidence += c;
    b.accepted += j < accepted ? 1 : 0;
  }
  ++blocks_;
  drafts_ += static_cast<std::uint64_t>(verified);
  accepted_ += static_cast<std::uint64_t>(accepted);
}

bool calibration::useless() const {
  std::size_t drafts = 0;
  for (std::uint64_t i = 1; i <= std::min(alarm_blocks, blocks_); ++i) {
    const block& b = recent_[(blocks_ - i) % recent_blocks];
    if (b.accepted > 0)
      return false;
    drafts += b.confidences.size();
  }
  return drafts >= alarm_drafts;
}

double calibration::tokens_per_step() const {
  return blocks_ > 0 ? 1 + static_cast<double>(accepted_) / static_cast<double>(blocks_) : 1;
}

std::vector<double> calibration::suggested_temperatures(std::span<const double> current) const {
  std::vector<double> best(positions_.size(), 1);
  std::vector<double> product(recent_.size(), 1); // of each block's confidences so far, at the temperatures chosen
  std::vector<double> logit;
  std::vector<std::size_t> reaching;
  for (std::size_t j = 0; j < best.size(); ++j) {
    reaching.clear();
    logit.clear();
    const double made_with = j < current.size() ? current[j] : 1;
    for (std::size_t i = 0; i < recent_.size(); ++i)
      if (recent_[i].confidences.size() > j) {
        const double c = recent_[i].confidences[j];
        reaching.push_back(i);
        logit.push_back(std::log(c / (1 - c)) * made_with); // infinite at 0 and 1: no temperature moves these
      }
    if (reaching.size() < least_blocks) {
      best.resize(j);
      break;
    }
    const auto scaled = [&](std::size_t k, double t) { return product[reaching[k]] / (1 + std::exp(-logit[k] / t)); };
    double least = 2;
    for (int step = 0; step <= temperature_steps; ++step) {
      reliability r;
      for (std::size_t k = 0; k < reaching.size(); ++k) {
        const double p = scaled(k, temperature_at(step));
        reliability_bin& b = r.bin[bin_of(p)];
        ++b.drafts;
        b.confidence += p;
        b.accepted += recent_[reaching[k]].accepted > static_cast<std::int32_t>(j) ? 1 : 0;
      }
      if (const double e = r.error(); e < least) {
        least = e;
        best[j] = temperature_at(step);
      }
    }
    for (std::size_t k = 0; k < reaching.size(); ++k)
      product[reaching[k]] = scaled(k, best[j]);
  }
  best.resize(positions_.size(), 1);
  return best;
}

} // namespace troupe
