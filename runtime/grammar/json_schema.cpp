#include "runtime/grammar/json_schema.hpp"

#include "runtime/grammar/json_schema_places.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <unordered_set>

namespace troupe {
namespace {

using kind = json_value::kind;

constexpr std::uint32_t max_indented_depth = 32; // containers below are left out: indentation has no finite grammar
constexpr std::size_t max_unique_values = 64;
constexpr std::size_t max_marks = 64;            // members that are kept in one set
constexpr std::size_t max_without_marks = 11;    // members in any order where that cannot be
constexpr std::size_t max_free_beside_rules = 6; // the same where their order may as well be fixed
constexpr std::size_t last_place_of_keys = 32;   // that is looked at to tell keys apart, from the start
constexpr std::size_t most_last_characters = 12; // sets of those at the end of keys
constexpr std::size_t max_side_rules = 4;        // `contains` and negated keywords that ask for some item or member

class schema_compiler {
public:
  schema_compiler(grammar_builder& builder, std::string_view schema, const json_schema_options& options)
      : builder_(builder), options_(options), document_(schema, {options.lenient}, builder.budget(), options.warnings),
        places_(document_) {
    byte_set blank;
    for (const char c : {' ', '\n', '\t', '\r'})
      blank.set(static_cast<unsigned char>(c));
    if (free_whitespace())
      gap_ = builder_.define("whitespace", builder_.repeat(builder_.bytes(blank), 0, options.max_whitespace));
  }

  grammar_rule compile() {
    schema_place root;
    const bool possible = places_.add(root, {schema_literal::claim::holds, document_.root(), nullptr});
    if (!possible)
      explain_empty();
    if (!possible)
      return builder_.define("root", builder_.never());
    const grammar_rule rule = rule_of(root, 0);
    while (!open_.empty()) { // places are found while others are compiled; a list instead of recursion
      const auto [place, depth, target] = open_.back();
      open_.pop_back();
      try {
        const grammar_expr value = body(place, depth);
        builder_.define(target, value);
        if (value == builder_.never()) {
          if (target == rule)
            explain_empty();
          builder_.explain(target, why_empty(place));
        }
      } catch (const automaton_too_large& e) {
        fail_compile("so_too_complex", path_of(place) + ": " + e.what());
      } catch (grammar_failure& f) {
        f.place(path_of(place));
        throw;
      }
    }
    builder_.remark_if_empty(document_.doubtful());
    return rule;
  }

private:
  // Where the whole text has no value, and it is known why.
  void explain_empty() {
    std::string why = unsatisfiable_;
    if (why.empty() && !document_.empty_enum().empty())
      why = document_.empty_enum() + ": it lists no value";
    if (!why.empty())
      fail_compile("so_unsatisfiable", why + document_.doubtful());
  }

  std::string path_of(const schema_alternative& a) {
    return a.schemas.empty() ? std::string("#") : document_.node(a.schemas.front()).path;
  }

  // The keywords that leave a place without values, where two of them alone do.
  std::string why_empty(const schema_place& place) {
    const std::vector<schema_alternative> ways = places_.alternatives(place);
    if (ways.empty())
      return "its parts exclude each other";
    const schema_alternative& a = ways.front();
    const std::string of_ways = ways.size() > 1 ? "in the first of " + std::to_string(ways.size()) + " ways " : "";
    const auto crossed = [&](json_types type, const char* least, std::uint64_t min, const char* most,
                             const std::optional<std::uint64_t>& max) {
      return a.types == type && max && min > *max
                 ? of_ways + least + " " + std::to_string(min) + " is above " + most + " " + std::to_string(*max)
                 : "";
    };
    if (a.values)
      return of_ways + "no value of enum or const satisfies the rest";
    if (a.types == 0)
      return of_ways + "no type is left by its keywords";
    for (const std::string& why :
         {crossed(type_string, "minLength", a.min_length, "maxLength", a.max_length),
          crossed(type_array, "minItems", a.min_items, "maxItems", a.max_items),
          crossed(type_object, "minProperties", a.min_properties, "maxProperties", a.max_properties)})
      if (!why.empty())
        return why;
    const number_rules rules = schema_places::numbers(a);
    if ((a.types & ~type_number) == 0 && rules.low && rules.high && rules.high->value < rules.low->value)
      return of_ways + "minimum " + rules.low->value.plain() + " is above maximum " + rules.high->value.plain();
    if (a.types == type_object && unsatisfiable_.starts_with(path_of(a) + ": "))
      return unsatisfiable_;
    return of_ways + "its keywords exclude each other";
  }

  // --- layout

  bool free_whitespace() const { return options_.any_whitespace && !options_.indent; }
  grammar_expr gap() { return gap_ ? builder_.call(*gap_) : builder_.empty(); }
  grammar_expr colon() {
    return free_whitespace() ? builder_.sequence({gap(), builder_.literal(":"), gap()}) : builder_.literal(": ");
  }
  std::string new_line(std::uint32_t depth) const {
    return options_.indent ? "\n" + std::string(std::size_t{*options_.indent} * depth, ' ') : "";
  }
  grammar_expr opening(char bracket, std::uint32_t depth) {
    return builder_.sequence({builder_.literal(bracket + new_line(depth + 1)), gap()});
  }
  grammar_expr comma(std::uint32_t depth) { // what stands before it is read already
    const bool spaced = !free_whitespace() && !options_.indent;
    return builder_.sequence({builder_.literal(spaced ? ", " : "," + new_line(depth + 1)), gap()});
  }
  grammar_expr closing_bracket(char bracket, std::uint32_t depth) {
    return builder_.literal(new_line(depth) + bracket);
  }
  grammar_expr empty_container(std::string_view brackets) {
    return builder_.sequence({builder_.literal(brackets.substr(0, 1)), gap(), builder_.literal(brackets.substr(1))});
  }

