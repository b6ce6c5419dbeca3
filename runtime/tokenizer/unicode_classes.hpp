// Character classes of the pre-tokenizer (spec: tokenizer_recipe.md 1.3). They come from a table and not from a Unicode
// library, because ids must not change with the library's Unicode version.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Class of a code point in the low three bits, flags above. The classes are disjoint.
enum char_class : std::uint8_t {
  class_other = 0,
  class_letter = 1,
  class_mark = 2,
  class_number = 3,
  class_punctuation = 4,
  class_symbol = 5,
  class_space = 6,
  class_mask = 7,
  flag_line_break = 8, // CR or LF
  flag_cjk = 16,       // the ranges of the second split
  flag_ascii_letter = 32,
  flag_ascii_punctuation = 64,
};

struct unicode_range {
  std::uint32_t first, last; // inclusive
  char_class value;
};

// The generated ranges, ascending (tools/unicode_classes/generate.py).
std::span<const unicode_range> unicode_ranges();

// Two-stage table: code point / 256 selects a page, pages with equal content are shared.
class unicode_classes {
public:
  static const unicode_classes& instance(); // built at first use, immutable

  // Class and flags of a code point; 0 beyond U+10FFFF.
  std::uint8_t of(std::uint32_t code_point) const {
    return code_point < 0x110000
               ? pages_[static_cast<std::size_t>(page_of_[code_point >> 8]) << 8 | (code_point & 0xFF)]
               : 0;
  }
  // Classes of U+0000..U+00FF, for the fast path on ASCII.
  const std::uint8_t* first_page() const { return pages_.data(); }

private:
  unicode_classes();
  std::vector<std::uint16_t> page_of_;
  std::vector<std::uint8_t> pages_;
};

} // namespace troupe
