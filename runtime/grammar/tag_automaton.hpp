// Free text in which given words are found (TagDispatch of structured_output.md §4).
#pragma once
#include "runtime/grammar/grammar_builder.hpp"
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct tag_rule {
  std::string tag; // not empty
  grammar_rule rule;
};

// Any bytes until a tag ends; then the rule of each tag that ends there; then free text again, if `again`, or the end.
// The text may also end while it is free. `excluded` words never occur in free text.
grammar_expr tagged_text(grammar_builder& builder, const std::vector<tag_rule>& tags,
                         const std::vector<std::string>& excluded, bool again);

} // namespace troupe