  // --- places

  std::string path_of(const schema_place& place) {
    for (const schema_literal& l : place)
      if (l.what != schema_literal::claim::differs)
        return document_.node(l.schema).path;
    return "#";
  }

  grammar_rule rule_of(const schema_place& place, std::uint32_t depth) {
    document_.budget().work(1 + place.size() / 4);
    const auto [it, fresh] = rules_.try_emplace({place, options_.indent ? depth : 0}, grammar_rule{});
    if (fresh) {
      document_.budget().pairs(1);
      document_.budget().memory(2 * place.size() * sizeof(schema_literal));
      it->second = builder_.declare(path_of(place));
      open_.push_back({place, depth, it->second});
    }
    return it->second;
  }
  grammar_expr value_at(const schema_place& place, std::uint32_t depth) { return builder_.call(rule_of(place, depth)); }

  grammar_expr body(const schema_place& place, std::uint32_t depth) {
    std::vector<grammar_expr> ways;
    std::vector<const json_value*> listed;
    for (const schema_alternative& a : places_.alternatives(place)) {
      if (a.values)
        for (const json_value* v : places_.values(place, a))
          listed.push_back(v);
      else
        typed(ways, a, depth);
    }
    add_values(ways, listed, depth);
    std::erase(ways, builder_.never());
    split(ways, "alternative");
    return ways.empty() ? builder_.never() : builder_.alternatives(ways);
  }

  // Parts that are too much for one rule become rules of their own.
  void split(std::span<grammar_expr> parts, const char* name) {
    std::size_t size = 0;
    for (const grammar_expr p : parts)
      size += builder_.at(p).size;
    if (size > document_.budget().limits().states_per_rule / 2)
      for (grammar_expr& p : parts)
        p = builder_.call(builder_.define(name, p));
  }

  // --- enum and const

  // In draft 4 a number with a fraction is no integer, whatever its value.
  void spellings(const json_value& v, std::vector<std::u32string>& out) const {
    const auto add = [&](std::string_view text) { out.push_back(to_code_points(text)); };
    if (v.is(kind::null))
      add("null");
    else if (v.is(kind::boolean))
      add(v.truth ? "true" : "false");
    else if (v.is(kind::string))
      add(quoted_json(v.text));
    else {
      const bool short_enough = std::max(v.number.integer_digits(), -v.number.exponent) <= 40;
      const bool keeps_text = document_.draft() != json_draft::d4 || v.text.find_first_of(".eE") == v.text.npos;
      if (short_enough)
        add(v.number.plain());
      if (keeps_text || !short_enough)
        add(v.text);
    }
  }

  void add_values(std::vector<grammar_expr>& ways, const std::vector<const json_value*>& values, std::uint32_t depth) {
    std::vector<std::u32string> texts;
    charged_memory held;
    for (const json_value* v : values) {
      held.add(4 * (sizeof(std::u32string) + v->text.size())); // of a number both spellings
      if (v->is(kind::array) || v->is(kind::object))
        ways.push_back(container(*v, depth));
      else
        spellings(*v, texts);
    }
    std::sort(texts.begin(), texts.end());
    for (std::size_t first = 0; first < texts.size();) { // parts that an automaton has room for
      std::size_t end = first, characters = 0;
      while (end < texts.size() && (end == first || characters + texts[end].size() < most_rule_states() / 2))
        characters += texts[end++].size();
      document_.budget().states(characters);
      const grammar_expr part = builder_.regular(char_dfa::words(std::span(texts).subspan(first, end - first)));
      ways.push_back(first == 0 && end == texts.size() ? part : builder_.call(builder_.define("values", part)));
      first = end;
    }
  }

  grammar_expr exactly(const json_value& v, std::uint32_t depth) {
    std::vector<grammar_expr> ways;
    add_values(ways, {&v}, depth);
    return builder_.alternatives(ways);
  }

  grammar_expr container(const json_value& v, std::uint32_t depth) {
    const bool array = v.is(kind::array);
    if (array ? v.items.empty() : v.members.empty())
      return empty_container(array ? "[]" : "{}");
    std::vector<grammar_expr> parts{opening(array ? '[' : '{', depth)};
    const auto separate = [&] {
      if (parts.size() > 1) {
        parts.push_back(gap());
        parts.push_back(comma(depth));
      }
    };
    for (const json_value& item : v.items) {
      separate();
      parts.push_back(exactly(item, depth + 1));
    }
    for (const auto& [key, value] : v.members) {
      separate();
      parts.push_back(builder_.literal(quoted_json(key)));
      parts.push_back(colon());
      parts.push_back(exactly(value, depth + 1));
    }
    parts.push_back(gap());
    parts.push_back(closing_bracket(array ? ']' : '}', depth));
    return builder_.sequence(parts);
  }

  // --- an alternative, by type

  void typed(std::vector<grammar_expr>& ways, const schema_alternative& a, std::uint32_t depth) {
    const json_types types = inferred(a);
    if (types & type_null)
      ways.push_back(builder_.literal("null"));
    for (const bool truth : {true, false})
      if ((types & type_boolean) && std::none_of(a.excluded.begin(), a.excluded.end(), [&](const json_value* v) {
            return v->is(kind::boolean) && v->truth == truth;
          }))
        ways.push_back(builder_.literal(truth ? "true" : "false"));
    if (types & type_number)
      ways.push_back(builder_.regular(number_spellings(numbers(a))));
    if (types & type_string)
      ways.push_back(text(a));
    const bool room = !options_.indent || depth < max_indented_depth;
    if ((types & type_array) && room)
      ways.push_back(array(a, depth));
    if ((types & type_object) && room)
      ways.push_back(object(a, depth));
  }

