// The median of the newest values of a sequence, kept sorted as they come and go.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace troupe {

class running_median {
public:
  explicit running_median(std::size_t capacity) : capacity_(capacity) {}

  // Takes the place of the oldest value once there are `capacity` of them.
  void add(double value) {
    if (size() == capacity_)
      drop_oldest();
    order_.push_back(value);
    sorted_.insert(std::ranges::upper_bound(sorted_, value), value);
  }
  void drop_oldest() {
    sorted_.erase(std::ranges::lower_bound(sorted_, order_[first_]));
    if (++first_ > capacity_) { // the dropped ones take as much room as the others: time to move up
      order_.erase(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
  }
  std::size_t size() const { return sorted_.size(); }
  // Of an even number the mean of the two in the middle; 0 of none.
  double median() const { return median_of_sorted(sorted_); }

  static double median_of_sorted(const std::vector<double>& sorted) {
    const std::size_t n = sorted.size();
    if (n == 0)
      return 0;
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  }

private:
  std::size_t capacity_, first_ = 0; // index of the oldest value in order_
  std::vector<double> order_;        // as they came; those before first_ are gone
  std::vector<double> sorted_;
};

} // namespace troupe
