#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/char_automaton.hpp"
#include "runtime/grammar/ebnf.hpp"
#include "runtime/grammar/regex.hpp"

namespace troupe {

namespace {

grammar_rule read_constraint(grammar_builder& builder, const constraint& what, const token_vocabulary& vocabulary,
                             std::vector<std::string>& warnings) {
  switch (what.kind) {
  case constraint_kind::json: {
    json_schema_options options = what.schema;
    options.warnings = &warnings;
    return json_schema_grammar(builder, what.text, options);
  }
  case constraint_kind::regex:
    return builder.define("root", regex_expression(builder, what.text, {what.dot_excludes_newline}));
  case constraint_kind::ebnf:
    return ebnf_grammar(builder, what.text, vocabulary);
  }
  fail_compile("so_invalid_args", "schema_type: unknown kind of constraint");
}

} // namespace

result<constraint_kind> constraint_kind_of(std::string_view name) {
  if (name == "json")
    return constraint_kind::json;
  if (name == "regex")
    return constraint_kind::regex;
  if (name == "ebnf")
    return constraint_kind::ebnf;
  return error{"so_invalid_args",
               "schema_type = \"" + std::string(name) + "\": unknown kind of constraint; use json, regex or ebnf"};
}

constraint constraint_of(const structured_output_args& a) {
  constraint c;
  c.kind = constraint_kind_of(a.schema_type).value();
  c.text = a.schema;
  c.schema.strict = a.strict;
  c.schema.any_whitespace = a.any_whitespace;
  c.schema.max_whitespace = static_cast<std::uint32_t>(a.max_whitespace);
  if (a.indent)
    c.schema.indent = static_cast<std::uint32_t>(*a.indent);
  c.schema.any_order = a.any_order;
  c.schema.infer_type = a.infer_type;
  c.schema.lenient = a.lenient;
  c.dot_excludes_newline = a.dot_excludes_newline;
  return c;
}

result<std::shared_ptr<const compiled_grammar>> compile_constraint(const constraint& what,
                                                                   std::shared_ptr<const token_vocabulary> vocabulary,
                                                                   const compile_limits& limits,
                                                                   const std::function<bool()>& out_of_time) {
  if (what.text.size() > limits.text_bytes)
    return error{"so_too_complex", "the constraint has " + std::to_string(what.text.size()) +
                                       " bytes of text, more than " + std::to_string(limits.text_bytes)};
  try {
    compile_budget budget(limits, out_of_time);
    const budget_in_force charged(budget);
    grammar_builder builder(budget);
    std::vector<std::string> warnings;
    const grammar_rule root = read_constraint(builder, what, *vocabulary, warnings);
    return compile_grammar(builder, root, std::move(vocabulary), std::move(warnings));
  } catch (grammar_failure& f) {
    return std::move(f.why);
  } catch (const automaton_too_large& e) {
    return error{"so_too_complex", e.what()};
  }
}

} // namespace troupe