  json_types inferred(const schema_alternative& a) {
    if (!options_.infer_type || a.typed)
      return a.types;
    json_types asked = 0;
    for (const schema_index s : a.schemas) {
      if (document_.node(s).object_keywords)
        asked |= type_object;
      if (document_.node(s).array_keywords)
        asked |= type_array;
    }
    return (a.types & asked) ? a.types & asked : a.types;
  }

  number_rules numbers(const schema_alternative& a) {
    number_rules rules = places_.numbers(a);
    for (const schema_node* n : a.divisors) {
      if (divisor_fits(rules, *n->multiple_of))
        continue;
      document_.unsupported(n->path + "/multipleOf",
                            "divisors above " + std::to_string(max_divisor) + " need bounds with at most " +
                                std::to_string(max_listed_multiples) + " multiples between them");
      std::erase(rules.multiples_of, *n->multiple_of); // where it may be left out
      std::erase(rules.not_multiples_of, *n->multiple_of);
    }
    return rules;
  }

  grammar_expr text(const schema_alternative& a) {
    const bool any_character = a.texts.empty() && std::none_of(a.excluded.begin(), a.excluded.end(),
                                                               [](const json_value* v) { return v->is(kind::string); });
    if (any_character)
      return builder_.json_string(a.min_length, a.max_length.value_or(unbounded));
    const schema_places::limited_texts all = places_.texts_and_limit(a);
    return builder_.json_string(all.texts, all.max_length);
  }

  // --- arrays

  struct array_shape {
    std::vector<std::optional<schema_place>> listed; // by number; nullopt: the array ends before
    std::optional<schema_place> rest;
    std::uint64_t min, max; // unbounded if there is no limit
    const std::optional<schema_place>& at(std::uint64_t i) const {
      return i < listed.size() ? listed[static_cast<std::size_t>(i)] : rest;
    }
  };

  grammar_expr array(const schema_alternative& a, std::uint32_t depth) {
    bool declares = false, says_more = false;
    for (const schema_index s : a.schemas) {
      declares |= document_.node(s).declares_items;
      says_more |= document_.node(s).items || document_.node(s).unevaluated_items;
    }
    const schema_places::closing closed{.items = options_.strict && declares && !says_more};
    array_shape shape{{}, {}, a.min_items, a.max_items.value_or(unbounded)};
    const std::uint64_t listed = std::min(places_.listed_items(a), shape.max);
    for (std::uint64_t i = 0; i < listed; ++i) {
      document_.budget().work();
      shape.listed.push_back(places_.item_place(a, i, closed));
      if (!shape.listed.back())
        shape.max = std::min(shape.max, i);
    }
    shape.rest = places_.item_place(a, listed, closed);
    if (!shape.rest)
      shape.max = std::min(shape.max, listed);
    if (shape.max < shape.min)
      return builder_.never();
    if (!a.unique_items.empty() && shape.max > 1)
      return unique_array(a, shape, depth);
    return a.contains.empty() ? plain_array(shape, depth) : counting_array(a, shape, depth);
  }

  // Ends a graph of items: from a state after an item, behind the blanks that follow it.
  grammar_expr end_of(char bracket, std::uint32_t depth) { return closing_bracket(bracket, depth); }

  grammar_expr plain_array(const array_shape& shape, std::uint32_t depth) {
    std::vector<grammar_expr> ways;
    if (shape.min == 0)
      ways.push_back(empty_container("[]"));
    if (shape.max == 0)
      return builder_.alternatives(ways);
    // States: 0 before the first item, then one after every listed item, the last two after the rest and at the end.
    grammar_graph graph;
    const std::uint32_t end = graph.add_state();
    const std::uint64_t single = std::max<std::uint64_t>(1, std::min<std::uint64_t>(shape.listed.size(), shape.max));
    std::uint32_t at = 0;
    for (std::uint64_t i = 0; i < single; ++i) {
      const std::uint32_t next = graph.add_state();
      const grammar_expr item = value_at(*shape.at(i), depth + 1);
      graph.add_edge(at, next, i == 0 ? item : builder_.sequence({gap(), comma(depth), item}));
      if (i + 1 >= shape.min && i + 1 < single)
        graph.add_edge(next, end, gap());
      at = next;
    }
    if (shape.max > single) {
      const grammar_expr more = builder_.sequence({gap(), comma(depth), value_at(*shape.rest, depth + 1)});
      const std::uint32_t after = graph.add_state();
      graph.add_edge(at, after,
                     builder_.repeat(more, shape.min > single ? shape.min - single : 0,
                                     shape.max == unbounded ? unbounded : shape.max - single));
      at = after;
    }
    graph.add_edge(at, end, gap());
    graph.accepting = {end};
    ways.push_back(builder_.sequence({opening('[', depth), builder_.graph(graph), end_of(']', depth)}));
    return builder_.alternatives(ways);
  }

