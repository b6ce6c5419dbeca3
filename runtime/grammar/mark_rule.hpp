// Marks that readings put on their way, at most 64: what the set of those put allows and asks for. The keys of a JSON
// object that may come in any order, and each once, are such marks. Or, in place of a set, how many readings there
// were: the characters of a text that is matched by an automaton and limited in length.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

namespace troupe {

struct mark_rule {
  // The marks are the number of readings, this one may make it `room`; `uncounted` stays what it is. The rest says
  // nothing then.
  bool counts = false;
  static constexpr std::uint64_t uncounted = ~std::uint64_t{0};

  std::uint64_t puts = 0; // a bit, or nothing
  bool once = false;      // only if it is not put yet
  bool goes_on = false;   // reads what stands between two members: another reading must be able to follow
  // How many readings with marks can follow. Of these the marks need some that are not put yet: all of `needed`, and
  // so many that there are `least`.
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t needed = 0, least = 0;
  std::uint64_t open = ~std::uint64_t{0}; // goes_on: marks that can follow

  // The marks behind such a reading; nothing: it is not allowed, or could not be completed.
  std::optional<std::uint64_t> behind(std::uint64_t marks) const;
  // Whether it can be completed by any of these marks at all.
  bool possible(std::uint64_t marks) const;
};

} // namespace troupe
