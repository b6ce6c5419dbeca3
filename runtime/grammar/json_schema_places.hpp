// The normal form of what a schema says about one place of an instance (structured_output.md 6.4): a place is a
// conjunction of schemas that hold or fail there; its alternatives are conjunctions without `anyOf`, `oneOf`, `not`,
// `if` and references, with the keywords of every type merged. Places of members and items are conjunctions again and
// are looked at only when they are needed, so recursion ends.
#pragma once
#include "runtime/grammar/json_schema_document.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace troupe {

struct schema_literal {
  enum class claim : std::uint8_t { holds, fails, holds_but_one_of, differs };

  claim what = claim::holds;
  schema_index schema = 0;
  const json_value* value = nullptr; // differs: the place is not equal to it
  auto operator<=>(const schema_literal&) const = default;
};

using schema_place = std::vector<schema_literal>; // without repetitions, in the order of the text

// Keys in the order in which they came, each once.
class key_list {
public:
  void add(const std::string& key);
  bool contains(const std::string& key) const;
  std::size_t size() const { return keys_.size(); }
  auto begin() const { return keys_.begin(); }
  auto end() const { return keys_.end(); }

private:
  static constexpr std::size_t few = 16; // are looked at one by one
  std::vector<std::string> keys_;
  std::unordered_set<std::string> known_; // the same, if they are more
};

struct schema_alternative {
  struct text_rule {
    const char_dfa* language;
    bool inside;
    bool partial = false; // other texts than those of the language may satisfy the rule
  };
  struct item_rule { // at least min and at most max of the items from number `first` on are like `item`
    schema_literal item;
    std::uint64_t first = 0, min = 0;
    std::optional<std::uint64_t> max;
    std::string path;
  };
  struct one_item {
    std::uint64_t index;
    schema_literal item;
  };
  struct one_member {
    std::string key;
    schema_literal value;
  };
  struct member_rule { // at least one member has such a key and value; without `value` any
    std::shared_ptr<const char_dfa> keys;
    std::optional<schema_literal> value;
    std::string path;
  };

  json_types types = type_any;
  bool typed = false; // by type, const or enum, not only by exclusion
  std::optional<std::vector<const json_value*>> values;
  std::vector<const json_value*> excluded; // no arrays and objects

  // The schemas that hold here, each once, in the order in which their members count.
  std::vector<schema_index> schemas;
  std::vector<std::pair<schema_index, schema_index>> applied_by; // schema, and one that holds here and applies it

  number_rules numbers;
  std::vector<const schema_node*> divisors; // those with multipleOf, which holds or not

  std::vector<text_rule> texts;
  std::uint64_t min_length = 0;
  std::optional<std::uint64_t> max_length;

  std::uint64_t min_items = 0;
  std::optional<std::uint64_t> max_items;
  std::vector<std::string> unique_items; // paths of the keywords
  std::vector<item_rule> contains;
  std::vector<one_item> single_items;

  key_list required, forbidden;
  std::vector<one_member> single_members;
  std::vector<member_rule> some_member;
  std::uint64_t min_properties = 0;
  std::string min_properties_path; // of the keyword that says so
  std::optional<std::uint64_t> max_properties;

  void at_least_members(std::uint64_t count, const std::string& path);
  void require(const std::string& key);
  void forbid(const std::string& key);
  std::size_t bytes() const; // about, of memory
};

class schema_places {
public:
  explicit schema_places(schema_document& document) : document_(document) {}

  schema_document& document() { return document_; }

  // Adds a literal unless it is there or says nothing; false if the place has become empty by it.
  bool add(schema_place& place, const schema_literal& literal);

  // Whether a value satisfies all of the place. Throws grammar_failure where a keyword cannot be decided.
  bool accepts(const schema_place& place, const json_value& value);

  // All ways to satisfy the place; each value of the place satisfies at least one, and nothing else does, if their
  // own rules and those of the places below are followed. Throws grammar_failure (so_unsupported, so_too_complex).
  std::vector<schema_alternative> alternatives(const schema_place& place);

  // True only if no value can satisfy the place.
  bool surely_empty(const schema_place& place) { return surely_empty(place, 0); }

  // The place of a member with this key or of an item; nullopt: it cannot be there.
  struct closing {
    bool members = false, items = false; // undeclared ones are forbidden (strict mode)
    bool proof = false;                  // of emptiness: whatever may be evaluated counts as evaluated
  };
  std::optional<schema_place> member_place(const schema_alternative& a, const std::string& key, closing closed);
  // The same for keys that no `properties` here names; `matches` says which patterns they match. propertyNames apart.
  std::optional<schema_place> undeclared_place(const schema_alternative& a,
                                               const std::function<bool(const char_dfa&)>& matches, closing closed);
  std::optional<schema_place> item_place(const schema_alternative& a, std::uint64_t index, closing closed);
  std::uint64_t listed_items(const schema_alternative& a); // items from this number on are all alike

  // The decoded strings of a place, or of an alternative. Throws grammar_failure.
  char_dfa texts(const schema_place& place);
  char_dfa texts(const schema_alternative& a);
  // The same, but a limit of their length that would make many states is left to be counted; `texts` has words within.
  struct limited_texts {
    char_dfa texts;
    std::optional<std::uint64_t> max_length;
  };
  limited_texts texts_and_limit(const schema_alternative& a);
  static number_rules numbers(const schema_alternative& a); // kinds and excluded values with the bounds

  // The values of an alternative's enum or const that satisfy the place.
  std::vector<const json_value*> values(const schema_place& place, const schema_alternative& a);
  // All values of a place if they are at most `limit`.
  std::optional<std::vector<const json_value*>> all_values(const schema_place& place, std::size_t limit);

private:
  friend class schema_expansion;
  friend class schema_evaluation;
  bool surely_empty(const schema_place& place, int depth);
  bool surely_empty(const schema_place& place, const schema_alternative& a, int depth);
  std::optional<schema_place> member_place(const schema_alternative& a, const std::string* key,
                                           const std::function<bool(const char_dfa&)>& matches, closing closed);
  // Whether a schema evaluates something together with those that it applies: in `a`, or, for a proof, ever.
  bool evaluated(const schema_alternative& a, schema_index by, bool proof,
                 const std::function<bool(const schema_node&)>& looks_at);

  schema_document& document_;
  std::map<schema_place, bool> empty_;
  std::vector<std::unique_ptr<json_value>> made_; // values of all_values
};

} // namespace troupe