  // Items or members whose order is free apart from what a state remembers: states are found from the start on.
  // `State` is comparable; options(state) gives what can be read next, blanks behind it included, and the states after.
  template <class State> struct step {
    grammar_expr reads;
    State next;
  };
  template <class State>
  grammar_expr walk(char open, char close, std::uint32_t depth, const State& start,
                    const std::function<std::vector<step<State>>(const State&)>& options,
                    const std::function<bool(const State&)>& complete) {
    std::vector<grammar_expr> ways;
    if (complete(start))
      ways.push_back(empty_container(std::string{open, close}));
    grammar_graph graph;
    const std::uint32_t end = graph.add_state();
    const grammar_expr separator = comma(depth);
    std::map<State, std::uint32_t> choosing{{start, 0}}; // an item must come
    std::map<State, std::uint32_t> behind;               // an item was read, and the blanks after it
    std::vector<State> found{start};
    for (std::size_t i = 0; i < found.size(); ++i) {
      const State from = found[i];
      const std::uint32_t at = choosing.at(from);
      for (const step<State>& s : options(from)) {
        const auto [after, fresh] = behind.try_emplace(s.next, 0);
        if (fresh) {
          after->second = graph.add_state();
          if (complete(s.next))
            graph.add_edge(after->second, end, builder_.empty());
          const auto [again, unseen] = choosing.try_emplace(s.next, 0);
          if (unseen) {
            again->second = graph.add_state();
            found.push_back(s.next);
          }
          graph.add_edge(after->second, again->second, separator);
          document_.budget().states(2);
          if (behind.size() > most_rule_states())
            throw automaton_too_large("its counts and orders need too many states");
        }
        graph.add_edge(at, after->second, s.reads);
      }
    }
    graph.accepting = {end};
    ways.push_back(builder_.sequence({opening(open, depth), builder_.graph(graph), end_of(close, depth)}));
    return builder_.alternatives(ways);
  }

  grammar_expr counting_array(const schema_alternative& a, const array_shape& shape, std::uint32_t depth) {
    if (a.contains.size() > max_side_rules)
      fail_compile("so_too_complex", a.contains.back().path + ": more than " + std::to_string(max_side_rules) +
                                         " rules about some items of one array");
    using state = std::vector<std::uint64_t>; // items read, and for each rule those that count for it
    const std::uint64_t counted =
        shape.max != unbounded ? shape.max : std::max<std::uint64_t>({1, shape.min, shape.listed.size()});
    const std::size_t subsets = std::size_t{1} << a.contains.size();
    const auto options = [&](const state& from) {
      std::vector<step<state>> out;
      if (from[0] >= shape.max)
        return out;
      for (std::size_t subset = 0; subset < subsets; ++subset) {
        schema_place place = *shape.at(from[0]);
        state to = from;
        to[0] = std::min(from[0] + 1, counted);
        bool possible = true;
        for (std::size_t r = 0; r < a.contains.size() && possible; ++r) {
          const schema_alternative::item_rule& rule = a.contains[r];
          std::uint64_t& count = to[r + 1];
          if (subset >> r & 1) {
            possible = from[0] >= rule.first && (!rule.max || count < *rule.max) && places_.add(place, rule.item);
            count = rule.max ? count + 1 : std::min(count + 1, rule.min);
          } else if (rule.max && from[0] >= rule.first) {
            possible = places_.add(place, opposite(rule.item));
          }
        }
        if (possible)
          out.push_back({builder_.sequence({value_at(place, depth + 1), gap()}), std::move(to)});
      }
      return out;
    };
    const auto complete = [&](const state& s) {
      bool enough = s[0] >= shape.min;
      for (std::size_t r = 0; r < a.contains.size(); ++r)
        enough &= s[r + 1] >= a.contains[r].min;
      return enough;
    };
    return walk<state>('[', ']', depth, state(a.contains.size() + 1), options, complete);
  }

  static schema_literal opposite(schema_literal l) {
    l.what = l.what == schema_literal::claim::holds ? schema_literal::claim::fails : schema_literal::claim::holds;
    return l;
  }

  grammar_expr unique_array(const schema_alternative& a, const array_shape& shape, std::uint32_t depth) {
    const std::string& path = a.unique_items.front();
    const auto give_up = [&](const std::string& why) {
      document_.unsupported(path, why); // returns only if the keyword may be left out
      return a.contains.empty() ? plain_array(shape, depth) : counting_array(a, shape, depth);
    };
    if (!a.contains.empty())
      return give_up("not together with other rules about some of the items");
    std::vector<const json_value*> values; // of any item
    const std::size_t kinds = shape.listed.size() + (shape.rest ? 1 : 0);
    std::vector<std::uint64_t> allowed; // for every listed item and the rest, as bits
    for (std::size_t i = 0; i < kinds; ++i) {
      const std::optional<schema_place>& place = shape.at(i);
      std::uint64_t bits = 0;
      if (place) {
        const auto found = places_.all_values(*place, max_unique_values);
        if (!found)
          return give_up("only for items of at most " + std::to_string(max_unique_values) + " values");
        for (const json_value* v : *found) {
          const auto same = [&](const json_value* w) { return same_value(*w, *v); };
          const auto at = std::find_if(values.begin(), values.end(), same) - values.begin();
          if (at == static_cast<std::ptrdiff_t>(values.size()))
            values.push_back(v);
          if (values.size() > max_unique_values)
            return give_up("only for items of at most " + std::to_string(max_unique_values) + " values");
          bits |= std::uint64_t{1} << at;
        }
      }
      allowed.push_back(bits);
    }
    std::vector<grammar_expr> ways;
    if (shape.min == 0)
      ways.push_back(empty_container("[]"));
    const distinct_list which{allowed, shape.min, std::min<std::uint64_t>(shape.max, values.size())};
    if (!which.can_be_complete())
      return builder_.alternatives(ways);
    std::vector<grammar_rule> spelled;
    for (const json_value* v : values)
      spelled.push_back(builder_.define("value", builder_.sequence({exactly(*v, depth + 1), gap()})));
    const grammar_rule separator = builder_.define("separator", comma(depth));
    ways.push_back(builder_.sequence(
        {opening('[', depth), builder_.distinct(std::move(spelled), separator, which), end_of(']', depth)}));
    return builder_.alternatives(ways);
  }

  // --- objects

