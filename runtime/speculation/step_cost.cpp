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

step_cost::step_cost(std::vector<timed_size> curve, drafting_time drafting) : at_start_(drafting) {
  set_curve(std::move(curve));
}

step_cost step_cost::untimed(std::vector<std::int32_t> sizes) {
  step_cost c;
  c.sizes_to_learn_ = std::move(sizes);
  return c;
}

void step_cost::set_curve(std::vector<timed_size> curve) {
  TROUPE_CHECK(*curve_fault(curve) == '\0', "unusable step-cost curve");
  curve_ = std::move(curve);
  sizes_.resize(curve_.size());
  recent_.reserve(window);
}

// None, half, all, in turn.
std::int64_t step_cost::drafts_to_learn_from(std::int64_t most) const {
  return sizes_to_learn_.empty() ? most : most - most * (first_seen_ % 3) / 2;
}

void step_cost::learn_curve(const step_observation& o) {
  if (o.rows > sizes_to_learn_.back() || !(o.forward_ms > 0))
    return;
  first_times_[*std::ranges::lower_bound(sizes_to_learn_, o.rows)].push_back(o.forward_ms);
  if (++first_seen_ < first_steps || first_times_.size() < 2)
    return;
  std::vector<timed_size> points;
  for (auto& [rows, ms] : first_times_) {
    std::ranges::sort(ms);
    points.push_back({rows, running_median::median_of_sorted(ms)});
  }
  set_curve(curve_through(points, sizes_to_learn_));
  sizes_to_learn_.clear();
  first_times_.clear();
}

void step_cost::learn_drafting(const step_observation& o) {
  if (!o.drafted)
    return;
  drafting_.try_emplace(o.sequences, sampler_window).first->second.add(o.sampler_ms);
  all_drafting_.add(o.sampler_ms);
  if (const double start = at_start_.ms(o.sequences); start > 0)
    to_start_.add(o.sampler_ms / start);
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
  if (!std::isfinite(o.forward_ms) || !std::isfinite(o.sampler_ms) || o.forward_ms < 0 || o.sampler_ms < 0 ||
      o.rows < 1)
    return;
  if (!sizes_to_learn_.empty()) {
    learn_drafting(o);
    return learn_curve(o);
  }
  const auto at = std::ranges::lower_bound(curve_, o.rows, {}, &timed_size::rows);
  if (at == curve_.end())
    return;
  learn_drafting(o);

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

double step_cost::sampler_ms(std::int32_t sequences) const {
  const auto own = drafting_.find(sequences);
  if (own != drafting_.end() && own->second.size() >= least_sampler)
    return own->second.median();
  if (const double start = at_start_.ms(sequences); start > 0)
    return to_start_.size() >= least_sampler ? start * to_start_.median() : start;
  return all_drafting_.size() >= least_sampler ? all_drafting_.median() : 0;
}

// Between two sizes with enough steps their factors to the curve change evenly with the rows, outside they stay.
void step_cost::times(std::int32_t sequences, std::int64_t kv_tokens, std::vector<timed_size>& out) const {
  const double fixed = kv_ms_ * static_cast<double>(kv_tokens) + sampler_ms(sequences);
  const auto factor = [&](std::size_t i) {
    return std::max(.5, 1 + sizes_[i].residual.median() * curve_[i].rows / curve_[i].ms); // a step takes time
  };
  out.clear();
  std::size_t done = 0;
  double last = 0; // factor of the last size with enough steps; 0 = none yet
  for (std::size_t i = 0; i < curve_.size(); ++i) {
    if (sizes_[i].residual.size() < least_samples)
      continue;
    const double own = factor(i);
    for (const std::size_t first = done; done <= i; ++done) {
      const double way = last > 0 ? static_cast<double>(curve_[done].rows - curve_[first - 1].rows) /
                                        (curve_[i].rows - curve_[first - 1].rows)
                                  : 1;
      out.push_back({curve_[done].rows, curve_[done].ms * (last + way * (own - last)) + fixed});
    }
    last = own;
  }
  for (; done < curve_.size(); ++done)
    out.push_back({curve_[done].rows, curve_[done].ms * (last > 0 ? last : 1) + fixed});
}

} // namespace troupe
