// Languages of the `format` names that are checked (structured_output.md 6.5).
#pragma once
#include "runtime/grammar/char_automaton.hpp"

#include <optional>
#include <string_view>

namespace troupe {

// The decoded texts of a format. Where not all of them are in `texts`, `possible` has those and all others that may
// have the format: such a format can be asked for, but no conclusion drawn from a text that is left out.
struct json_format {
  char_dfa texts;
  std::optional<char_dfa> possible = {};
};

// nullptr for a name that is not checked. Built at first use, kept for the process.
const json_format* find_format(std::string_view name);

} // namespace troupe