  struct member {
    grammar_expr reads;
    std::uint32_t satisfies = 0; // rules of some_member, as bits
    std::size_t part = declared; // of the keys that no schema declares
    static constexpr std::size_t declared = ~std::size_t{0};
  };
  struct declared_member {
    std::vector<member> ways;
    bool required = false;
  };
  struct object_shape {
    std::vector<declared_member> declared; // those in order first, then those in any order
    std::size_t ordered = 0;               // how many are in order
    std::vector<member> undeclared;
    std::uint64_t min, max;
    std::uint32_t side_rules = 0; // bits that have to be satisfied
    std::uint32_t by_key = 0;     // those of them that a key alone satisfies
    bool told_apart = false;      // undeclared members of different parts all count towards `min`

    std::size_t free() const { return declared.size() - ordered; }
    // Free members and parts are kept as a set of marks; side rules look at more than a set.
    bool marks_members() const { return free() > 0 && side_rules == 0; }
    bool marks() const { return marks_members() || told_apart; }
  };

  grammar_expr object(const schema_alternative& a, std::uint32_t depth) {
    if (a.some_member.size() > max_side_rules)
      fail_compile("so_too_complex", a.some_member.back().path + ": more than " + std::to_string(max_side_rules) +
                                         " rules about some members of one object");
    bool declares = false, says_more = false;
    for (const schema_index s : a.schemas) {
      const schema_node& n = document_.node(s);
      declares |= !n.properties.empty() || !n.patterns.empty();
      says_more |= n.additional || n.unevaluated;
    }
    const schema_places::closing closed{.members = options_.strict && declares && !says_more};
    object_shape shape{
        {}, 0, {}, a.min_properties, a.max_properties.value_or(unbounded), (1u << a.some_member.size()) - 1};
    std::vector<std::u32string> names;
    const std::unordered_set<std::string> required(a.required.begin(), a.required.end());
    const std::unordered_set<std::string> forbidden(a.forbidden.begin(), a.forbidden.end());
    const key_lists keys = declared_keys(a);
    for (std::size_t k = 0; k < keys.all.size(); ++k) {
      const std::string& key = keys.all[k];
      if (k == keys.declared)
        shape.ordered = shape.declared.size();
      names.push_back(to_code_points(key));
      document_.budget().work(1 + a.schemas.size());
      const bool needed = required.contains(key);
      const auto place = forbidden.contains(key) ? std::nullopt : places_.member_place(a, key, closed);
      if (!place && needed) {
        if (unsatisfiable_.empty())
          unsatisfiable_ = path_of(a) + ": the member " + quoted_json(key) + " is required and can have no value" +
                           (closed.members ? " (strict mode forbids members that are not declared)" : "");
        return builder_.never();
      }
      if (!place)
        continue;
      const auto satisfied = [&](const schema_alternative::member_rule& r) { return r.keys->contains(names.back()); };
      shape.declared.push_back({members(a, builder_.literal(quoted_json(key)), *place, satisfied, depth), needed});
    }
    split_members(shape);
    if (keys.declared == keys.all.size())
      shape.ordered = shape.declared.size();
    if (options_.any_order)
      shape.ordered = 0;
    const std::size_t most_beside_rules = options_.any_order ? max_without_marks : max_free_beside_rules;
    const std::size_t most_free = shape.side_rules == 0 ? max_marks : most_beside_rules;
    if (shape.free() > most_free && options_.any_order)
      fail_compile("so_unsupported", (a.schemas.empty() ? std::string("#") : document_.node(a.schemas.front()).path) +
                                         "/properties: the option any_order is for at most " +
                                         std::to_string(most_free) + " declared members" +
                                         (shape.side_rules == 0 ? "" : " beside " + a.some_member.front().path));
    if (shape.free() > most_free)
      shape.ordered = shape.declared.size();
    for (std::size_t r = 0; r < a.some_member.size(); ++r)
      shape.by_key |= static_cast<std::uint32_t>(!a.some_member[r].value) << r;
    undeclared_members(shape, a, names, closed, depth, std::nullopt);
    if (shape.undeclared.empty() && shape.max >= shape.declared.size())
      shape.max = unbounded;                                                  // no declared key comes twice
    const bool one_more = !shape.marks_members() || shape.free() < max_marks; // that counts, of the undeclared ones
    const auto always = std::ranges::count_if(shape.declared, [](const declared_member& d) { return d.required; });
    if (shape.undeclared.empty() || shape.min <= static_cast<std::uint64_t>(always) + one_more)
      return object_of(shape, depth);
    return members_apart(shape, a, names, closed, depth, static_cast<std::uint64_t>(always),
                         shape.min <= shape.declared.size() + one_more);
  }

  // Keys that are not declared could be one key written twice: they are told apart by a character, which puts a mark.
  // `always`: declared members that no text lacks. `else_one`: where keys cannot be told apart, texts in which no more
  // than one of them counts are left.
  grammar_expr members_apart(object_shape& shape, const schema_alternative& a, std::span<const std::u32string> names,
                             schema_places::closing closed, std::uint32_t depth, std::uint64_t always, bool else_one) {
    const object_shape not_apart = shape;
    const auto give_up = [&](const std::string& why) {
      if (else_one)
        return object_of(not_apart, depth);
      fail_compile("so_unsupported", a.min_properties_path + ": at least " + std::to_string(shape.min) +
                                         " members, but keys that are not declared could be one key written twice; " +
                                         why);
    };
    if (shape.side_rules != 0 && shape.max != unbounded)
      return give_up("they are not told apart beside maxProperties and " + a.some_member.front().path);
    shape.told_apart = true;
    const std::size_t room = max_marks - (shape.marks_members() ? shape.free() : 0);
    std::vector<grammar_expr> ways; // by the character in which the keys differ
    std::size_t most = 0;
    const auto told_apart_by = [&](const key_character& by) {
      shape.undeclared.clear();
      undeclared_members(shape, a, names, closed, depth, by);
      std::set<std::size_t> parts;
      for (const member& m : shape.undeclared)
        parts.insert(m.part);
      const std::size_t apart = std::min(parts.size(), room);
      most = std::max(most, apart);
      const bool enough = apart > 1 && shape.declared.size() + apart >= shape.min;
      if (enough)
        ways.push_back(builder_.call(builder_.define("object", object_of(shape, depth))));
      return enough;
    };
    try {
      const std::uint64_t wanted = shape.min - always;
      const auto sets = std::clamp<std::uint64_t>(4 * wanted, 16, characters_of_keys.size());
      told_apart_by({std::nullopt, std::clamp<std::uint64_t>(wanted + 1, 4, most_last_characters)});
      for (std::size_t place = 0; place < last_place_of_keys && !told_apart_by({place, sets});)
        ++place; // where all of these keys are alike
    } catch (const automaton_too_large&) {
      if (!else_one && ways.empty())
        throw;
    }
    if (ways.empty())
      return give_up("beside the " + std::to_string(shape.declared.size()) + " declared ones at most " +
                     std::to_string(most) +
                     " can be told apart, by one of their first characters or the last one; declare more of them");
    return builder_.alternatives(ways);
  }

