#include "runtime/grammar/regex.hpp"

namespace troupe {

namespace {

using kind = char_pattern::kind;

class expression_maker {
public:
  expression_maker(grammar_builder& builder, bool search, text_form form)
      : builder_(builder), search_(search), form_(form) {}

  // first, last: whether p stands where a branch of the whole expression begins or ends, the only places for anchors.
  grammar_expr make(const char_pattern& p, bool first, bool last) {
    switch (p.what) {
    case kind::chars:
      return around(builder_.chars(p.set, form_), first, last);
    case kind::at_start:
      if (!first)
        anchor_inside(p, '^');
      return around(builder_.empty(), false, last);
    case kind::at_end:
      if (!last)
        anchor_inside(p, '$');
      return around(builder_.empty(), first, false);
    case kind::choice: {
      std::vector<grammar_expr> parts;
      for (const char_pattern& part : p.parts)
        parts.push_back(make(part, first, last));
      return builder_.alternatives(parts);
    }
    case kind::sequence: {
      if (p.parts.empty())
        return around(builder_.empty(), first, last);
      std::vector<grammar_expr> parts;
      for (std::size_t i = 0; i < p.parts.size(); ++i)
        parts.push_back(make(p.parts[i], first && i == 0, last && i + 1 == p.parts.size()));
      return builder_.sequence(parts);
    }
    case kind::repeat: {
      const char_pattern& part = p.parts[0];
      const std::uint64_t max = p.max == char_pattern::unbounded ? unbounded : p.max;
      return around(builder_.repeat(make(part, false, false), p.min, max), first, last);
    }
    }
    return builder_.never();
  }

private:
  // An end without an anchor matches anywhere when searching.
  grammar_expr around(grammar_expr e, bool first, bool last) {
    if (!search_ || (!first && !last))
      return e;
    const grammar_expr anything = builder_.repeat(builder_.chars(char_set::all(), form_), 0);
    return builder_.sequence({first ? anything : builder_.empty(), e, last ? anything : builder_.empty()});
  }

  [[noreturn]] static void anchor_inside(const char_pattern& p, char mark) {
    fail_compile("so_syntax", std::string("regular expression: anchor inside: '") + mark + "' at position " +
                                  std::to_string(p.position + 1) +
                                  " is none of the ends of a branch, where alone anchors are read; leave it out or "
                                  "write the cases down as branches");
  }

  grammar_builder& builder_;
  bool search_;
  text_form form_;
};

} // namespace

grammar_expr regex_expression(grammar_builder& builder, std::string_view pattern, const regex_options& options,
                              text_form form) {
  charged_memory held;
  held.add(pattern.size() * pattern_bytes_each);
  const result<char_pattern> tree =
      parse_pattern(pattern, {options.dot_excludes_newline, builder.budget().limits().regex_nesting});
  if (!tree)
    throw grammar_failure{tree.failure()};
  return expression_maker(builder, options.search, form).make(*tree, true, true);
}

} // namespace troupe
