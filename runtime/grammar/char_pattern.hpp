// Regular expressions in the dialect of structured_output.md 3, as a tree and as a language of decoded texts. Anchors
// are kept wherever they stand; who wants them at the ends only checks the tree.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/grammar/char_automaton.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

struct char_pattern {
  enum class kind : std::uint8_t {
    chars,    // one character of `set`
    sequence, // all of `parts`; none: the empty text
    choice,   // one of `parts`
    repeat,   // parts[0], min to max times
    at_start, // ^
    at_end,   // $
  };
  static constexpr std::uint32_t unbounded = UINT32_MAX;

  kind what = kind::sequence;
  char_set set;
  std::vector<char_pattern> parts;
  std::uint32_t min = 0, max = 0;
  std::size_t position = 0; // characters before it in the expression
};

struct pattern_options {
  bool dot_excludes_newline = false; // `.` leaves out LF, CR, U+2028 and U+2029
  std::size_t nesting = 256;         // of groups, at most
};

// expression: UTF-8. Errors: so_syntax and so_unsupported with the position (in characters, from 1), so_too_complex for
// groups nested too deep.
result<char_pattern> parse_pattern(std::string_view expression, pattern_options options = {});

// What its tree needs at most, for each byte of the expression.
inline constexpr std::size_t pattern_bytes_each = 192;

// Texts that the pattern matches as a whole, and texts in which it matches somewhere. Throw automaton_too_large.
char_dfa matched_texts(const char_pattern& pattern);
char_dfa texts_with_match(const char_pattern& pattern);

} // namespace troupe