  static constexpr std::u32string_view characters_of_keys = U"0123456789abcdefghijklmnopqrstuvwxyz";
  // Which character of keys tells them apart.
  struct key_character {
    std::optional<std::size_t> place; // none: the last one
    std::size_t sets = 0;
  };

  // Keys sorted by the set that one of their characters is in: those of different sets differ. Masks have to follow
  // every combination of sets, so there are not many more than are wanted.
  static std::deque<char_dfa> by_character(const key_character& by) {
    const auto add = [](std::vector<char_dfa::edge>& edges, const char_set& chars, std::size_t to) {
      for (const char_range& r : chars.ranges())
        edges.push_back({r.low, r.high, static_cast<std::uint32_t>(to)});
    };
    std::deque<char_dfa> out;
    for (std::size_t set = 0; set < by.sets; ++set) {
      char_set inside;
      for (std::size_t c = set; c < characters_of_keys.size(); c += by.sets)
        inside.add(characters_of_keys[c], characters_of_keys[c]);
      std::vector<char_dfa::raw_state> states;
      if (by.place) {
        for (std::size_t i = 0; i < *by.place; ++i)
          add(states.emplace_back().edges, char_set::all(), i + 1);
        add(states.emplace_back().edges, inside, *by.place + 1);
        states.push_back({true, {}});
        add(states.back().edges, char_set::all(), *by.place + 1);
      } else {
        std::vector<char_dfa::edge> edges;
        add(edges, inside, 1);
        add(edges, inside.complement(), 0);
        std::ranges::sort(edges, {}, &char_dfa::edge::low);
        states = {{false, edges}, {true, edges}};
      }
      out.push_back(char_dfa::of_states(states));
    }
    return out;
  }

  void split_members(object_shape& shape) {
    std::vector<grammar_expr> all;
    for (const declared_member& d : shape.declared)
      for (const member& m : d.ways)
        all.push_back(m.reads);
    split(all, "member");
    auto next = all.begin();
    for (declared_member& d : shape.declared)
      for (member& m : d.ways)
        m.reads = *next++;
  }

  struct key_lists {
    std::vector<std::string> all; // those that `properties` declares first, in the order of the text
    std::size_t declared = 0;     // how many those are; the others are only required, forbidden or depended on
  };
  key_lists declared_keys(const schema_alternative& a) {
    key_lists keys;
    std::unordered_set<std::string> seen;
    const auto add = [&](const std::string& key) {
      if (seen.insert(key).second)
        keys.all.push_back(key);
    };
    for (const schema_index s : a.schemas)
      for (const schema_node::keyed& p : document_.node(s).properties)
        add(p.key);
    keys.declared = keys.all.size();
    for (const std::string& key : a.required)
      add(key);
    for (const schema_alternative::one_member& m : a.single_members)
      add(m.key);
    for (const std::string& key : a.forbidden)
      add(key);
    return keys;
  }

  // A member with each choice of the side rules that its value may count for.
  std::vector<member> members(const schema_alternative& a, grammar_expr key, const schema_place& place,
                              const auto& key_counts, std::uint32_t depth) {
    std::vector<member> out;
    for (std::uint32_t subset = 0; subset < (1u << a.some_member.size()); ++subset) {
      schema_place value = place;
      bool possible = true;
      for (std::size_t r = 0; r < a.some_member.size(); ++r)
        if (subset >> r & 1)
          possible = possible && key_counts(a.some_member[r]) &&
                     (!a.some_member[r].value || places_.add(value, *a.some_member[r].value));
      if (!possible)
        continue;
      out.push_back({builder_.sequence({key, colon(), value_at(value, depth + 1)}), subset});
    }
    return out;
  }

