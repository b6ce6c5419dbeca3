#include "runtime/grammar/json_schema_places.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

namespace troupe {
namespace {

using claim = schema_literal::claim;
using kind = json_value::kind;

constexpr std::size_t max_alternatives = 4096;
constexpr std::size_t max_dependent_branches = 256; // structured_output.md 6.3
constexpr std::size_t max_joint_branches = 4;       // of anyOf that may hold together and evaluate members or items
constexpr std::size_t max_trials = 256;             // alternatives looked at for a proof of emptiness
constexpr int max_proof_depth = 8;                  // places below each other in such a proof
constexpr std::uint64_t max_proof_items = 16;
constexpr std::uint64_t most_product_states =
    512; // of a language and its longest length; beyond, characters are counted

schema_literal holds(schema_index s) {
  return {claim::holds, s, nullptr};
}
schema_literal fails(schema_index s) {
  return {claim::fails, s, nullptr};
}
schema_literal differs(const json_value& v) {
  return {claim::differs, 0, &v};
}

template <class T> void lower(std::optional<T>& bound, const T& value) {
  if (!bound || value < *bound)
    bound = value;
}

} // namespace

void key_list::add(const std::string& key) {
  charge_work(1);
  if (contains(key))
    return;
  keys_.push_back(key);
  if (keys_.size() == few + 1)
    known_.insert(keys_.begin(), keys_.end());
  else if (keys_.size() > few)
    known_.insert(key);
}

bool key_list::contains(const std::string& key) const {
  return keys_.size() > few ? known_.contains(key) : std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

void schema_alternative::at_least_members(std::uint64_t count, const std::string& path) {
  if (count <= min_properties)
    return;
  min_properties = count;
  min_properties_path = path;
}

void schema_alternative::require(const std::string& key) {
  required.add(key);
  if (forbidden.contains(key))
    types &= ~type_object;
}

void schema_alternative::forbid(const std::string& key) {
  forbidden.add(key);
  if (required.contains(key))
    types &= ~type_object;
}

std::size_t schema_alternative::bytes() const {
  constexpr std::size_t key = 2 * sizeof(std::string) + 48;
  return sizeof(*this) + 8 * ((values ? values->size() : 0) + excluded.size() + applied_by.size() + divisors.size()) +
         min_properties_path.size() + 4 * schemas.size() + sizeof(text_rule) * texts.size() +
         sizeof(item_rule) * contains.size() + sizeof(one_item) * single_items.size() +
         sizeof(one_member) * single_members.size() + sizeof(member_rule) * some_member.size() +
         key * (required.size() + forbidden.size() + unique_items.size()) +
         sizeof(exact_decimal) * (numbers.multiples_of.size() + numbers.not_multiples_of.size());
}

// Unfolds a place into its alternatives: a stack of partly unfolded ones, each with what is still to be looked at.
class schema_expansion {
public:
  // exact: as schema_places::alternatives. Otherwise anything that is not understood, and oneOf beyond anyOf, is left
  // out, so that more values than the place's satisfy the result.
  schema_expansion(schema_places& places, bool exact) : places_(places), document_(places.document_), exact_(exact) {}

  // false from `found` ends the search. Returns whether every alternative was found.
  bool run(const schema_place& place, const std::function<bool(schema_alternative)>& found) {
    whole_ = &place;
    state first;
    for (auto l = place.rbegin(); l != place.rend(); ++l)
      first.open.push_back(literal(*l));
    stack_.push_back(std::move(first));
    while (!stack_.empty()) {
      state s = std::move(stack_.back());
      stack_.pop_back();
      document_.budget().pairs(1);
      if (unfold(s) && !found(std::move(s.done)))
        return false;
      if (++trials_ > (exact_ ? max_alternatives : max_trials)) {
        if (exact_)
          too_many();
        return false;
      }
    }
    return true;
  }

private:
  struct task {
    enum class kind : std::uint8_t { literal, members, rule, choice, taken } what;
    schema_literal claimed = {};
    std::size_t number = 0;              // of the branch of anyOf that was taken
    std::optional<schema_index> by = {}; // the schema that applies it
    std::function<void(schema_alternative&)> rule = {};
    std::vector<std::vector<task>> branches = {};
  };
  using branch = std::vector<task>;
  struct state {
    schema_alternative done;
    std::vector<task> open; // the next one last
    std::set<schema_literal> seen;
    json_types sorted = 0;                                   // types by which the values are sorted out
    std::vector<std::pair<schema_index, std::size_t>> taken; // branches of anyOf with others behind them
  };

  [[noreturn]] static void too_many() {
    fail_compile("so_too_complex", "one place of the value has more than " + std::to_string(max_alternatives) +
                                       " alternatives; use fewer anyOf, oneOf and not");
  }

  static task literal(const schema_literal& l, std::optional<schema_index> by = {}) {
    return {.what = task::kind::literal, .claimed = l, .by = by};
  }
  static task rule(std::function<void(schema_alternative&)> r) {
    return {.what = task::kind::rule, .rule = std::move(r)};
  }
  static task choice(std::vector<branch> branches) {
    return {.what = task::kind::choice, .branches = std::move(branches)};
  }
  static task only(json_types types) {
    return rule([types](schema_alternative& a) { a.types &= types; });
  }
  static task need(const std::string& key) {
    return rule([key](schema_alternative& a) { a.require(key); });
  }
  static task forbid(const std::string& key) {
    return rule([key](schema_alternative& a) { a.forbid(key); });
  }

  // Works on a state until it is an alternative (true), empty, or split into others on the stack.
  bool unfold(state& s) {
    while (!s.open.empty() || more_branches(s)) {
      document_.budget().work();
      task t = std::move(s.open.back());
      s.open.pop_back();
      switch (t.what) {
      case task::kind::literal:
        if (!add(s, t))
          return false;
        break;
      case task::kind::members: // of a schema that holds already
        s.done.schemas.push_back(t.claimed.schema);
        break;
      case task::kind::rule:
        t.rule(s.done);
        break;
      case task::kind::taken:
        s.taken.emplace_back(t.claimed.schema, t.number);
        break;
      case task::kind::choice:
        if (t.branches.empty())
          return false;
        if (t.branches.size() > 1) {
          if (stack_.size() + t.branches.size() > max_alternatives)
            too_many();
          const std::size_t bytes = bytes_of(s);
          for (auto b = t.branches.rbegin(); b + 1 != t.branches.rend(); ++b) {
            document_.budget().work(1 + bytes / 256);
            held_.add(bytes + bytes_of(*b));
            state other = s;
            other.open.insert(other.open.end(), std::make_move_iterator(b->rbegin()),
                              std::make_move_iterator(b->rend()));
            if (settle(other))
              stack_.push_back(std::move(other));
          }
        }
        std::vector<task>& first = t.branches.front();
        s.open.insert(s.open.end(), std::make_move_iterator(first.rbegin()), std::make_move_iterator(first.rend()));
        break;
      }
      if (!settle(s))
        return false;
    }
    return true;
  }

  static std::size_t bytes_of(const branch& tasks) {
    std::size_t sum = tasks.size() * (sizeof(task) + 64); // with what a rule keeps
    for (const task& t : tasks)
      for (const branch& b : t.branches)
        sum += bytes_of(b);
    return sum;
  }
  static std::size_t bytes_of(const state& s) {
    return s.done.bytes() + bytes_of(s.open) + 64 * s.seen.size() + 16 * s.taken.size();
  }

  // Takes away types that cannot be any more; false if none is left.
  static bool settle(state& s) {
    schema_alternative& a = s.done;
    const number_rules& n = a.numbers;
    if (n.low && n.high &&
        (n.low->value > n.high->value || (n.low->value == n.high->value && (n.low->exclusive || n.high->exclusive))))
      a.types &= ~type_number;
    if (a.max_length && *a.max_length < a.min_length)
      a.types &= ~type_string;
    if (a.max_items && *a.max_items < a.min_items)
      a.types &= ~type_array;
    if (a.max_properties && *a.max_properties < std::max<std::uint64_t>(a.min_properties, a.required.size()))
      a.types &= ~type_object;
    if (a.values && s.sorted != a.types) {
      charge_work(1 + a.values->size() / 16);
      std::erase_if(*a.values, [&](const json_value* v) { return !(type_of(*v) & a.types); });
      s.sorted = a.types;
    }
    return a.types != 0 && (!a.values || !a.values->empty());
  }

  bool add(state& s, const task& t) {
    const schema_literal& l = t.claimed;
    if (l.what == claim::differs) {
      different(s, *l.value);
      return true;
    }
    const schema_node& n = document_.node(l.schema);
    const bool positive = l.what != claim::fails;
    if (n.always)
      return *n.always == positive;
    if (t.by && positive)
      s.done.applied_by.emplace_back(l.schema, *t.by);
    if (s.seen.contains({positive ? claim::fails : claim::holds, l.schema, nullptr}))
      return false;
    if (!s.seen.insert({l.what, l.schema, nullptr}).second)
      return true;
    if (positive)
      unfold_holding(s, l.schema, n, l.what == claim::holds);
    else
      unfold_failing(s, n);
    return true;
  }

  // --- a schema that holds

  void unfold_holding(state& s, schema_index index, const schema_node& n, bool with_one_of) {
    apply(s.done, n);
    std::vector<task> next;
    bool placed = false;
    const auto sub = [&](schema_index i) { return literal(holds(i), index); };
    for (const schema_node::step step : n.steps) {
      switch (step) {
      case schema_node::step::members:
        next.push_back({.what = task::kind::members, .claimed = holds(index)});
        placed = true;
        break;
      case schema_node::step::reference:
        for (const schema_index i : n.references)
          next.push_back(sub(i));
        break;
      case schema_node::step::all_of:
        for (const schema_index i : n.all_of)
          next.push_back(sub(i));
        break;
      case schema_node::step::any_of: {
        std::vector<branch> branches;
        for (std::size_t i = 0; i < n.any_of.size(); ++i) {
          branches.push_back({sub(n.any_of[i])});
          if (exact_ && i + 1 < n.any_of.size())
            branches.back().push_back({.what = task::kind::taken, .claimed = holds(index), .number = i});
        }
        next.push_back(choice(std::move(branches)));
        break;
      }
      case schema_node::step::one_of:
        if (with_one_of)
          next.push_back(one_of(index, n));
        break;
      case schema_node::step::negation:
        next.push_back(literal(fails(*n.negation)));
        break;
      case schema_node::step::condition:
        condition(next, index, n);
        break;
      case schema_node::step::dependent:
        dependents(next, index, n);
        break;
      }
    }
    if (!placed) // its members count from here, if others say something about them
      s.done.schemas.push_back(index);
    s.open.insert(s.open.end(), std::make_move_iterator(next.rbegin()), std::make_move_iterator(next.rend()));
  }

  // Whether what this schema evaluates matters to it or to one that applies it.
  bool unevaluated_above(const schema_alternative& a, schema_index index) const {
    std::vector<schema_index> open{index};
    for (std::size_t i = 0; i < open.size(); ++i) {
      const schema_node& n = document_.node(open[i]);
      if (n.unevaluated || n.unevaluated_items)
        return true;
      document_.budget().work(1 + a.applied_by.size() / 16);
      for (const auto& [schema, parent] : a.applied_by)
        if (schema == open[i] && std::find(open.begin(), open.end(), parent) == open.end())
          open.push_back(parent);
    }
    return false;
  }

  // A value that satisfies several branches has evaluated what all of them look at. Whether that matters is known when
  // all that applies them is. The others of a set of branches are added to its first one.
  bool more_branches(state& s) {
    const auto matters = [&](schema_index i) {
      const schema_node& n = document_.node(i);
      return n.unevaluated || n.unevaluated_items;
    };
    if (s.taken.empty() || std::none_of(s.done.schemas.begin(), s.done.schemas.end(), matters))
      return false;
    for (std::size_t t = 0; t < s.taken.size(); ++t) {
      const auto [index, first] = s.taken[t];
      if (!unevaluated_above(s.done, index))
        continue;
      s.taken.erase(s.taken.begin() + static_cast<std::ptrdiff_t>(t));
      if (std::vector<branch> ways = joint_branches(index, first); ways.size() > 1) {
        s.open.push_back(choice(std::move(ways)));
        return true;
      }
      --t;
    }
    return false;
  }

  std::vector<branch> joint_branches(schema_index index, std::size_t first) {
    const schema_node& n = document_.node(index);
    const std::vector<schema_index>& list = n.any_of;
    std::vector<branch> ways{{}};
    if (list.size() > max_joint_branches) {
      for (std::size_t i = first + 1; i < list.size(); ++i)
        if (schema_place both = *whole_;
            !excluded_by_type(list[i], list[first]) && !never_both(both, list[first], list[i])) {
          document_.unsupported(n.path + "/anyOf", "below unevaluatedProperties or unevaluatedItems, for more than " +
                                                       std::to_string(max_joint_branches) +
                                                       " branches only if no two of them can hold together");
          break;
        }
      return ways;
    }
    for (std::uint32_t others = 1; others < 1u << (list.size() - first - 1); ++others) {
      branch all;
      for (std::size_t i = first + 1; i < list.size(); ++i)
        if (others >> (i - first - 1) & 1)
          all.push_back(literal(holds(list[i]), index));
      ways.push_back(std::move(all));
    }
    return ways;
  }

  // What the keywords of a schema say themselves, members and items apart.
  void apply(schema_alternative& a, const schema_node& n) const {
    a.types &= n.types.value_or(type_any);
    a.typed |= n.types || n.constant || n.values;
    if (n.constant || n.values) {
      std::vector<const json_value*> listed;
      if (n.constant)
        listed.push_back(n.constant);
      else
        for (const json_value& v : *n.values)
          listed.push_back(&v);
      if (!a.values) // others are compared with these when all is known
        a.values = std::move(listed);
    }
    const bool bounds = exact_ || !doubtful(n, type_number);
    if (n.minimum && bounds)
      a.numbers.at_least(*n.minimum);
    if (n.maximum && bounds)
      a.numbers.at_most(*n.maximum);
    if (n.multiple_of) {
      a.numbers.multiples_of.push_back(*n.multiple_of);
      a.divisors.push_back(&n);
    }
    a.min_length = std::max(a.min_length, n.min_length.value_or(0));
    if (n.max_length)
      lower(a.max_length, *n.max_length);
    if (n.pattern)
      a.texts.push_back({n.pattern, true});
    if (n.format) { // a proof of emptiness needs all texts that may have it
      const bool partial = n.format->possible.has_value();
      a.texts.push_back({partial && !exact_ ? &*n.format->possible : &n.format->texts, true, partial && exact_});
    }
    a.min_items = std::max(a.min_items, n.min_items.value_or(0));
    if (n.max_items)
      lower(a.max_items, *n.max_items);
    if (n.unique_items)
      a.unique_items.push_back(n.path + "/uniqueItems");
    if (n.contains && (n.min_contains > 0 || n.max_contains))
      a.contains.push_back({holds(*n.contains), 0, n.min_contains, n.max_contains, n.path + "/contains"});
    if (n.min_properties)
      a.at_least_members(*n.min_properties, n.path + "/minProperties");
    if (n.max_properties)
      lower(a.max_properties, *n.max_properties);
    for (const std::string& key : n.required)
      a.require(key);
  }

  task one_of(schema_index index, const schema_node& n) {
    std::vector<branch> branches;
    for (std::size_t i = 0; i < n.one_of.size(); ++i) {
      held_.add(sizeof(task) * n.one_of.size()); // at most one for each of the others
      branch b{literal(holds(n.one_of[i]), index)};
      for (std::size_t k = 0; exact_ && k < n.one_of.size(); ++k)
        if (k != i && !disjoint(index, n, i, k))
          b.push_back(literal(fails(n.one_of[k])));
      branches.push_back(std::move(b));
    }
    return choice(std::move(branches));
  }

  bool disjoint(schema_index index, const schema_node& n, std::size_t i, std::size_t k) {
    const schema_index first = n.one_of[std::min(i, k)], second = n.one_of[std::max(i, k)];
    schema_place both{{claim::holds_but_one_of, index, nullptr}};
    return excluded_by_type(first, second) || never_both(both, first, second);
  }

  bool excluded_by_type(schema_index first, schema_index second) const {
    const schema_node &a = document_.node(first), &b = document_.node(second);
    return a.types && b.types && (*a.types & *b.types) == 0;
  }

  // Where the rest of a place holds too.
  bool never_both(schema_place& both, schema_index first, schema_index second) {
    if (!places_.add(both, holds(first)) || !places_.add(both, holds(second)))
      return true;
    return first != second && places_.surely_empty(both);
  }

  void condition(std::vector<task>& next, schema_index index, const schema_node& n) {
    if (!n.then && !n.otherwise)
      return;
    branch yes{literal(holds(*n.condition), index)}, no;
    if (n.then)
      yes.push_back(literal(holds(*n.then), index));
    no.push_back(literal(fails(*n.condition)));
    if (n.otherwise)
      no.push_back(literal(holds(*n.otherwise), index));
    next.push_back(choice({std::move(yes), std::move(no)}));
  }

  static bool doubtful(const schema_node& n, json_types types) {
    return std::any_of(n.doubts.begin(), n.doubts.end(), [&](const schema_node::doubt& d) { return d.types & types; });
  }

  void dependents(std::vector<task>& next, schema_index index, const schema_node& n) {
    const std::optional<schema_index> by = doubtful(n, type_object) ? std::nullopt : std::optional(index);
    if (!exact_ && !by)
      return;
    if (exact_ && n.dependent_required.size() + n.dependent_schemas.size() > 8) // 2^8 branches
      document_.unsupported(n.path, "dependencies on more than 8 keys make more than " +
                                        std::to_string(max_dependent_branches) + " alternatives");
    for (const schema_node::dependent_keys& d : n.dependent_required) {
      if (d.needs.empty())
        continue;
      branch present{need(d.key)};
      for (const std::string& key : d.needs)
        present.push_back(need(key));
      next.push_back(choice({std::move(present), {forbid(d.key)}}));
    }
    for (const schema_node::keyed& d : n.dependent_schemas) // what it evaluates counts for objects with the key only
      next.push_back(choice({{only(type_object), need(d.key), literal(holds(d.schema), by)}, {forbid(d.key)}}));
  }

  // --- a schema that fails: at least one of its keywords does

  // A keyword whose failure has no language here. Reached only where the other keywords leave its type open.
  branch cannot_fail(json_types types, const std::string& path) {
    return {only(types), rule([this, path](schema_alternative&) {
              if (exact_)
                document_.unsupported(path, "it cannot be negated, as `not`, `if`, or overlapping branches of `oneOf` "
                                            "above it need");
            })};
  }

  void unfold_failing(state& s, const schema_node& n) {
    std::size_t most = n.prefix_items.size() + n.required.size() + n.properties.size() + n.patterns.size() +
                       n.all_of.size() + n.any_of.size() + n.one_of.size() * (n.one_of.size() + 1) / 2 +
                       (n.values ? n.values->size() : 0);
    for (const schema_node::dependent_keys& d : n.dependent_required)
      most += d.needs.size();
    held_.add(most * (sizeof(branch) + 4 * sizeof(task))); // a way is a few tasks, with what their rules keep
    document_.budget().work(1 + most);
    std::vector<branch> ways;
    if (n.types) {
      json_types others = type_any & ~*n.types;
      ways.push_back({only(others)});
    }
    values_fail(ways, n);
    numbers_fail(ways, n);
    texts_fail(ways, n);
    items_fail(ways, n);
    members_fail(ways, n);
    combinations_fail(ways, n);
    for (const schema_node::doubt& d : n.doubts)
      ways.push_back(cannot_fail(d.types, d.path));
    if (n.unique_items)
      ways.push_back(cannot_fail(type_array, n.path + "/uniqueItems"));
    if (n.unevaluated_items)
      ways.push_back(cannot_fail(type_array, n.path + "/unevaluatedItems"));
    if (n.unevaluated)
      ways.push_back(cannot_fail(type_object, n.path + "/unevaluatedProperties"));
    s.open.push_back(choice(std::move(ways)));
  }

  static void values_fail(std::vector<branch>& ways, const schema_node& n) {
    if (n.constant)
      ways.push_back({literal(differs(*n.constant))});
    if (n.values) {
      branch all;
      for (const json_value& v : *n.values)
        all.push_back(literal(differs(v)));
      ways.push_back(std::move(all));
    }
  }

  static void numbers_fail(std::vector<branch>& ways, const schema_node& n) {
    const bool bounds = !doubtful(n, type_number);
    if (n.minimum && bounds)
      ways.push_back({only(type_number), rule([b = *n.minimum](schema_alternative& a) {
                        a.numbers.at_most({b.value, !b.exclusive});
                      })});
    if (n.maximum && bounds)
      ways.push_back({only(type_number), rule([b = *n.maximum](schema_alternative& a) {
                        a.numbers.at_least({b.value, !b.exclusive});
                      })});
    if (n.multiple_of)
      ways.push_back({only(type_number), rule([&n](schema_alternative& a) {
                        a.numbers.not_multiples_of.push_back(*n.multiple_of);
                        a.divisors.push_back(&n);
                      })});
  }

  void texts_fail(std::vector<branch>& ways, const schema_node& n) const {
    if (n.min_length.value_or(0) > 0)
      ways.push_back(
          {only(type_string), rule([m = *n.min_length - 1](schema_alternative& a) { lower(a.max_length, m); })});
    if (n.max_length)
      ways.push_back({only(type_string), rule([m = *n.max_length + 1](schema_alternative& a) {
                        a.min_length = std::max(a.min_length, m);
                      })});
    if (n.pattern)
      ways.push_back({only(type_string), rule([p = n.pattern](schema_alternative& a) {
                        a.texts.push_back({p, false});
                      })});
    if (n.format) { // texts that cannot have it; for a proof of emptiness all that may not have it
      const bool partial = n.format->possible.has_value() && exact_;
      ways.push_back({only(type_string), rule([f = n.format, partial](schema_alternative& a) {
                        a.texts.push_back({partial ? &*f->possible : &f->texts, false, partial});
                      })});
    }
  }

  static task at_least_items(std::uint64_t count) {
    return rule([count](schema_alternative& a) { a.min_items = std::max(a.min_items, count); });
  }
  static task some_item(schema_alternative::item_rule r) {
    return rule([r = std::move(r)](schema_alternative& a) { a.contains.push_back(r); });
  }

  static void items_fail(std::vector<branch>& ways, const schema_node& n) {
    if (n.min_items.value_or(0) > 0)
      ways.push_back(
          {only(type_array), rule([m = *n.min_items - 1](schema_alternative& a) { lower(a.max_items, m); })});
    if (n.max_items)
      ways.push_back({only(type_array), at_least_items(*n.max_items + 1)});
    for (std::size_t i = 0; i < n.prefix_items.size(); ++i)
      ways.push_back({only(type_array), at_least_items(i + 1), rule([i, s = n.prefix_items[i]](schema_alternative& a) {
                        a.single_items.push_back({i, fails(s)});
                      })});
    if (n.items)
      ways.push_back({only(type_array), some_item({fails(*n.items), n.prefix_items.size(), 1, {}, n.path + "/items"})});
    if (n.contains && n.min_contains > 0)
      ways.push_back(
          {only(type_array), some_item({holds(*n.contains), 0, 0, n.min_contains - 1, n.path + "/contains"})});
    if (n.contains && n.max_contains)
      ways.push_back(
          {only(type_array), some_item({holds(*n.contains), 0, *n.max_contains + 1, {}, n.path + "/contains"})});
  }

  static task some_member(char_dfa keys, std::optional<schema_literal> value, std::string path) {
    return rule(
        [r = schema_alternative::member_rule{std::make_shared<const char_dfa>(std::move(keys)), value,
                                             std::move(path)}](schema_alternative& a) { a.some_member.push_back(r); });
  }

  void members_fail(std::vector<branch>& ways, const schema_node& n) {
    for (const std::string& key : n.required)
      ways.push_back({only(type_object), forbid(key)});
    for (const schema_node::keyed& p : n.properties)
      ways.push_back({only(type_object), need(p.key), rule([key = p.key, s = p.schema](schema_alternative& a) {
                        a.single_members.push_back({key, fails(s)});
                      })});
    for (const schema_node::pattern_keyed& p : n.patterns)
      ways.push_back({only(type_object), some_member(*p.keys, fails(p.schema), n.path + "/patternProperties")});
    if (n.additional)
      ways.push_back(
          {only(type_object), some_member(undeclared_keys(n), fails(*n.additional), n.path + "/additionalProperties")});
    if (n.property_names)
      ways.push_back({only(type_object), some_member(other_names(n), {}, n.path + "/propertyNames")});
    if (n.min_properties.value_or(0) > 0)
      ways.push_back({only(type_object),
                      rule([m = *n.min_properties - 1](schema_alternative& a) { lower(a.max_properties, m); })});
    if (n.max_properties)
      ways.push_back({only(type_object), rule([&n](schema_alternative& a) {
                        a.at_least_members(*n.max_properties + 1, n.path + "/maxProperties");
                      })});
    if (doubtful(n, type_object))
      return;
    for (const schema_node::dependent_keys& d : n.dependent_required)
      for (const std::string& key : d.needs)
        ways.push_back({only(type_object), need(d.key), forbid(key)});
    for (const schema_node::keyed& d : n.dependent_schemas)
      ways.push_back({only(type_object), need(d.key), literal(fails(d.schema))});
  }

  char_dfa other_names(const schema_node& n) {
    const schema_place names{holds(*n.property_names)};
    const auto partial = [](const schema_alternative& a) {
      return !a.values && std::any_of(a.texts.begin(), a.texts.end(), [](const auto& r) { return r.partial; });
    };
    if (!exact_) // proofs of emptiness do not look for such members
      return {};
    const std::vector<schema_alternative> ways = places_.alternatives(names);
    if (std::any_of(ways.begin(), ways.end(), partial))
      document_.unsupported(n.path + "/propertyNames", "its format is not known for every name, so that it cannot be "
                                                       "negated, as `not`, `if`, or overlapping branches of `oneOf` "
                                                       "above it need");
    return places_.texts(names).complement();
  }

  static char_dfa undeclared_keys(const schema_node& n) {
    std::vector<std::u32string> declared;
    for (const schema_node::keyed& p : n.properties)
      declared.push_back(to_code_points(p.key));
    char_dfa keys = char_dfa::words(declared).complement();
    for (const schema_node::pattern_keyed& p : n.patterns)
      keys = keys.subtract(*p.keys);
    return keys;
  }

  static void combinations_fail(std::vector<branch>& ways, const schema_node& n) {
    for (const auto* list : {&n.references, &n.all_of})
      for (const schema_index i : *list)
        ways.push_back({literal(fails(i))});
    const auto none_of = [](const std::vector<schema_index>& list) {
      branch all;
      for (const schema_index i : list)
        all.push_back(literal(fails(i)));
      return all;
    };
    if (!n.any_of.empty())
      ways.push_back(none_of(n.any_of));
    if (!n.one_of.empty()) {
      ways.push_back(none_of(n.one_of));
      for (std::size_t i = 0; i < n.one_of.size(); ++i)
        for (std::size_t k = i + 1; k < n.one_of.size(); ++k)
          ways.push_back({literal(holds(n.one_of[i])), literal(holds(n.one_of[k]))});
    }
    if (n.negation)
      ways.push_back({literal(holds(*n.negation))});
    if (n.condition && n.then)
      ways.push_back({literal(holds(*n.condition)), literal(fails(*n.then))});
    if (n.condition && n.otherwise)
      ways.push_back({literal(fails(*n.condition)), literal(fails(*n.otherwise))});
  }

  // --- a value that the place must not have

  void different(state& s, const json_value& v) {
    const json_types type = type_of(v);
    if (v.is(kind::null)) {
      s.done.types &= ~type_null;
    } else if (!v.is(kind::array) && !v.is(kind::object)) {
      s.done.excluded.push_back(&v);
    } else {
      std::vector<branch> ways{{only(type_any & ~type)}};
      if (v.is(kind::array)) {
        const std::uint64_t size = v.items.size();
        if (size > 0)
          ways.push_back({only(type), rule([size](schema_alternative& a) { lower(a.max_items, size - 1); })});
        ways.push_back({only(type), at_least_items(size + 1)});
        for (std::uint64_t i = 0; i < size; ++i)
          ways.push_back({only(type), at_least_items(i + 1), rule([i, item = &v.items[i]](schema_alternative& a) {
                            a.single_items.push_back({i, differs(*item)});
                          })});
      } else {
        std::vector<std::u32string> keys;
        for (const auto& [key, member] : v.members) {
          keys.push_back(to_code_points(key));
          ways.push_back({only(type), forbid(key)});
          ways.push_back({only(type), need(key), rule([key = key, m = &member](schema_alternative& a) {
                            a.single_members.push_back({key, differs(*m)});
                          })});
        }
        ways.push_back({only(type), some_member(char_dfa::words(keys).complement(), {}, "a value to be left out")});
      }
      s.open.push_back(choice(std::move(ways)));
    }
  }

  schema_places& places_;
  schema_document& document_;
  bool exact_;
  const schema_place* whole_ = nullptr;
  std::size_t trials_ = 0;
  std::vector<state> stack_;
  charged_memory held_;
};

bool schema_places::add(schema_place& place, const schema_literal& literal) {
  if (literal.what != claim::differs) {
    const schema_node& n = document_.node(literal.schema);
    const bool positive = literal.what != claim::fails;
    if (n.always)
      return *n.always == positive;
  }
  document_.budget().work(1 + place.size() / 16);
  if (std::find(place.begin(), place.end(), literal) == place.end())
    place.push_back(literal);
  return true;
}

std::vector<schema_alternative> schema_places::alternatives(const schema_place& place) {
  std::vector<schema_alternative> out;
  schema_expansion(*this, true).run(place, [&](schema_alternative a) {
    out.push_back(std::move(a));
    return true;
  });
  return out;
}

bool schema_places::evaluated(const schema_alternative& a, schema_index by, bool proof,
                              const std::function<bool(const schema_node&)>& looks_at) {
  std::vector<schema_index> open{by};
  std::set<schema_index> seen{by};
  while (!open.empty()) {
    const schema_index at = open.back();
    open.pop_back();
    document_.budget().work(1 + a.applied_by.size() / 16);
    const schema_node& n = document_.node(at);
    if (looks_at(n))
      return true;
    const auto look = [&](schema_index schema) {
      if (seen.insert(schema).second)
        open.push_back(schema);
    };
    if (proof)
      n.for_each_at_same_place(look);
    else
      for (const auto& [schema, parent] : a.applied_by)
        if (parent == at)
          look(schema);
  }
  return false;
}

std::optional<schema_place> schema_places::member_place(const schema_alternative& a, const std::string* key,
                                                        const std::function<bool(const char_dfa&)>& matches,
                                                        closing closed) {
  schema_place place;
  bool declared = false, possible = true;
  const auto declares = [&](const schema_node& n) {
    return (key && n.property(*key)) ||
           std::any_of(n.patterns.begin(), n.patterns.end(), [&](const auto& p) { return matches(*p.keys); });
  };
  for (const schema_index s : a.schemas) {
    const schema_node& n = document_.node(s);
    document_.budget().work(1 + n.patterns.size());
    if (const schema_index* own = key ? n.property(*key) : nullptr)
      possible &= add(place, holds(*own));
    for (const schema_node::pattern_keyed& p : n.patterns)
      if (matches(*p.keys))
        possible &= add(place, holds(p.schema));
    const bool covered = declares(n);
    declared |= covered;
    if (!covered && n.additional)
      possible &= add(place, holds(*n.additional));
    if (n.unevaluated && !evaluated(a, s, closed.proof, [&](const schema_node& d) {
          return declares(d) || d.additional || (d.unevaluated && &d != &n);
        }))
      possible &= add(place, holds(*n.unevaluated));
  }
  document_.budget().work(1 + a.single_members.size() / 16);
  for (const schema_alternative::one_member& m : a.single_members)
    if (key && m.key == *key) {
      possible &= add(place, m.value);
      declared = true;
    }
  if (!possible || (closed.members && !declared))
    return std::nullopt;
  return place;
}

std::optional<schema_place> schema_places::member_place(const schema_alternative& a, const std::string& key,
                                                        closing closed) {
  json_value name;
  name.what = kind::string;
  name.text = key;
  for (const schema_index s : a.schemas)
    if (const auto& names = document_.node(s).property_names; names && !accepts({holds(*names)}, name))
      return std::nullopt;
  const std::u32string text = to_code_points(key);
  return member_place(
      a, &key, [&](const char_dfa& keys) { return keys.contains(text); }, closed);
}

std::optional<schema_place> schema_places::undeclared_place(const schema_alternative& a,
                                                            const std::function<bool(const char_dfa&)>& matches,
                                                            closing closed) {
  return member_place(a, nullptr, matches, closed);
}

std::optional<schema_place> schema_places::item_place(const schema_alternative& a, std::uint64_t index,
                                                      closing closed) {
  schema_place place;
  bool possible = true, declared = false;
  for (const schema_index s : a.schemas) {
    const schema_node& n = document_.node(s);
    const bool listed = index < n.prefix_items.size();
    document_.budget().work();
    declared |= listed;
    if (listed)
      possible &= add(place, holds(n.prefix_items[index]));
    else if (n.items)
      possible &= add(place, holds(*n.items));
    std::vector<schema_index> allowed; // an item that `contains` asks for is evaluated too
    if (n.unevaluated_items && !evaluated(a, s, closed.proof, [&](const schema_node& d) {
          const bool marks = d.contains && document_.draft() >= json_draft::d2020;
          if (marks)
            allowed.push_back(*d.contains);
          return index < d.prefix_items.size() || d.items || (d.unevaluated_items && &d != &n) ||
                 (marks && closed.proof);
        })) {
      allowed.push_back(*n.unevaluated_items);
      possible &= add(place, holds(document_.any_of(allowed, n.path + "/unevaluatedItems")));
    }
  }
  document_.budget().work(1 + a.single_items.size() / 16);
  for (const schema_alternative::one_item& i : a.single_items)
    if (i.index == index)
      possible &= add(place, i.item);
  if (!possible || (closed.items && !declared))
    return std::nullopt;
  return place;
}

std::uint64_t schema_places::listed_items(const schema_alternative& a) {
  std::uint64_t listed = 0;
  for (const schema_index s : a.schemas)
    listed = std::max<std::uint64_t>(listed, document_.node(s).prefix_items.size());
  for (const schema_alternative::one_item& i : a.single_items)
    listed = std::max(listed, i.index + 1);
  for (const schema_alternative::item_rule& r : a.contains)
    listed = std::max(listed, r.first);
  return listed;
}

schema_places::limited_texts schema_places::texts_and_limit(const schema_alternative& a) {
  if (!(a.types & type_string))
    return {};
  char_dfa out = char_dfa::everything();
  for (const schema_alternative::text_rule& r : a.texts) {
    document_.budget().pairs(out.size() + r.language->size());
    out = r.inside ? out.intersect(*r.language) : out.subtract(*r.language);
  }
  std::vector<std::u32string> words;
  for (const json_value* v : a.excluded)
    if (v->is(kind::string))
      words.push_back(to_code_points(v->text));
  if (!words.empty())
    out = out.subtract(char_dfa::words(words));
  if (out.empty())
    return {};
  // Lengths that the rest implies already are not counted once more.
  const std::uint64_t min = out.min_length() >= a.min_length ? 0 : a.min_length;
  std::optional<std::uint64_t> max = a.max_length;
  if (const auto longest = max ? out.max_length() : std::nullopt; longest && *longest <= *max)
    max.reset();
  const bool counted = max && *max > most_product_states / out.size();
  if (min > 0 || (max && !counted)) {
    document_.budget().pairs(out.size());
    out = out.intersect(char_dfa::length(min, counted ? std::nullopt : max));
  }
  if (!counted)
    return {std::move(out), {}};
  if (out.empty() || out.min_length() > *max)
    return {};
  return {std::move(out), max};
}

char_dfa schema_places::texts(const schema_alternative& a) {
  limited_texts all = texts_and_limit(a);
  if (!all.max_length)
    return std::move(all.texts);
  document_.budget().pairs(all.texts.size());
  return all.texts.intersect(char_dfa::length(0, all.max_length));
}

char_dfa schema_places::texts(const schema_place& place) {
  char_dfa out;
  for (const schema_alternative& a : alternatives(place)) {
    char_dfa more;
    if (a.values) {
      std::vector<std::u32string> words;
      for (const json_value* v : values(place, a))
        if (v->is(kind::string))
          words.push_back(to_code_points(v->text));
      more = char_dfa::words(words);
    } else {
      more = texts(a);
    }
    out = out.empty() ? std::move(more) : out.complement().intersect(more.complement()).complement();
  }
  return out;
}

std::vector<const json_value*> schema_places::values(const schema_place& place, const schema_alternative& a) {
  std::vector<const json_value*> out;
  for (const json_value* v : *a.values)
    if (accepts(place, *v))
      out.push_back(v);
  return out;
}

std::optional<std::vector<const json_value*>> schema_places::all_values(const schema_place& place, std::size_t limit) {
  std::vector<const json_value*> out;
  const auto add_value = [&](const json_value& v) {
    const auto same = [&](const json_value* other) { return same_value(*other, v); };
    if (!accepts(place, v) || std::any_of(out.begin(), out.end(), same))
      return;
    out.push_back(&v);
  };
  const auto make = [&](json_value v) { add_value(*made_.emplace_back(std::make_unique<json_value>(std::move(v)))); };
  for (const schema_alternative& a : alternatives(place)) {
    if (a.values) {
      if (a.values->size() > 8 * limit)
        return std::nullopt;
      for (const json_value* v : *a.values)
        add_value(*v);
    } else {
      if (a.types & (type_fraction | type_array | type_object))
        return std::nullopt;
      if (a.types & type_null)
        make({});
      if (a.types & type_boolean)
        for (const bool truth : {false, true}) {
          json_value v;
          v.what = kind::boolean;
          v.truth = truth;
          make(std::move(v));
        }
      if (a.types & type_integer) {
        std::optional<std::int64_t> low, high;
        if (a.numbers.low && a.numbers.high) {
          low = a.numbers.low->value.as_integer();
          high = a.numbers.high->value.as_integer();
        }
        if (!low || !high || *high - *low > static_cast<std::int64_t>(8 * limit))
          return std::nullopt;
        for (std::int64_t i = *low; i <= *high; ++i) {
          json_value v;
          v.what = kind::number;
          v.text = std::to_string(i);
          v.number = exact_decimal::of(i);
          make(std::move(v));
        }
      }
      if (a.types & type_string) {
        const limited_texts all = texts_and_limit(a);
        const auto words = all.max_length ? std::nullopt : all.texts.enumerate(limit);
        if (!words)
          return std::nullopt;
        for (const std::u32string& word : *words) {
          json_value v;
          v.what = kind::string;
          v.text = to_utf8(word);
          make(std::move(v));
        }
      }
    }
    if (out.size() > limit)
      return std::nullopt;
  }
  return out;
}

bool schema_places::surely_empty(const schema_place& place, int depth) {
  if (depth > max_proof_depth)
    return false;
  const auto [it, fresh] = empty_.try_emplace(place, false); // false also while it is being looked at
  if (!fresh)
    return it->second;
  bool empty = true;
  const bool complete = schema_expansion(*this, false).run(place, [&](const schema_alternative& a) {
    empty = surely_empty(place, a, depth);
    return empty;
  });
  return empty_[place] = empty && complete;
}

bool schema_places::surely_empty(const schema_place& place, const schema_alternative& a, int depth) {
  if (a.values)
    return values(place, a).empty();
  const auto excluded = [&](kind k) {
    return std::count_if(a.excluded.begin(), a.excluded.end(), [&](const json_value* v) { return v->is(k); });
  };
  if ((a.types & type_null) || ((a.types & type_boolean) && excluded(kind::boolean) < 2))
    return false;
  try {
    if ((a.types & type_number) && !number_spellings(numbers(a)).empty())
      return false;
    if ((a.types & type_string) && !texts_and_limit(a).texts.empty())
      return false;
  } catch (const automaton_too_large&) {
    return false;
  }
  const auto impossible = [&](const std::optional<schema_place>& part) {
    return !part || surely_empty(*part, depth + 1);
  };
  if (a.types & type_array) {
    bool empty = false;
    for (std::uint64_t i = 0; !empty && i < std::min(a.min_items, max_proof_items); ++i)
      empty = impossible(item_place(a, i, {.proof = true}));
    if (!empty)
      return false;
  }
  return !(a.types & type_object) || std::any_of(a.required.begin(), a.required.end(), [&](const std::string& key) {
    return impossible(member_place(a, key, closing{.proof = true}));
  });
}

number_rules schema_places::numbers(const schema_alternative& a) {
  number_rules rules = a.numbers;
  rules.integers = a.types & type_integer;
  rules.fractions = a.types & type_fraction;
  for (const json_value* v : a.excluded)
    if (v->is(kind::number))
      rules.excluded.push_back(v->number);
  return rules;
}

} // namespace troupe
