// Grammars in the GBNF-like notation of structured_output.md §4.
#pragma once
#include "runtime/grammar/grammar_builder.hpp"
#include "runtime/grammar/token_vocabulary.hpp"
#include <string_view>

namespace troupe {

// Reads all rules and returns `root`. Throws grammar_failure: so_syntax with line and column (from 1, in characters)
// for text that does not parse, a rule defined twice or not at all, a missing root, a token id outside the vocabulary;
// so_unsupported for the end token as a part of the text; so_too_complex for groups nested deeper than the budget's
// limit.
grammar_rule ebnf_grammar(grammar_builder& builder, std::string_view text, const token_vocabulary& vocabulary);

} // namespace troupe
