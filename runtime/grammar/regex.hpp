// Regular expressions as expressions of a grammar (structured_output.md §3). Repetitions stay counters; what has to be
// intersected is made a char_dfa instead (char_pattern.hpp).
#pragma once
#include "runtime/grammar/char_pattern.hpp"
#include "runtime/grammar/grammar_builder.hpp"
#include <string_view>

namespace troupe {

struct regex_options {
  bool dot_excludes_newline = false;
  // The text must only contain a match, as JSON schema's `pattern` asks: an end that is not anchored becomes ".*".
  bool search = false;
};

// Anchors stand at the ends of branches. Throws grammar_failure: so_syntax with the position, so_unsupported with the
// construct's name, so_too_complex.
grammar_expr regex_expression(grammar_builder& builder, std::string_view pattern, const regex_options& options = {},
                              text_form form = text_form::utf8);

} // namespace troupe
