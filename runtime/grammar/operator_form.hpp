// Rules that begin or end with themselves, as operands between operators. Read as it is written, the rule
//   e ::= e e | e "+" e | "-" e | "x"
// has ever more derivations of one text, and a reader that follows all of them gets slower with every character. The
// same language, read from left to right, is a loop: any prefixes, an operand, any suffixes, and after an operator the
// same again (structured_output.md §8.2).
#pragma once
#include "runtime/grammar/grammar_builder.hpp"
#include <optional>
#include <vector>

namespace troupe {

struct operator_form {
  using word = std::vector<grammar_expr>; // one behind the other

  std::vector<word> prefixes, operands, suffixes, operators;
  // So many operands in a row, two or more, are one again; none where there are operators, except two.
  std::vector<std::size_t> powers;
};

// Nothing where the rule does not begin or end with itself, or is too large to tell.
std::optional<operator_form> operator_form_of(const grammar_builder& builder, grammar_rule rule);

} // namespace troupe
