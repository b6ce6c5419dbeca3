// A JSON schema as nodes with typed keywords, its references resolved inside the text (structured_output.md 6.1, 6.3).
// What a keyword means is decided elsewhere; here every keyword is either read, without effect by the specification, or
// refused with its path.
#pragma once
#include "runtime/grammar/char_automaton.hpp"
#include "runtime/grammar/compile_budget.hpp"
#include "runtime/grammar/json_formats.hpp"
#include "runtime/grammar/json_number.hpp"
#include "runtime/grammar/json_value.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

// Kinds of JSON values as bits. Numbers are integers or fractions by value: 1.0 is an integer.
using json_types = std::uint8_t;
inline constexpr json_types type_null = 1, type_boolean = 2, type_integer = 4, type_fraction = 8, type_string = 16,
                            type_array = 32, type_object = 64, type_number = type_integer | type_fraction,
                            type_any = 127;
json_types type_of(const json_value& value);

using schema_index = std::uint32_t;

enum class json_draft : std::uint8_t { d4, d6, d7, d2019, d2020 };

struct schema_node {
  // What applies other schemas at the same place of the instance, and `members`, in the order of the text.
  enum class step : std::uint8_t { members, reference, all_of, any_of, one_of, negation, condition, dependent };
  struct keyed {
    std::string key;
    schema_index schema;
  };
  struct pattern_keyed {
    const char_dfa* keys;
    schema_index schema;
  };
  struct dependent_keys {
    std::string key;
    std::vector<std::string> needs;
  };

  std::string path;           // "#", "#/properties/a": JSON pointer as a URI fragment, not percent-encoded
  std::optional<bool> always; // true and false as schemas
  std::vector<step> steps;

  std::optional<json_types> types;
  const json_value* constant = nullptr;
  const std::vector<json_value>* values = nullptr; // enum
  json_value_set value_set;                        // the same

  std::optional<number_rules::bound> minimum, maximum;
  std::optional<exact_decimal> multiple_of;

  std::optional<std::uint64_t> min_length, max_length;
  const char_dfa* pattern = nullptr;
  const json_format* format = nullptr;

  std::vector<schema_index> prefix_items;
  std::optional<schema_index> items; // of the rest
  std::optional<schema_index> contains, unevaluated_items;
  std::uint64_t min_contains = 1;
  std::optional<std::uint64_t> max_contains, min_items, max_items;
  bool unique_items = false;

  std::vector<keyed> properties;
  std::unordered_map<std::string_view, schema_index> declared; // the same by key
  std::vector<pattern_keyed> patterns;
  std::optional<schema_index> additional, unevaluated, property_names;
  std::vector<std::string> required;
  std::vector<dependent_keys> dependent_required;
  std::vector<keyed> dependent_schemas;
  std::optional<std::uint64_t> min_properties, max_properties;

  std::optional<schema_index> negation, condition, then, otherwise;
  std::vector<schema_index> references, all_of, any_of, one_of; // references: $ref and a dynamic one

  bool declares_items = false;  // prefixItems, or items as an array
  bool object_keywords = false; // properties, additionalProperties, patternProperties or required
  bool array_keywords = false;  // items or prefixItems

  // A keyword that the draft does not have in this form, but others do. To obey it only narrows, so that is done; that
  // a value does not satisfy it says nothing.
  struct doubt {
    json_types types;
    std::string path;
  };
  std::vector<doubt> doubts;

  const schema_index* property(std::string_view key) const; // nullptr if not declared

  // The schemas whose annotations can count for this one: all that it may apply to the same value, but for `not`.
  void for_each_at_same_place(const auto& f) const {
    for (const auto* list : {&references, &all_of, &any_of, &one_of})
      for (const schema_index sub : *list)
        f(sub);
    for (const auto& sub : {condition, then, otherwise})
      if (sub)
        f(*sub);
    for (const keyed& d : dependent_schemas)
      f(d.schema);
  }
};

class schema_document {
public:
  struct options {
    bool lenient = false; // unsupported keywords are left out, with a warning, instead of refused
  };

  // Throws grammar_failure, as does every access to a node for the first time.
  schema_document(std::string_view text, options how, compile_budget& budget, std::vector<std::string>* warnings);

  schema_index root() const { return 0; }
  // Parsed at first use; the reference stays valid. Its schemas at the same place form no cycle.
  const schema_node& node(schema_index index);

  // A schema that no part of the text is: at least one of these holds.
  schema_index any_of(const std::vector<schema_index>& schemas, const std::string& path);

  json_draft draft() const { return draft_; } // of the whole text

  // Path of a list of values without any; empty if there is none.
  const std::string& empty_enum() const { return empty_enum_; }

  // Behind why nothing satisfies the schema: keywords with a doubt that were obeyed, and may be why. Empty: none.
  std::string doubtful() const;

  // Refuses the keyword at `path`, or, if lenient, leaves it out with a warning.
  void unsupported(const std::string& path, const std::string& why);

  compile_budget& budget() { return budget_; }

private:
  // A part of the text with an address of its own ($id); the whole text is the first.
  struct resource {
    std::string address;
    // With the path; null: two schemas have the name, whose paths those are.
    std::map<std::string, std::pair<const json_value*, std::string>, std::less<>> anchors;
    std::map<std::string, int, std::less<>> dynamic_anchors;
    const json_value* root;
    std::string path;
  };
  struct entry {
    const json_value* source; // nullptr: made by any_of
    std::uint32_t resource;
    enum class check : std::uint8_t { none, open, done } cycles = check::none;
    bool parsed = false;
    schema_node node;
  };
  class reader;

  bool has_keyword(std::string_view keyword) const; // the draft
  void check_draft(const json_value& address, const std::string& path);
  void register_anchor(const std::string& name, const json_value& schema, const std::string& path, std::uint32_t in);
  void register_names(const json_value& schema, const std::string& path, std::uint32_t in, int depth);
  schema_index intern(const json_value& source, std::string path, std::uint32_t in);
  schema_index resolve(std::string_view reference, std::uint32_t from, const std::string& keyword_path);
  schema_index follow_pointer(std::string_view pointer, std::uint32_t in, const std::string& failure);
  schema_node& parsed(schema_index index);
  void check_cycles(schema_index index, int depth);
  const char_dfa* pattern_language(const std::string& expression, const std::string& path);

  json_value text_;
  options how_;
  compile_budget& budget_;
  std::vector<std::string>* warnings_;
  json_draft draft_ = json_draft::d2020;
  std::vector<resource> resources_;
  std::unordered_map<const json_value*, std::uint32_t> resource_at_;      // their roots
  std::map<std::string, std::uint32_t, std::less<>> resource_by_address_; // or several_resources
  static constexpr std::uint32_t several_resources = UINT32_MAX;
  std::string empty_enum_;
  std::deque<entry> entries_;
  std::unordered_map<const json_value*, schema_index> index_of_;
  std::map<std::vector<schema_index>, schema_index> any_of_;
  std::map<std::string, char_dfa, std::less<>> patterns_;
};

} // namespace troupe
