// Small deterministic automata over bytes: what one round of a loop reads, and the characters of JSON strings.
#pragma once
#include "runtime/grammar/grammar_builder.hpp"
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

// Minimal; state 0 is the start; bytes without an edge lead to nothing; every state reaches an accepting one.
struct byte_dfa {
  struct edge {
    unsigned char low, high; // both included
    std::uint32_t target;
    friend auto operator<=>(const edge&, const edge&) = default;
  };
  struct state {
    bool accepting = false;
    std::vector<edge> out; // by byte, disjoint
    friend auto operator<=>(const state&, const state&) = default;
  };
  std::vector<state> states;

  std::int32_t next(std::uint32_t from, unsigned char byte) const; // -1: nothing
  byte_set first_bytes() const;
  // No word is the beginning of another, and the empty word is not in it: in a repetition it is always clear where a
  // round ends.
  bool is_prefix_code() const;
  friend auto operator<=>(const byte_dfa&, const byte_dfa&) = default;
};

// The automaton of an expression with a finite language and about `most_states` states at most; none for others and for
// the empty language.
std::optional<byte_dfa> finite_dfa(const grammar_builder& builder, grammar_expr e, std::size_t most_states,
                                   compile_budget& budget);

} // namespace troupe
