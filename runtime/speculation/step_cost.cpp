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
  return sizes_to_learn_.empty() ? most : most * (first_seen_ % 3) / 2;
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

void step_cost::learn_drafting(const step_observation& o, double pace) {
  if (!o.drafted)
    return;
  drafting_.add(o.sequences, o.sampler_ms, at_start_);
  even_drafting_.add(o.sequences, o.sampler_ms / pace, at_start_);
}

void step_cost::drafting_samples::add(std::int32_t sequences, double ms, const drafting_time& start) {
  of.try_emplace(sequences, window).first->second.add(ms);
  all.add(ms);
  if (const double at_start = start.ms(sequences); at_start > 0)
    to_start.add(ms / at_start);
}

double step_cost::drafting_samples::ms(std::int32_t sequences, const drafting_time& start) const {
  const auto own = of.find(sequences);
  if (own != of.end() && own->second.size() >= least_sampler)
    return own->second.median();
  if (const double at_start = start.ms(sequences); at_start > 0)
    return to_start.size() >= least_sampler ? at_start * to_start.median() : at_start;
  return all.size() >= least_sampler ? all.median() : 0;
}

// A step of a size whose time is known shows the present pace, and every step, at that pace, its size's time. Returns
// the step's own pace: its draft round ran at the same time.
double step_cost::learn_shape(size_samples& s, double curve_ms, double ms) {
  double own = pace();
  if (s.shape.size() >= least_samples)
    pace_.add(own = ms / (curve_ms * s.shape.median()));
  s.shape.add(ms / (curve_ms * pace()));
  return own;
}

// Context grows slowly and steps differ in time by chance: a step is compared with one of its size whose context is
// clearly another, and the median of many such differences counts. True: this was one.
bool step_cost::learn_context(size_samples& s, const step_observation& o) {
  constexpr std::int64_t least_change = 256;
  const bool anchored = s.anchor_kv >= 0 && observed_ - s.anchored_at < window;
  if (anchored && std::abs(o.kv_tokens - s.anchor_kv) < std::max(least_change, s.anchor_kv / 4))
    return false;
  if (anchored)
    s.kv.add((o.forward_ms - s.anchor_ms) / static_cast<double>(o.kv_tokens - s.anchor_kv));
  s.anchor_kv = o.kv_tokens;
  s.anchor_ms = o.forward_ms;
  s.anchored_at = observed_;
  return anchored;
}

bool step_cost::forget(const seen_step& oldest) {
  size_samples& s = sizes_[oldest.size];
  s.residual.drop_oldest();
  s.shape.drop_oldest();
  if (oldest.has_kv)
    s.kv.drop_oldest();
  return oldest.has_kv;
}

// Of its size such a step says nothing.
void step_cost::learn_make_up(const step_observation& o) {
  learn_drafting(o, pace());
  const auto at = std::ranges::lower_bound(curve_, o.rows, {}, &timed_size::rows);
  if (at == curve_.end() || o.sequences < 1)
    return;
  const size_samples& s = sizes_[static_cast<std::size_t>(at - curve_.begin())];
  if (s.shape.size() >= least_samples)
    make_up_.add((o.forward_ms - pace() * at->ms * s.shape.median() - kv_ms_ * static_cast<double>(o.kv_tokens)) /
                 o.sequences);
}

void step_cost::observe(const step_observation& o) {
  if (!std::isfinite(o.forward_ms) || !std::isfinite(o.sampler_ms) || o.forward_ms < 0 || o.sampler_ms < 0 ||
      o.rows < 1)
    return;
  const int undrafted = std::exchange(undrafted_, o.drafted ? 0 : undrafted_ + 1);
  if (o.drafted && undrafted > 1) // behind a single one, which verified drafts, nothing has to be made up for
    return learn_make_up(o);
  if (!sizes_to_learn_.empty()) {
    learn_drafting(o, 1);
    return learn_curve(o);
  }
  const auto at = std::ranges::lower_bound(curve_, o.rows, {}, &timed_size::rows);
  if (at == curve_.end())
    return;

  const auto index = static_cast<std::uint32_t>(at - curve_.begin());
  size_samples& s = sizes_[index];
  const auto place = static_cast<std::size_t>(observed_ % window);
  bool kv_changes = false;
  if (place == recent_.size())
    recent_.emplace_back();
  else
    kv_changes = forget(recent_[place]);
  recent_[place] = {index, learn_context(s, o)};
  ++observed_;
  if (kv_changes || recent_[place].has_kv)
    kv_ms_ = std::max(0.0, median_of_medians(&size_samples::kv));
  // A step takes time, whatever its context is believed to have cost: paces are quotients.
  constexpr double least = .05;
  const double ms = std::max(o.forward_ms - kv_ms_ * static_cast<double>(o.kv_tokens), least * at->ms);
  learn_drafting(o, learn_shape(s, at->ms, ms));
  s.residual.add((ms - at->ms) / at->rows);
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

bool step_cost::has_seen(std::int32_t rows) const {
  const auto at = std::ranges::lower_bound(curve_, rows, {}, &timed_size::rows);
  return at != curve_.end() && sizes_[static_cast<std::size_t>(at - curve_.begin())].shape.size() >= least_samples;
}

// Between two sizes with enough steps their factors to the curve change evenly with the rows, outside they stay.
void step_cost::times(std::int32_t sequences, std::int64_t kv_tokens, std::vector<timed_size>& out) const {
  const double fixed = kv_ms_ * static_cast<double>(kv_tokens) + drafting_ms(sequences), now = pace();
  const auto factor = [&](std::size_t i) {
    return std::max(.5, now * sizes_[i].shape.median()); // a step takes time
  };
  out.clear();
  std::size_t done = 0;
  double last = 0; // factor of the last size with enough steps; 0 = none yet
  for (std::size_t i = 0; i < curve_.size(); ++i) {
    if (sizes_[i].shape.size() < least_samples)
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
    out.push_back({curve_[done].rows, curve_[done].ms * (last > 0 ? last : now) + fixed});
}

} // namespace troupe
