#include "runtime/speculation/starting_curve.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace troupe {

namespace {

constexpr std::int32_t small_rows = 16; // of the second size that is timed

class stopwatch_of_sizes {
public:
  stopwatch_of_sizes(std::span<const std::int32_t> sizes, const step_timer& time_step, double most_ms)
      : sizes_(sizes), time_step_(time_step), most_ms_(most_ms) {}

  // The quicker of two, behind one that does not count: other work only ever adds. No step begins once the time is
  // over. False: it cannot be timed.
  bool time(std::size_t at) {
    double quickest = std::numeric_limits<double>::infinity();
    for (int n = 0; n < 3 && spent_ < most_ms_; ++n) {
      const double ms = time_step_(sizes_[at]);
      if (!(ms > 0))
        return false;
      spent_ += ms;
      if (n > 0)
        quickest = std::min(quickest, ms);
    }
    if (!std::isfinite(quickest))
      return false;
    known_[at] = quickest;
    return true;
  }
  // The size in the middle of the widest gap between two timed ones; nothing is left where it is timed itself.
  std::size_t widest_gap() const {
    std::size_t best = known_.begin()->first, width = 1;
    for (auto left = known_.begin(), right = std::next(left); right != known_.end(); left = right++)
      if (right->first - left->first > width) {
        width = right->first - left->first;
        best = left->first + width / 2;
      }
    return best;
  }
  bool known(std::size_t at) const { return known_.contains(at); }
  // Small steps first, then the first size of twice the rows of the largest one timed, or the last; where the last is
  // timed, one in a gap.
  std::size_t next() const {
    for (const std::int32_t rows : {4, 2, 8}) // a few sequences with a few drafts each
      if (const auto at = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, rows) - sizes_.begin());
          at < known_.rbegin()->first && !known_.contains(at))
        return at;
    const std::size_t most = known_.rbegin()->first, last = sizes_.size() - 1;
    if (most == last)
      return widest_gap();
    const auto twice = std::ranges::lower_bound(sizes_, 2 * sizes_[most]);
    return std::min(static_cast<std::size_t>(twice - sizes_.begin()), last);
  }
  // What timing that size takes, about.
  double next_ms() const {
    const auto& [at, ms] = *known_.rbegin();
    const std::size_t after = next();
    const double larger = static_cast<double>(sizes_[after]) / sizes_[at];
    return 3 * (after < at ? std::max(larger * ms, known_.begin()->second) : ms * std::max(1.0, larger));
  }
  bool has_time_for_next() const { return spent_ + next_ms() <= most_ms_; }
  std::vector<timed_size> points() const {
    std::vector<timed_size> out;
    for (const auto& [at, ms] : known_)
      out.push_back({sizes_[at], ms});
    return out;
  }

private:
  std::span<const std::int32_t> sizes_;
  const step_timer& time_step_;
  std::map<std::size_t, double> known_; // ms by index of the size
  double most_ms_, spent_ = 0;
};

std::vector<timed_size> measured(std::span<const std::int32_t> sizes, const step_timer& time_step, double most_ms) {
  if (sizes.empty())
    return {};
  stopwatch_of_sizes watch(sizes, time_step, most_ms);
  const auto small = static_cast<std::size_t>(std::ranges::upper_bound(sizes, small_rows) - sizes.begin());
  const std::size_t second = std::max(small, std::min<std::size_t>(2, sizes.size())) - 1;
  if (!watch.time(0) || (second > 0 && !watch.time(second)))
    return {};
  while (watch.has_time_for_next()) {
    const std::size_t next = watch.next();
    if (watch.known(next) || !watch.time(next))
      break;
  }
  return watch.points();
}

} // namespace

starting_curve make_starting_curve(const std::string& file, const cost_key& key, const step_timer& time_step,
                                   std::int64_t now, double most_ms) {
  starting_curve out;
  if (!file.empty()) {
    auto stored = load_cost_curve(file, key, now);
    if (stored) {
      out.curve = std::move(*stored);
      out.notes.push_back("step-cost curve from " + file);
      return out;
    }
    if (stored.failure().code != "not_found")
      out.notes.push_back(stored.failure().message);
  }
  const auto points = measured(key.sizes, time_step, most_ms);
  if (points.empty()) {
    if (!key.sizes.empty())
      out.notes.emplace_back("step-cost curve from the first steps (too few could be timed at the start)");
    return out;
  }
  out.curve = curve_through(points, key.sizes);
  out.notes.push_back("step-cost curve through " + std::to_string(points.size()) + " timed sizes");
  if (file.empty())
    return out;
  if (const status written = save_cost_curve(file, key, out.curve, now); !written)
    out.notes.push_back("the step-cost curve was not kept: " + written.failure().message);
  return out;
}

} // namespace troupe