  // Keys that no schema here declares, sorted by the patterns that they match, and by the character in a place.
  void undeclared_members(object_shape& shape, const schema_alternative& a, std::span<const std::u32string> names,
                          schema_places::closing closed, std::uint32_t depth, const std::optional<key_character>& by) {
    char_dfa declared; // made below, where it is needed
    std::vector<const char_dfa*> languages{&declared};
    std::deque<char_dfa> name_languages;
    for (const schema_index s : a.schemas) {
      const schema_node& n = document_.node(s);
      document_.budget().work(1 + n.patterns.size());
      for (const schema_node::pattern_keyed& p : n.patterns)
        if (languages.size() <= char_partition::most_languages &&
            std::find(languages.begin(), languages.end(), p.keys) == languages.end())
          languages.push_back(p.keys);
      if (n.property_names)
        name_languages.push_back(places_.texts({{schema_literal::claim::holds, *n.property_names, nullptr}}));
    }
    const std::size_t first_name = languages.size();
    for (const char_dfa& language : name_languages)
      languages.push_back(&language);
    const std::size_t first_rule = languages.size();
    for (const schema_alternative::member_rule& r : a.some_member)
      languages.push_back(r.keys.get());
    std::deque<char_dfa> sets;
    if (by)
      sets = by_character(*by);
    for (const char_dfa& set : sets) // fewer of them tell fewer keys apart, but none wrongly
      if (languages.size() < char_partition::most_languages)
        languages.push_back(&set);
    if (languages.size() > char_partition::most_languages)
      throw automaton_too_large("more than " + std::to_string(char_partition::most_languages - 1) +
                                " patterns and rules for the keys of one object");
    if (first_name == 1 && !places_.undeclared_place(
                               a, [](const char_dfa&) { return false; }, closed))
      return; // no pattern, and nothing else is allowed
    declared = char_dfa::words(names);
    std::vector<char_partition::part> parts;
    if (languages.size() == 1)
      parts.push_back({0, declared.complement()});
    else
      parts = char_partition::of(languages);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const char_partition::part& part = parts[p];
      document_.budget().pairs(1 + part.texts.size());
      bool named = !(part.members & 1);
      for (std::size_t i = first_name; i < first_rule; ++i)
        named &= part.members >> i & 1;
      if (!named)
        continue;
      const auto matches = [&](const char_dfa& keys) {
        const auto at = std::find(languages.begin(), languages.end(), &keys) - languages.begin();
        return (part.members >> at & 1) != 0;
      };
      const auto place = places_.undeclared_place(a, matches, closed);
      if (!place)
        continue;
      const grammar_expr key = part.texts.is_everything() ? builder_.json_string(0) : builder_.json_string(part.texts);
      const auto counts = [&](const schema_alternative::member_rule& r) { return matches(*r.keys); };
      for (member& m : members(a, key, *place, counts, depth)) {
        m.part = p;
        shape.undeclared.push_back(std::move(m));
      }
    }
  }

  // A key that is not declared may come twice, and readers of JSON take the last value of the two. What such members
  // count for must hold whichever of them were one key: towards the least number those of different parts count, or one
  // of them all, and a side rule that one of them satisfies is open again once another of the same part, perhaps its
  // key, does not.
  struct object_state {
    // Number of the next member in order, and where all are passed, plus the set of the written ones among the others,
    // unless they are marks.
    std::uint64_t progress = 0;
    std::uint64_t written = 0, different = 0; // members, and keys that differ for sure; as far as they matter
    bool other = false;                       // an undeclared one is among `different`, if that still matters
    std::array<std::uint32_t, max_side_rules> satisfied{}; // 0 = not, 1 = for good, 2 + part
    auto operator<=>(const object_state&) const = default;
  };

  static object_state after(const object_shape& shape, object_state s, std::uint64_t progress, const member& m,
                            bool is_mark) {
    const bool is_declared = m.part == member::declared;
    s.progress = progress;
    s.written = std::min(s.written + 1, shape.max != unbounded ? shape.max : 0);
    if (!is_mark && (is_declared || !s.other)) {
      ++s.different;
      s.other |= !is_declared;
    }
    if (s.different >= shape.min) {
      s.different = shape.min;
      s.other = false;
    }
    for (std::size_t r = 0; r < s.satisfied.size(); ++r) {
      std::uint32_t& by = s.satisfied[r];
      const auto here = static_cast<std::uint32_t>(is_declared || (shape.by_key >> r & 1) != 0 ? 1 : 2 + m.part);
      if ((m.satisfies >> r & 1) != 0 && by != 1)
        by = here;
      else if (by == here && by != 1)
        by = 0;
    }
    return s;
  }

  static bool satisfied(const object_shape& shape, const object_state& s) {
    bool all = true;
    for (std::size_t r = 0; r < s.satisfied.size(); ++r)
      all = all && ((shape.side_rules >> r & 1) == 0 || s.satisfied[r] != 0);
    return all;
  }

  // Bits of the parts of undeclared members, behind those of the free ones; more parts than there are share some.
  static std::map<std::size_t, std::uint64_t> marks_of_parts(const object_shape& shape) {
    const std::size_t first = shape.marks_members() ? shape.free() : 0, room = max_marks - first;
    std::map<std::size_t, std::uint64_t> marks;
    for (const member& m : shape.undeclared)
      if (room > 0 && !marks.contains(m.part))
        marks[m.part] = std::uint64_t{1} << (first + (shape.told_apart ? marks.size() % room : 0));
    return marks;
  }

