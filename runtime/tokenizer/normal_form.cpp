#include "runtime/tokenizer/normal_form.hpp"
#include "runtime/tokenizer/unicode_classes.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <algorithm>
#include <utf8proc.h>

namespace troupe {

namespace {

bool contains(std::span<const code_point_range> ranges, std::uint32_t c) {
  const auto at = std::upper_bound(ranges.begin(), ranges.end(), c,
                                   [](std::uint32_t value, const code_point_range& r) { return value < r.first; });
  return at != ranges.begin() && c <= std::prev(at)->last;
}

std::uint32_t lower(std::uint32_t c) {
  if (c < 0x80)
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
  const auto newer = newer_lower_case();
  const auto at = std::lower_bound(newer.begin(), newer.end(), c,
                                   [](const code_point_pair& p, std::uint32_t value) { return p.from < value; });
  if (at != newer.end() && at->from == c)
    return at->to;
  return static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

void append_unaccented(std::string& out, std::uint32_t c) {
  if (!contains(accent_ranges(), c))
    append_utf8(out, lower(c));
}

// NFKC then NFD is the compatibility decomposition of each character with combining marks put in order; since the marks
// go, their order does not matter. Decompositions of assigned characters never change, so the library's version does
// not either.
void append_folded(std::string& out, std::uint32_t c) {
  if (c < 0x80 || !contains(decomposing_ranges(), c)) {
    append_unaccented(out, c);
    return;
  }
  utf8proc_int32_t parts[32]; // the longest decomposition has 18 characters
  int boundary = 0;
  const auto flags = static_cast<utf8proc_option_t>(UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE);
  const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, flags, &boundary);
  for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(n, 32); ++i)
    append_unaccented(out, static_cast<std::uint32_t>(parts[i]));
}

std::string_view strip_white_space(std::string_view text) {
  const unicode_classes& classes = unicode_classes::instance();
  std::size_t first = text.size(), last = 0;
  for (std::size_t i = 0; i < text.size();) {
    unsigned length = 0;
    if ((classes.of(decode_valid_utf8(text.data() + i, length)) & class_mask) != class_space) {
      first = std::min(first, i);
      last = i + length;
    }
    i += length;
  }
  return first < last ? text.substr(first, last - first) : std::string_view{};
}

} // namespace

std::string token_normal_form(std::string_view text) {
  constexpr std::uint32_t private_space =
      0xE000; // the reference keeps a lone space under this mark, so a real one turns too
  std::string joined;
  for (std::size_t i = 0; i < text.size();) {
    unsigned length = 0;
    append_folded(joined, decode_valid_utf8(text.data() + i, length));
    i += length;
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  std::size_t n = 0;
  for (const char c : joined)
    if (!is_blank(c))
      joined[n++] = c;
    else if (n == 0 || joined[n - 1] != ' ')
      joined[n++] = ' ';
  joined.resize(n);
  if (joined == " ")
    return joined;
  const std::string_view stripped = strip_white_space(joined);
  std::string out;
  for (std::size_t i = 0; i < stripped.size();) {
    unsigned length = 0;
    const std::uint32_t c = decode_valid_utf8(stripped.data() + i, length);
    append_utf8(out, c == private_space ? ' ' : c);
    i += length;
  }
  return out;
}

} // namespace troupe
