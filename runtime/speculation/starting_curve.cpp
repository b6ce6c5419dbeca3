#include "runtime/speculation/starting_curve.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <algorithm>
#include <map>
#include <utility>

namespace troupe {

namespace {

constexpr std::int32_t small_rows = 16; // of the second size that is timed whatever it takes

class stopwatch_of_sizes {
public:
  stopwatch_of_sizes(std::span<const std::int32_t> sizes, const step_timer& time_step)
      : sizes_(sizes), time_step_(time_step) {}

  // The quicker of two, behind one that does not count: other work only ever adds. False: it cannot be timed.
  bool time(std::size_t at) {
    double ms[3];
    for (double& t : ms) {
      t = time_step_(sizes_[at]);
      if (!(t > 0))
        return false;
      spent_ += t;
    }
    known_[at] = std::min(ms[1], ms[2]);
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
  double spent() const { return spent_; }
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
  double spent_ = 0;
};

std::vector<timed_size> measured(std::span<const std::int32_t> sizes, const step_timer& time_step, double most_ms) {
  if (sizes.empty())
    return {};
  stopwatch_of_sizes watch(sizes, time_step);
  const auto small = static_cast<std::size_t>(std::ranges::upper_bound(sizes, small_rows) - sizes.begin());
  const std::size_t second = std::max(small, std::min<std::size_t>(2, sizes.size())) - 1;
  if (!watch.time(0) || (second > 0 && !watch.time(second)))
    return {};
  while (watch.spent() + watch.next_ms() <= most_ms) {
    const std::size_t next = watch.next();
    if (watch.known(next) || !watch.time(next))
      break;
  }
  return watch.points();
}

} // namespace

starting_curve make_starting_curve(const std::string& file, const cost_key& key, const step_timer& time_step,
                                   double most_ms) {
  starting_curve out;
  if (!file.empty()) {
    auto stored = load_cost_curve(file, key);
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
      out.notes.emplace_back("no step could be timed: every draft at hand is verified");
    return out;
  }
  out.curve = curve_through(points, key.sizes);
  out.notes.push_back("step-cost curve through " + std::to_string(points.size()) + " timed sizes");
  if (file.empty())
    return out;
  if (const status written = save_cost_curve(file, key, out.curve); !written)
    out.notes.push_back("the step-cost curve was not kept: " + written.failure().message);
  return out;
}

} // namespace troupe
