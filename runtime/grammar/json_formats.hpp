// Languages of the `format` names that are checked (structured_output.md 6.5).
#pragma once
#include "runtime/grammar/char_automaton.hpp"

#include <string_view>

namespace troupe {

// The decoded texts of a format; nullptr for a name that is not checked. Built at first use, kept for the process.
const char_dfa* format_language(std::string_view name);

} // namespace troupe
