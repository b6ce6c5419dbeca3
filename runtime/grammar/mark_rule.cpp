#include "runtime/grammar/mark_rule.hpp"
#include <algorithm>
#include <bit>

namespace troupe {

namespace {

std::uint64_t count(std::uint64_t marks) {
  return static_cast<std::uint64_t>(std::popcount(marks));
}

} // namespace

std::optional<std::uint64_t> mark_rule::behind(std::uint64_t marks) const {
  if (counts)
    return marks == uncounted ? std::optional(marks) : marks < room ? std::optional(marks + 1) : std::nullopt;
  if ((once && (marks & puts) != 0) || (goes_on && (open & ~marks) == 0))
    return std::nullopt;
  marks |= puts;
  const std::uint64_t known = count(marks), missing = count(needed & ~marks);
  if (std::max(missing, least > known ? least - known : 0) > room)
    return std::nullopt;
  return marks;
}

bool mark_rule::possible(std::uint64_t marks) const {
  return (needed & ~marks) == 0 && least <= count(marks);
}

} // namespace troupe
