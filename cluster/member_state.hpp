// What a process is to its cluster (cluster.md §3.3, §3.4).
#pragma once
#include <cstdint>

namespace troupe {

enum class member_role : std::uint8_t { node_agent, worker, gateway };

enum class member_state : std::uint8_t {
  joining, // known, nothing loaded
  warming, // loads, or waits for others: takes no steps
  active,
  draining, // takes nothing new
  left,     // gone as planned
  suspect,  // silent: gets no new work
  dead      // for good: the process may come back under another incarnation only
};
// Nothing comes from that process any more.
constexpr bool is_over(member_state s) {
  return s == member_state::left || s == member_state::dead;
}

} // namespace troupe
