// Normal form of token texts behind the Engram ids (tokenizer_recipe.md 1.7): NFKC, NFD, accents stripped, lower case,
// blanks joined and stripped. The steps follow the reference engine, which is at Unicode 9 in the first three, and
// takes all combining marks (Mn, Mc and Me) for accents.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

// `text` must be valid UTF-8. May be empty.
std::string token_normal_form(std::string_view text);

struct code_point_range {
  std::uint32_t first, last; // inclusive
};
struct code_point_pair {
  std::uint32_t from, to;
};

// Generated, ascending (tools/unicode_classes/generate_normal_form.py).
std::span<const code_point_range> accent_ranges();
std::span<const code_point_range> decomposing_ranges();
std::span<const code_point_pair> newer_lower_case();

} // namespace troupe
