// Rules that begin with themselves are rewritten, so that following a network needs no fixed points.
#pragma once
#include "runtime/grammar/rule_network.hpp"

namespace troupe {

// Needs `opening` and `can_be_empty` of the rules. Languages stay the same. `opening` is out of date afterwards.
void remove_left_recursion(rule_network& net, compile_budget& budget);

// Sets `rank`; the network must be free of left recursion and `opening` current.
void rank_rules(rule_network& net);

} // namespace troupe
