// Evaluation of a schema on a value that the schema itself contains (enum, const, property names).
#include "runtime/grammar/json_schema_places.hpp"

#include <algorithm>

namespace troupe {

class schema_evaluation {
public:
  explicit schema_evaluation(schema_places& places) : document_(places.document_) {}

  bool holds(const schema_literal& literal, const json_value& value) {
    switch (literal.what) {
    case schema_literal::claim::holds:
      return holds(literal.schema, value, 0);
    case schema_literal::claim::fails:
      return !holds(literal.schema, value, 0);
    case schema_literal::claim::holds_but_one_of:
      return holds(literal.schema, value, 0, false);
    case schema_literal::claim::differs:
      return !same_value(*literal.value, value);
    }
    return false;
  }

private:
  static constexpr int max_depth = 2000; // of schemas and values together: bounded use of the stack

  bool holds(schema_index schema, const json_value& value, int depth, bool with_one_of = true) {
    document_.budget().work();
    const schema_node& n = document_.node(schema);
    if (depth > max_depth)
      fail_compile("so_too_complex", n.path + ": too deep to be applied to a value of the schema");
    if (n.always)
      return *n.always;
    const auto sub = [&](schema_index s) { return holds(s, value, depth + 1); };
    return of_any_type(n, value) && std::all_of(n.references.begin(), n.references.end(), sub) &&
           std::all_of(n.all_of.begin(), n.all_of.end(), sub) &&
           (n.any_of.empty() || std::any_of(n.any_of.begin(), n.any_of.end(), sub)) &&
           (n.one_of.empty() || !with_one_of || std::count_if(n.one_of.begin(), n.one_of.end(), sub) == 1) &&
           (!n.negation || !sub(*n.negation)) && condition(n, sub) &&
           (of_its_type(n, value, depth) || in_doubt(n, value));
  }

  static bool of_any_type(const schema_node& n, const json_value& value) {
    return (!n.types || (*n.types & type_of(value))) && (!n.constant || same_value(*n.constant, value)) &&
           (!n.values || n.value_set.contains(value));
  }

  static bool condition(const schema_node& n, const auto& sub) {
    if (!n.condition || (!n.then && !n.otherwise))
      return true;
    const std::optional<schema_index>& branch = sub(*n.condition) ? n.then : n.otherwise;
    return !branch || sub(*branch);
  }

  // Whether the keywords of other drafts are why a value does not fit.
  static bool in_doubt(const schema_node& n, const json_value& value) {
    for (const schema_node::doubt& d : n.doubts)
      if (d.types & type_of(value))
        fail_compile("so_unsupported", d.path + ": whether a value of the schema has to satisfy it is not known, since "
                                                "the draft has no such keyword");
    return false;
  }

  bool of_its_type(const schema_node& n, const json_value& value, int depth) {
    switch (value.what) {
    case json_value::kind::number: {
      number_rules rules{.low = n.minimum, .high = n.maximum};
      if (n.multiple_of)
        rules.multiples_of = {*n.multiple_of};
      return rules.allows(value.number);
    }
    case json_value::kind::string:
      return text(n, value.text);
    case json_value::kind::array:
      return array(n, value, depth);
    case json_value::kind::object:
      return object(n, value, depth);
    default:
      return true;
    }
  }

  static bool text(const schema_node& n, const std::string& utf8) {
    const std::u32string text = to_code_points(utf8);
    return text.size() >= n.min_length.value_or(0) && (!n.max_length || text.size() <= *n.max_length) &&
           (!n.pattern || n.pattern->contains(text)) && (!n.format || formatted(n, text));
  }

  static bool formatted(const schema_node& n, const std::u32string& text) {
    const json_format& f = *n.format;
    const bool has = f.texts.contains(text);
    if (!has && f.possible && f.possible->contains(text))
      fail_compile("so_unsupported", n.path + "/format: whether a text of the schema has it is not known");
    return has;
  }

  bool array(const schema_node& n, const json_value& value, int depth) {
    const std::size_t size = value.items.size();
    if (n.unevaluated_items)
      fail_compile("so_unsupported", n.path + "/unevaluatedItems: not supported for the arrays of enum and const");
    if (size < n.min_items.value_or(0) || (n.max_items && size > *n.max_items))
      return false;
    for (std::size_t i = 0; i < size; ++i) {
      const std::optional<schema_index> s = i < n.prefix_items.size() ? std::optional(n.prefix_items[i]) : n.items;
      if (s && !holds(*s, value.items[i], depth + 1))
        return false;
    }
    if (n.unique_items && !json_value_set(value.items).all_different())
      return false;
    if (n.contains) {
      const auto found =
          static_cast<std::uint64_t>(std::count_if(value.items.begin(), value.items.end(), [&](const json_value& v) {
            return holds(*n.contains, v, depth + 1);
          }));
      if (found < n.min_contains || (n.max_contains && found > *n.max_contains))
        return false;
    }
    return true;
  }

  bool object(const schema_node& n, const json_value& value, int depth) {
    if (n.unevaluated)
      fail_compile("so_unsupported",
                   n.path + "/unevaluatedProperties: not supported for the objects of enum and const");
    const std::size_t size = value.members.size();
    if (size < n.min_properties.value_or(0) || (n.max_properties && size > *n.max_properties))
      return false;
    const auto has = [&](const std::string& key) { return value.find(key) != nullptr; };
    if (!std::all_of(n.required.begin(), n.required.end(), has))
      return false;
    for (const schema_node::dependent_keys& d : n.dependent_required)
      if (has(d.key) && !std::all_of(d.needs.begin(), d.needs.end(), has))
        return false;
    for (const schema_node::keyed& d : n.dependent_schemas)
      if (has(d.key) && !holds(d.schema, value, depth + 1))
        return false;
    for (const auto& [key, member] : value.members) {
      bool declared = false;
      if (const schema_index* s = n.property(key)) {
        declared = true;
        if (!holds(*s, member, depth + 1))
          return false;
      }
      const std::u32string text = n.patterns.empty() ? std::u32string() : to_code_points(key);
      for (const schema_node::pattern_keyed& p : n.patterns)
        if (p.keys->contains(text)) {
          declared = true;
          if (!holds(p.schema, member, depth + 1))
            return false;
        }
      if (!declared && n.additional && !holds(*n.additional, member, depth + 1))
        return false;
      if (n.property_names) {
        json_value name;
        name.what = json_value::kind::string;
        name.text = key;
        if (!holds(*n.property_names, name, depth + 1))
          return false;
      }
    }
    return true;
  }

  schema_document& document_;
};

bool schema_places::accepts(const schema_place& place, const json_value& value) {
  schema_evaluation evaluation(*this);
  return std::all_of(place.begin(), place.end(), [&](const schema_literal& l) { return evaluation.holds(l, value); });
}

} // namespace troupe
