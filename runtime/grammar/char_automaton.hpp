// Regular languages over Unicode scalar values, as deterministic automata whose edges are ranges of code points. They
// carry what JSON schema says about strings and keys: patterns, formats, lengths and excluded values, which must be
// intersected and complemented (structured_output.md 6.3, 6.4). Texts here are decoded: JSON escapes come later.
#pragma once
#include "runtime/grammar/compile_budget.hpp"
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct char_range {
  char32_t low = 0, high = 0; // both inclusive
  auto operator<=>(const char_range&) const = default;
};

// A set of scalar values: sorted, disjoint, not touching ranges. Surrogates (U+D800 to U+DFFF) are in no set.
class char_set {
public:
  char_set() = default;
  char_set(std::initializer_list<char_range> ranges);
  explicit char_set(std::vector<char_range> ranges); // in any order, overlapping or not

  static char_set all();
  void add(char32_t low, char32_t high);
  void add(const char_set& other);
  char_set complement() const;
  void fold_ascii_case(); // adds the other case of every ASCII letter
  bool empty() const { return ranges_.empty(); }
  std::span<const char_range> ranges() const { return ranges_; }
  auto operator<=>(const char_set&) const = default;

private:
  std::vector<char_range> ranges_;
};

// A budget of structured_output.md 8.7 was hit while an automaton was built. The front ends turn it into
// so_too_complex.
struct automaton_too_large : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t max_automaton_edges = 1'000'000;

// Nondeterministic automaton as patterns are translated to it. Node 0 is the start; no edge may lead to it, since only
// there the gates of the start are open.
class char_nfa {
public:
  enum class gate : std::uint8_t { always, at_start, at_end }; // when an edge without a character can be taken

  std::uint32_t add_node();
  void add_edge(std::uint32_t from, const char_set& chars, std::uint32_t to);
  void add_empty_edge(std::uint32_t from, std::uint32_t to, gate when = gate::always);
  std::size_t size() const { return nodes_.size(); }

private:
  friend class char_dfa;
  struct char_edge {
    std::uint32_t set, to;
  };
  struct empty_edge {
    gate when;
    std::uint32_t to;
  };
  struct node {
    std::vector<char_edge> chars;
    std::vector<empty_edge> empties;
  };
  std::vector<node> nodes_;
  std::vector<char_set> sets_;
  charged_memory held_;
};

class char_dfa {
public:
  struct edge {
    char32_t low, high; // inclusive
    std::uint32_t target;
    bool operator==(const edge&) const = default;
  };

  char_dfa() = default; // the empty language

  struct raw_state {
    bool accepting;
    std::vector<edge> edges; // ascending and disjoint, without surrogates
  };
  static char_dfa of_states(std::span<const raw_state> states);

  static char_dfa everything();
  static char_dfa nothing();
  static char_dfa words(std::span<const std::u32string> words);
  static char_dfa length(std::uint64_t min, std::optional<std::uint64_t> max);
  // The language between node 0 and `accept`; throws automaton_too_large.
  static char_dfa of(const char_nfa& nfa, std::uint32_t accept);

  char_dfa complement() const;
  char_dfa intersect(const char_dfa& other) const; // throws automaton_too_large
  char_dfa subtract(const char_dfa& other) const { return intersect(other.complement()); }

  bool empty() const { return accepts_.empty(); }
  bool is_everything() const;
  bool contains(std::u32string_view text) const;
  std::uint64_t min_length() const;                // of a language that is not empty
  std::vector<std::uint64_t> distances() const;    // by state: characters of the shortest word from there
  std::optional<std::uint64_t> max_length() const; // none: unbounded
  // All words, shortest first, if there are at most `limit`.
  std::optional<std::vector<std::u32string>> enumerate(std::size_t limit) const;

  // States are numbered from 0, the start; every state reaches an accepting one.
  std::size_t size() const { return accepts_.size(); }
  bool accepts(std::uint32_t state) const { return accepts_[state]; }
  std::span<const edge> edges(std::uint32_t state) const {
    return {edges_.data() + first_[state], edges_.data() + first_[state + 1]};
  }
  bool operator==(const char_dfa&) const = default;
  std::size_t hash() const;
  std::size_t bytes() const { return edges_.size() * sizeof(edge) + 5 * accepts_.size(); } // of memory

private:
  friend class char_partition;
  void begin_state(bool accepting);
  void add_edge(char32_t low, char32_t high, std::uint32_t target); // to the newest state, in order of characters
  void finish();                                                    // drops dead states and merges equal ones
  void trim();
  void merge_equal();

  std::vector<std::uint8_t> accepts_;
  std::vector<std::uint32_t> first_{0}; // of a state's edges; one more than there are states
  std::vector<edge> edges_;
};

// Texts sorted by which of several languages they belong to: for every combination of memberships that occurs, its
// language. Used to give each key of an object the conjunction of all that applies to it (6.3, patternProperties).
class char_partition {
public:
  struct part {
    std::uint64_t members; // bit i: inside of languages[i]
    char_dfa texts;
  };
  static constexpr std::size_t most_languages = 64;
  // At most that many; throws automaton_too_large.
  static std::vector<part> of(std::span<const char_dfa* const> languages);
};

std::u32string to_code_points(std::string_view utf8); // valid UTF-8 only
std::string to_utf8(std::u32string_view text);

} // namespace troupe
