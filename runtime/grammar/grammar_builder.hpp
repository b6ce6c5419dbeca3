// The internal form of a constraint: expressions over bytes, rules and tokens, built bottom-up by the front ends and
// compiled to a rule network (structured_output.md §8.1). Languages are plain sets of byte strings, without priorities
// or maximal munch; any context-free grammar is allowed, left recursion, ambiguity and empty words included.
#pragma once
#include "runtime/grammar/char_automaton.hpp"
#include "runtime/grammar/compile_budget.hpp"
#include "runtime/grammar/distinct_list.hpp"
#include "runtime/grammar/mark_rule.hpp"
#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

inline constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

using byte_set = std::bitset<256>;

// A handle of one builder. Expressions form a graph: using one in many places is free to write down, yet each use is
// compiled anew, so what is large and used often belongs in a rule.
struct grammar_expr {
  std::uint32_t index = 0;
  friend auto operator<=>(const grammar_expr&, const grammar_expr&) = default;
};
struct grammar_rule {
  std::uint32_t index = 0;
  friend auto operator<=>(const grammar_rule&, const grammar_rule&) = default;
};

// How a language over code points is spelled in bytes.
enum class text_form {
  utf8,        // as it is
  json_string, // as the inside of a JSON string, in every legal spelling: "\u0041" for "A", a pair for an astral one
};

// An automaton whose edges read expressions: any order, counting and optional parts without a tree of alternatives.
// Sizes count: states and edges are compiled once each.
struct grammar_graph {
  struct edge {
    std::uint32_t from, to;
    grammar_expr reads; // grammar_builder::empty() makes it free
  };
  std::uint32_t states = 1; // state 0 is the start
  std::vector<edge> edges;
  std::vector<std::uint32_t> accepting;

  // These keep a set of marks, which is empty where the others lead to.
  struct marked_edge {
    std::uint32_t from, to;
    std::optional<grammar_rule> reads; // not the empty word; nothing: the set ends here
    mark_rule marks;
  };
  std::vector<marked_edge> marked;

  std::uint32_t add_state() { return states++; }
  void add_edge(std::uint32_t from, std::uint32_t to, grammar_expr reads) { edges.push_back({from, to, reads}); }
  void add_marked(std::uint32_t from, std::uint32_t to, std::optional<grammar_rule> reads, const mark_rule& marks) {
    marked.push_back({from, to, reads, marks});
  }
};

class grammar_builder {
public:
  explicit grammar_builder(compile_budget& budget);

  grammar_expr empty() const { return {0}; } // the empty word
  grammar_expr never() const { return {1}; } // no word at all: an unsatisfiable part
  grammar_expr literal(std::string_view bytes);
  grammar_expr bytes(const byte_set& one_of);
  grammar_expr chars(const char_set& one_of, text_form form = text_form::utf8);
  grammar_expr text(std::u32string_view chars, text_form form); // one text, in every spelling
  grammar_expr sequence(std::span<const grammar_expr> parts);
  grammar_expr alternatives(std::span<const grammar_expr> parts);
  grammar_expr sequence(std::initializer_list<grammar_expr> parts) { return sequence({parts.begin(), parts.size()}); }
  grammar_expr alternatives(std::initializer_list<grammar_expr> parts) {
    return alternatives({parts.begin(), parts.size()});
  }
  // min > max is never(). Counted, not unrolled: {1,100000} costs as much as {1,2}.
  grammar_expr repeat(grammar_expr part, std::uint64_t min, std::uint64_t max = unbounded);
  grammar_expr optional(grammar_expr part) { return repeat(part, 0, 1); }

  // Rules may be used before they are defined and may use each other without restriction. A rule without a definition
  // fails the compilation. Names stand in messages only.
  grammar_rule declare(std::string name);
  void define(grammar_rule rule, grammar_expr body);
  grammar_expr call(grammar_rule rule);
  grammar_rule define(std::string name, grammar_expr body); // both in one

  grammar_expr regular(const char_dfa& language, text_form form = text_form::utf8);
  grammar_expr graph(const grammar_graph& graph);
  // A list of at least one value, each of them read by a rule, with the separator between two. The empty word is none
  // of these, and `which` can be complete.
  grammar_expr distinct(std::vector<grammar_rule> values, grammar_rule separator, distinct_list which);

