// JSON schema as a constraint: the front end of structured_output.md 6. Every text of the grammar is valid JSON that
// satisfies the schema; a keyword that cannot be honoured where it stands is refused with its path, never dropped.
#pragma once
#include "runtime/grammar/grammar_builder.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct json_schema_options {  // structured_output.md 6.7
  bool strict = true;         // where members or items are declared, others are forbidden unless the schema says more
  bool any_whitespace = true; // false: ", " and ": " and nothing else
  std::uint32_t max_whitespace = 64;
  std::optional<std::uint32_t> indent = {}; // as Python's json.dumps; takes the place of any_whitespace
  bool any_order = false;                   // of declared members
  bool infer_type = true; // without `type`, object keywords ask for an object and array keywords for an array
  bool lenient = false;   // unsupported keywords have no effect; each is reported in `warnings`
  std::vector<std::string>* warnings = nullptr;
};

// The rule that reads the whole text. Throws grammar_failure: so_syntax, so_unsupported, so_too_complex, each with the
// JSON pointer of the keyword; an unsatisfiable schema shows when the grammar is compiled.
grammar_rule json_schema_grammar(grammar_builder& builder, std::string_view schema,
                                 const json_schema_options& options = {});

} // namespace troupe
