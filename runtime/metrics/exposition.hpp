// The text format 0.0.4 in which Prometheus reads metrics.
#pragma once
#include "runtime/metrics/histogram.hpp"
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

using metric_labels = std::vector<std::pair<std::string, std::string>>; // name, value

// Families one after the other: their samples follow the call that names them.
class exposition {
public:
  enum class type : std::uint8_t { counter, gauge, histogram };

  // name: as the samples carry it, with _total for counters.
  void family(std::string_view name, type of, std::string_view help);
  void sample(const metric_labels& labels, std::uint64_t value);
  void sample(const metric_labels& labels, double value);
  template <const auto& Bounds> void sample(const metric_labels& labels, const histogram<Bounds>& h) {
    buckets(labels, Bounds, h.counts, h.sum);
  }

  const std::string& text() const { return text_; }

private:
  void buckets(const metric_labels& labels, std::span<const double> bounds, std::span<const std::uint64_t> counts,
               double sum);
  void line(std::string_view suffix, const metric_labels& labels, std::string_view le, std::string_view value);

  std::string family_, text_;
};

} // namespace troupe
