#include "runtime/grammar/distinct_list.hpp"
#include <algorithm>
#include <array>
#include <bit>

namespace troupe {

namespace {

std::uint64_t bit(int value) {
  return std::uint64_t{1} << value;
}

// Different values for places: a matching that grows by augmenting ways.
struct matching {
  const distinct_list& list;
  std::uint64_t values;    // that may be given
  std::uint64_t given = 0; // those that are
  std::array<std::uint8_t, 64> place_of{};

  bool serve(std::uint64_t place) {
    std::uint64_t tried = 0;
    return serve(place, tried);
  }

private:
  bool serve(std::uint64_t place, std::uint64_t& tried) {
    const std::uint64_t own = list.at(place) & values;
    if (const std::uint64_t open = own & ~given)
      return give(std::countr_zero(open), place);
    for (std::uint64_t others; (others = own & ~tried) != 0;) {
      const int value = std::countr_zero(others);
      tried |= bit(value);
      if (serve(place_of[static_cast<std::size_t>(value)], tried))
        return give(value, place);
    }
    return false;
  }
  bool give(int value, std::uint64_t place) {
    given |= bit(value);
    place_of[static_cast<std::size_t>(value)] = static_cast<std::uint8_t>(place);
    return true;
  }
};

} // namespace

std::uint64_t distinct_list::last(std::uint64_t used) const {
  const auto place = static_cast<std::uint64_t>(std::popcount(used));
  return place < max && place + 1 >= min ? at(place) & ~used : 0;
}

std::uint64_t distinct_list::inner(std::uint64_t used) const {
  const auto place = static_cast<std::uint64_t>(std::popcount(used));
  if (place + 1 >= max)
    return 0;
  matching rest{*this, ~used};
  for (std::uint64_t p = place + 1; p < std::max(place + 2, min); ++p)
    if (!rest.serve(p))
      return 0;
  std::uint64_t out = 0;
  for (std::uint64_t own = at(place) & ~used; own != 0; own &= own - 1) {
    const int value = std::countr_zero(own);
    matching without = rest; // whoever has the value gets another one
    without.values &= ~bit(value);
    without.given &= ~bit(value);
    if ((rest.given & bit(value)) == 0 || without.serve(rest.place_of[static_cast<std::size_t>(value)]))
      out |= bit(value);
  }
  return out;
}

} // namespace troupe
