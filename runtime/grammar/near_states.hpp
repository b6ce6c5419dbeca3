// Large automata of strings (a pattern that counts words, met with a maxLength) have many states that differ only far
// ahead: no token is long enough to tell them apart. Their masks are shared (structured_output.md §8.3).
#pragma once
#include "runtime/grammar/rule_network.hpp"

namespace troupe {

// So many bytes ahead states are compared; few tokens are longer, and those are looked at one by one.
inline constexpr std::uint32_t near_bytes = 24;

// Fills net.stand_in and net.uncounted_below for the states of net.text_rules.
void find_stand_ins(rule_network& net, compile_budget& budget);

} // namespace troupe
