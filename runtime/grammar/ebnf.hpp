// Grammars in the GBNF-like notation of structured_output.md §4.
#pragma once
#include "runtime/grammar/grammar_builder.hpp"
#include <string_view>

namespace troupe {

// Reads all rules and returns `root`. Throws grammar_failure: so_syntax with line and column (from 1, in characters)
// for text that does not parse, a rule defined twice or not at all, a missing root; so_too_complex for groups nested
// deeper than the budget's limit.
grammar_rule ebnf_grammar(grammar_builder& builder, std::string_view text);

} // namespace troupe
