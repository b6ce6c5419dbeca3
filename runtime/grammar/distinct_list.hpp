// A list of values that are all different, out of at most 64: what can come next, told from the set of those read.
#pragma once
#include <cstdint>
#include <vector>

namespace troupe {

struct distinct_list {
  std::vector<std::uint64_t> allowed; // values at each place, as bits; the last ones at all further places too
  std::uint64_t min = 0, max = 64;    // places, max <= 64

  // Behind the values `used`, one for each place: those that may be the last one, and those behind which another must
  // come, so that the list can be completed.
  std::uint64_t last(std::uint64_t used) const;
  std::uint64_t inner(std::uint64_t used) const;

  bool can_be_complete() const { return (last(0) | inner(0)) != 0; }

  std::uint64_t at(std::uint64_t place) const {
    return place < allowed.size() ? allowed[static_cast<std::size_t>(place)] : allowed.back();
  }
};

} // namespace troupe
