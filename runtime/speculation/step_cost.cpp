#include "runtime/speculation/step_cost.hpp"
#include "runtime/base/check.hpp"
#include <cmath>
#include <utility>

namespace troupe {

const char* curve_fault(std::span<const timed_size> curve) {
  std::int32_t last = 0;
  for (const timed_size& t : curve) {
    if (t.rows <= last)
      return "its sizes do not ascend from 1";
    if (!(std::isfinite(t.ms) && t.ms > 0))
      return "it has a time that is no positive number";
    last = t.rows;
  }
  return "";
}

std::vector<timed_size> curve_through(std::span<const timed_size> points, std::span<const std::int32_t> sizes) {
  std::vector<timed_size> out;
  if (points.empty())
    return out;
  std::size_t right = 1; // the line through right - 1 and right
  double highest = points.front().ms;
  std::vector<timed_size> rising(points.begin(), points.end());
  for (timed_size& p : rising)
    p.ms = highest = std::max(highest, p.ms);
  for (const std::int32_t rows : sizes) {
    while (right + 1 < rising.size() && rising[right].rows < rows)
      ++right;
    const timed_size& a = rising[right - 1];
    const timed_size& b = rising[std::min(right, rising.size() - 1)];
    const double by_row = b.rows > a.rows ? (b.ms - a.ms) / (b.rows - a.rows) : 0;
    // Continued below the smallest size a line could reach 0; half of the first time is far below what was measured.
    out.push_back({rows, std::max(a.ms + by_row * (rows - a.rows), rising.front().ms / 2)});
  }
  return out;
}

step_cost::step_cost(std::vector<timed_size> curve, drafting_time drafting)
    : curve_(std::move(curve)), at_start_(drafting), sizes_(curve_.size()) {
  TROUPE_CHECK(*curve_fault(curve_) == '\0', "unusable step-cost curve");
  recent_.reserve(window);
}

// Context grows slowly and steps differ in time by chance: a step is compared with one of its size whose context is
// clearly another, and the median of many such differences counts.
void step_cost::learn_context(size_samples& s, const step_observation& o) {
  constexpr std::int64_t least_change = 256;
  if (s.anchor_kv >= 0 && std::abs(o.kv_tokens - s.anchor_kv) < std::max(least_change, s.anchor_kv / 4))
    return;
  if (s.anchor_kv >= 0)
    s.kv.add((o.forward_ms - s.anchor_ms) / static_cast<double>(o.kv_tokens - s.anchor_kv));
  s.anchor_kv = o.kv_tokens;
  s.anchor_ms = o.forward_ms;
  kv_ms_ = std::max(0.0, median_of_medians(&size_samples::kv));
}

void step_cost::observe(const step_observation& o) {
  const auto at = std::ranges::lower_bound(curve_, o.rows, {}, &timed_size::rows);
  if (at == curve_.end() || !std::isfinite(o.forward_ms) || !std::isfinite(o.sampler_ms) || o.forward_ms < 0 ||
      o.sampler_ms < 0 || o.rows < 1)
    return;
  (o.drafted ? drafting_ : plain_).add(o.sequences, o.sampler_ms);

  const auto index = static_cast<std::uint32_t>(at - curve_.begin());
  size_samples& s = sizes_[index];
  learn_context(s, o);
  const auto place = static_cast<std::size_t>(observed_++ % window);
  if (place < recent_.size())
    sizes_[std::exchange(recent_[place], index)].residual.drop_oldest();
  else
    recent_.push_back(index);
  s.residual.add((o.forward_ms - at->ms - kv_ms_ * static_cast<double>(o.kv_tokens)) / at->rows);
  slope_ = std::max(0.0, median_of_medians(&size_samples::residual));
}

double step_cost::median_of_medians(running_median size_samples::*which) const {
  std::vector<double> medians;
  for (const size_samples& s : sizes_)
    if ((s.*which).size() >= least_samples)
      medians.push_back((s.*which).median());
  std::ranges::sort(medians);
  return running_median::median_of_sorted(medians);
}

void step_cost::sampler_samples::add(std::int32_t sequences, double ms) {
  by_sequences.try_emplace(sequences, sampler_window).first->second.add(ms);
  all.add(ms);
}

double step_cost::sampler_samples::ms(std::int32_t sequences) const {
  const auto own = by_sequences.find(sequences);
  if (own != by_sequences.end() && own->second.size() >= least_sampler)
    return own->second.median();
  return all.size() >= least_sampler ? all.median() : 0;
}

double step_cost::sampler_ms(std::int32_t sequences) const {
  return drafting_.all.size() < least_sampler ? at_start_.ms(sequences) : drafting_.ms(sequences);
}

double step_cost::drafting_ms(std::int32_t sequences) const {
  if (plain_.all.size() < least_sampler || drafting_.all.size() < least_sampler)
    return at_start_.ms(sequences);
  return std::max(0.0, drafting_.ms(sequences) - plain_.ms(sequences));
}

void step_cost::times(std::int32_t sequences, std::int64_t kv_tokens, std::vector<timed_size>& out) const {
  const double fixed = kv_ms_ * static_cast<double>(kv_tokens) + sampler_ms(sequences);
  out.clear();
  for (const timed_size& t : curve_)
    out.push_back({t.rows, t.ms + slope_ * t.rows + fixed});
}

} // namespace troupe