  // The states of free members, which keep the marks, begin behind the ordered ones.
  grammar_expr object_of(const object_shape& shape, std::uint32_t depth) {
    // Between members: `choose` has to read one from number i on, `behind` has read one. A step to the next declared
    // member without reading leaves an optional one out.
    std::vector<grammar_expr> ways;
    const std::size_t n = shape.ordered;
    std::size_t needed = 0; // ordered members from here on are optional
    for (std::size_t i = 0; i < n; ++i)
      if (shape.declared[i].required)
        needed = i + 1;
    const std::span<const declared_member> free = std::span(shape.declared).subspan(n);
    std::uint64_t needed_free = 0;
    for (std::size_t i = 0; i < free.size(); ++i)
      needed_free |= std::uint64_t{free[i].required} << i;
    const bool marked_free = shape.marks_members();
    const std::map<std::size_t, std::uint64_t> marks = marks_of_parts(shape);
    const auto written = [n](const object_state& s) { return s.progress > n ? s.progress - n : 0; };
    // Whether it could end, were the marks put.
    const auto complete = [&](const object_state& s) {
      return s.progress >= needed && satisfied(shape, s) &&
             (marked_free || (written(s) & needed_free) == needed_free) && (shape.marks() || s.different >= shape.min);
    };
    // What the marks must be where a state is.
    const auto rule_at = [&](const object_state& s, std::uint64_t room) {
      return mark_rule{
          .room = room, .needed = marked_free ? needed_free : 0, .least = shape.min - std::min(s.different, shape.min)};
    };
    const auto rule_behind = [&](const object_state& s) {
      return rule_at(s, shape.max == unbounded ? unbounded : shape.max - s.written);
    };
    const auto marked = [&](const object_state& s) { return shape.marks() && s.progress >= n; };
    if (complete({}) && (!shape.marks() || rule_at({}, 0).behind(0)))
      ways.push_back(empty_container("{}"));
    grammar_graph graph;
    const std::uint32_t end = graph.add_state();
    const grammar_expr separator = comma(depth), blank = gap();
    std::optional<grammar_rule> separating;
    if (shape.marks())
      separating = builder_.define("separator", separator);
    std::map<object_state, std::uint32_t> choose{{object_state{}, 0}}, behind;
    std::vector<object_state> found{{}};
    const auto chooser = [&](const object_state& s) {
      const auto [it, fresh] = choose.try_emplace(s, 0);
      if (fresh) {
        it->second = graph.add_state();
        found.push_back(s);
        document_.budget().states(2);
        if (found.size() > most_rule_states())
          throw automaton_too_large("minProperties and maxProperties need too many states");
      }
      return it->second;
    };
    const auto after_member = [&](const object_state& s) {
      const auto [it, fresh] = behind.try_emplace(s, 0);
      if (!fresh)
        return it->second;
      it->second = graph.add_state();
      if (marked(s)) {
        mark_rule between = rule_behind(s);
        between.goes_on = true;
        graph.add_marked(it->second, chooser(s), separating, between);
        if (complete(s))
          graph.add_marked(it->second, end, {}, rule_at(s, 0));
        return it->second;
      }
      graph.add_edge(it->second, chooser(s), separator);
      if (complete(s) && (!shape.marks() || rule_at(s, 0).behind(0)))
        graph.add_edge(it->second, end, builder_.empty());
      return it->second;
    };
    // Members that are read in more than one state are rules; with the blanks behind them, if in very many.
    const bool many = shape.marks() || !free.empty();
    const bool several = shape.min > 1 || shape.max != unbounded || shape.side_rules != 0;
    std::map<const member*, grammar_rule> rules;
    const auto rule_of_member = [&](const member& m) {
      const auto [rule, fresh] = rules.try_emplace(&m);
      if (fresh)
        rule->second = builder_.define("member", many ? builder_.sequence({m.reads, blank}) : m.reads);
      return rule->second;
    };
    const auto reading = [&](const member& m) {
      if (many)
        return builder_.call(rule_of_member(m));
      const bool once = !several && m.part == member::declared;
      return builder_.sequence({once ? m.reads : builder_.call(rule_of_member(m)), blank});
    };
    charged_memory held;
    const auto put = [&](const object_state& from, const object_state& to, const member& m, std::uint64_t puts,
                         bool once) {
      mark_rule marks_of = rule_behind(to);
      marks_of.puts = puts;
      marks_of.once = once;
      graph.add_marked(choose.at(from), after_member(to), rule_of_member(m), marks_of);
      held.add(2 * sizeof(grammar_graph::marked_edge)); // a vector that grows
      document_.budget().work();
    };
    // No mark is put before the free members begin.
    const auto possible = [&](const object_state& s) { return !marked(s) || rule_behind(s).behind(0); };
    for (std::size_t f = 0; f < found.size(); ++f) {
      const object_state from = found[f];
      const std::uint32_t at = choose.at(from);
      if (from.written >= shape.max && shape.max != unbounded)
        continue;
      const auto read = [&](const member& m, std::uint64_t progress) {
        const object_state to = after(shape, from, progress, m, false);
        if (possible(to))
          graph.add_edge(at, after_member(to), reading(m));
      };
      if (from.progress < n) {
        const declared_member& d = shape.declared[static_cast<std::size_t>(from.progress)];
        for (const member& m : d.ways)
          read(m, from.progress + 1);
        object_state without = from;
        ++without.progress;
        if (!d.required && possible(without))
          graph.add_edge(at, chooser(without), builder_.empty());
        continue;
      }
      for (std::size_t i = 0; i < free.size(); ++i) {
        const std::uint64_t bit = std::uint64_t{1} << i;
        for (const member& m : free[i].ways)
          if (marked_free)
            put(from, after(shape, from, from.progress, m, true), m, bit, true);
          else if ((written(from) & bit) != 0)
            continue;
          else if (shape.marks())
            put(from, after(shape, from, from.progress + bit, m, false), m, 0, false);
          else
            read(m, from.progress + bit);
      }
      for (const member& m : shape.undeclared)
        if (shape.marks())
          put(from, after(shape, from, from.progress, m, true), m, marks.contains(m.part) ? marks.at(m.part) : 0,
              false);
        else
          read(m, from.progress);
    }
    graph.accepting = {end};
    ways.push_back(builder_.sequence({opening('{', depth), builder_.graph(graph), end_of('}', depth)}));
    return builder_.alternatives(ways);
  }

  struct open_place {
    schema_place place;
    std::uint32_t depth;
    grammar_rule rule;
  };

  grammar_builder& builder_;
  json_schema_options options_;
  schema_document document_;
  schema_places places_;
  std::optional<grammar_rule> gap_;
  std::map<std::pair<schema_place, std::uint32_t>, grammar_rule> rules_;
  std::vector<open_place> open_;
  std::string unsatisfiable_; // why the first object that cannot exist does not
};

} // namespace

grammar_rule json_schema_grammar(grammar_builder& builder, std::string_view schema,
                                 const json_schema_options& options) {
  return schema_compiler(builder, schema, options).compile();
}

} // namespace troupe