  // Exactly one token, by id, whatever its text (special ones too); ids sorted. With `except` every text token that is
  // not among them. Used by EBNF only.
  grammar_expr tokens(std::vector<std::int32_t> ids, bool except = false);

  // Why the rule has no words, for the message.
  void explain(grammar_rule r, std::string why_empty) { rules_[r.index].why_empty = std::move(why_empty); }
  const std::string& why_empty(grammar_rule r) const { return rules_[r.index].why_empty; }

  // What to add to the message if the whole language is empty.
  void remark_if_empty(std::string remark) { remark_if_empty_ = std::move(remark); }
  const std::string& remark_if_empty() const { return remark_if_empty_; }

  // Pieces of JSON text that are best shared: the same words as one would build by hand, and with ready-made masks.
  grammar_expr json_char(); // one character in every spelling
  grammar_expr json_string(std::uint64_t min_length, std::uint64_t max_length = unbounded); // with its quotes
  // With its quotes; equal languages share a rule. max_length, of words of that language, is counted.
  grammar_expr json_string(const char_dfa& decoded, std::optional<std::uint64_t> max_length = {});

  compile_budget& budget() const { return budget_; }

  // For the compiler.
  enum class kind : std::uint8_t { empty, never, bytes, sequence, alternatives, repeat, call, graph, distinct, tokens };
  struct node {
    kind what;
    bool except = false; // tokens
    std::uint32_t
        first = 0,
        count = 0; // bytes: index of a set; lists: children; call: rule; repeat: child; graph, distinct, tokens: index
    std::uint64_t min = 0, max = 0; // repeat
    std::size_t size = 0;           // states that it takes, about; calls count one
    bool finite = false;            // a finite language without calls and tokens
  };
  const node& at(grammar_expr e) const { return nodes_[e.index]; }
  std::span<const grammar_expr> children(const node& n) const { return {children_.data() + n.first, n.count}; }
  const byte_set& set(const node& n) const { return sets_[n.first]; }
  const grammar_graph& graph_of(const node& n) const { return graphs_[n.first]; }
  struct distinct_values {
    std::vector<grammar_rule> values;
    grammar_rule separator;
    distinct_list which;
  };
  const distinct_values& distinct_of(const node& n) const { return distincts_[n.first]; }
  const std::vector<std::int32_t>& tokens_of(const node& n) const { return token_lists_[n.first]; }
  std::size_t rules() const { return rules_.size(); }
  const std::string& name_of(grammar_rule r) const { return rules_[r.index].name; }
  bool defined(grammar_rule r) const { return rules_[r.index].defined; }
  grammar_expr body_of(grammar_rule r) const { return rules_[r.index].body; }
  // A JSON string made of a language: only the quote that ends the text ends the rule.
  bool is_text(grammar_rule r) const { return rules_[r.index].text; }

private:
  struct rule {
    std::string name, why_empty;
    grammar_expr body;
    bool defined = false, text = false;
  };
  grammar_expr add(node n);
  grammar_expr list(kind what, const std::vector<grammar_expr>& parts);
  grammar_expr byte_range(unsigned low, unsigned high);
  grammar_expr utf8_chars(const char_set& one_of);
  grammar_expr json_chars(const char_set& one_of);
  grammar_expr hex_range(unsigned low, unsigned high, int digits);
  grammar_expr counted(const char_dfa& language, std::uint64_t max_length);

  compile_budget& budget_;
  std::vector<node> nodes_;
  std::vector<grammar_expr> children_;
  std::vector<byte_set> sets_;
  std::vector<grammar_graph> graphs_;
  std::vector<distinct_values> distincts_;
  std::vector<std::vector<std::int32_t>> token_lists_;
  std::vector<rule> rules_;
  std::string remark_if_empty_;
  using set_key = std::pair<text_form, std::vector<std::pair<char32_t, char32_t>>>;
  std::map<set_key, grammar_expr> chars_; // made before
  struct string_rule {
    char_dfa decoded;
    std::optional<std::uint64_t> max_length;
    grammar_rule rule;
  };
  std::unordered_multimap<std::size_t, string_rule> strings_; // by hash
};

} // namespace troupe
