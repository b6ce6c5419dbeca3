// A grammar as a recursive network of automata (structured_output.md §8.1, §8.2): every rule is a nondeterministic
// automaton whose edges read a byte, a token or another rule, or nothing. Immutable after compiling.
//
// What the compiler guarantees: every state lies on a way to the end of its rule, and no rule begins with itself,
// directly or through others, so that all rules that can start at one place are found in finitely many steps.
#pragma once
#include "runtime/grammar/byte_dfa.hpp"
#include "runtime/grammar/grammar_builder.hpp"
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct rule_network {
  enum class edge_kind : std::uint8_t { free, bytes, call, loop, pick, mark, leave, tokens };
  struct edge {
    std::uint32_t from, to;
    // call: rule; loop: index of a loop, `to` is where it is left; pick: of a list of values; mark, leave: of `marked`;
    // tokens: of a list
    std::uint32_t what = 0;
    unsigned char low = 0, high = 0; // bytes, both included
    edge_kind kind = edge_kind::free;
    bool reads = false; // call: the empty word of the rule is not meant; pick: another value must come
  };
  // A counted repetition: the state that has the edge holds the number of rounds done.
  struct loop {
    std::uint32_t body;      // rule of one round
    std::uint64_t min, max;  // min is 0 if a round can be empty
    std::int32_t table = -1; // index of `round_dfas` where the masks of a wide loop can be made at once
  };
  // A list of different values: the state that has the edges holds the set of those read.
  struct distinct {
    std::vector<std::uint32_t> values; // rules
    distinct_list which;
  };
  // A reading that keeps a set of marks, or the end of the set: the state that has the edge holds the set.
  struct marked {
    std::uint32_t rule;  // mark: that is read
    std::uint32_t graph; // of those that keep one set
    mark_rule marks;
  };
  struct rule {
    std::string name;
    std::uint32_t place = 0;           // the rule by whose name the text of the constraint knows it
    std::uint32_t source = UINT32_MAX; // of the builder, if it is one of its rules
    std::uint32_t start = 0, end = 0;  // end has no edges
    bool can_be_empty = false;
    std::int32_t table = -1;              // index of `round_dfas`, if the rule is such a code
    std::uint32_t rank = 0;               // greater than that of every rule that can begin with this one
    std::vector<std::uint32_t> opening{}; // states reachable from the start without reading anything
  };
  struct token_list {
    std::vector<std::int32_t> ids; // sorted
    bool except;
  };
  struct state_range {
    std::uint32_t begin, end;
  };

  std::vector<rule> rules;
  std::vector<edge> edges;             // by state
  std::vector<std::uint32_t> first{0}; // of a state's edges; one more than there are states
  std::vector<std::uint8_t> is_end;    // the last state of a rule
  std::vector<loop> loops;
  std::vector<distinct> distincts;
  std::vector<marked> marks;
  std::vector<byte_dfa> round_dfas; // prefix codes
  std::vector<token_list> token_lists;
  std::vector<state_range> text_rules; // of JSON strings with rules of their own
  // By state of a text rule: a state that reads the same for near_bytes bytes, perhaps itself; no_text for others.
  // Empty where there are no text rules.
  std::vector<std::uint32_t> stand_in;
  // By state of a text rule that counts its characters: smaller counts play no part for near_bytes bytes; else 0.
  std::vector<std::uint32_t> uncounted_below;
  static constexpr std::uint32_t no_text = UINT32_MAX;
  std::uint32_t root = 0;
  std::uint32_t mark_graphs = 0;
  bool has_token_edges = false;

  // Bytes that no state tells apart.
  std::array<std::uint8_t, 256> class_of{};
  std::vector<std::uint8_t> byte_of_class;

  std::size_t states() const { return is_end.size(); }
  std::span<const edge> edges_of(std::uint32_t state) const {
    return {edges.data() + first[state], edges.data() + first[state + 1]};
  }
  // The rule that this edge reads in any case, if it reads one.
  std::optional<std::uint32_t> called_by(const edge& e) const {
    switch (e.kind) {
    case edge_kind::call:
      return e.what;
    case edge_kind::mark:
      return marks[e.what].rule;
    case edge_kind::loop:
      return loops[e.what].min > 0 ? std::optional(loops[e.what].body) : std::nullopt;
    default:
      return std::nullopt;
    }
  }
  const std::string& place_of(std::uint32_t r) const { return rules[rules[r].place].name; }
  std::size_t bytes() const; // of memory
};

// Sorts the edges by state and fills `first` and `is_end`.
void index_edges(rule_network& net, std::uint32_t states);

// Throws grammar_failure: so_unsatisfiable for an empty language, so_syntax for a rule without definition,
// so_too_complex.
rule_network make_rule_network(const grammar_builder& builder, grammar_rule root, compile_budget& budget);

} // namespace troupe
