// Rows routed to each expert over the last steps: what placement policies work on (cluster.md §1.5).
#pragma once
#include "runtime/experts/layer_load.hpp"
#include "runtime/experts/placement.hpp"
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class load_window {
public:
  load_window(std::int32_t layers, std::int32_t experts, std::int32_t steps);

  // One step's counts, [layers, experts]; the oldest step falls out of a full window. Counts of another size are
  // refused.
  bool add(std::span<const std::uint32_t> counts);

  std::int32_t steps() const { return filled_; } // in the window
  std::uint64_t steps_ever() const { return steps_ever_; }
  // Rows of one expert in the window.
  std::uint64_t rows(std::int32_t layer, std::int32_t expert) const;
  // [layers, experts] sums over the window.
  const std::vector<std::uint64_t>& sums() const { return sums_; }

  // What a placement policy looks at: the window's steps, oldest first; of an empty window one step without rows.
  layer_load layer(std::int32_t layer) const;

  // Sum over steps and layers of the mean load of a rank, divided by the same sum of the busiest rank's load; 1 is
  // perfect balance, also of an empty window. An expert's rows are shared equally by its slots.
  double balancedness(const expert_placement& p) const;

private:
  std::size_t cells() const { return static_cast<std::size_t>(layers_) * static_cast<std::size_t>(experts_); }

  std::int32_t layers_, experts_, capacity_, filled_ = 0, next_ = 0;
  std::uint64_t steps_ever_ = 0;
  std::vector<std::uint32_t> ring_; // [capacity, layers, experts]
  std::vector<std::uint64_t> sums_;
};

} // namespace troupe
