#include "runtime/tokenizer/unicode_classes.hpp"
#include <map>

namespace troupe {

namespace {

void set_flag(std::vector<std::uint8_t>& all, std::uint32_t first, std::uint32_t last, std::uint8_t flag) {
  for (std::uint32_t c = first; c <= last; ++c)
    all[c] = static_cast<std::uint8_t>(all[c] | flag);
}

} // namespace

unicode_classes::unicode_classes() {
  std::vector<std::uint8_t> all(0x110000, class_other);
  for (const unicode_range& r : unicode_ranges())
    set_flag(all, r.first, r.last, r.value);
  set_flag(all, '\n', '\n', flag_line_break);
  set_flag(all, '\r', '\r', flag_line_break);
  set_flag(all, 0x4E00, 0x9FA5, flag_cjk);
  set_flag(all, 0x3040, 0x30FF, flag_cjk); // Hiragana and Katakana lie side by side
  set_flag(all, 'A', 'Z', flag_ascii_letter);
  set_flag(all, 'a', 'z', flag_ascii_letter);
  set_flag(all, 0x21, 0x2F, flag_ascii_punctuation);
  set_flag(all, 0x3A, 0x40, flag_ascii_punctuation);
  set_flag(all, 0x5B, 0x60, flag_ascii_punctuation);
  set_flag(all, 0x7B, 0x7E, flag_ascii_punctuation);
  std::map<std::vector<std::uint8_t>, std::uint16_t> known;
  for (std::size_t start = 0; start < all.size(); start += 256) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(start);
    std::vector<std::uint8_t> page(from, from + 256);
    const auto [at, is_new] = known.emplace(std::move(page), static_cast<std::uint16_t>(pages_.size() / 256));
    if (is_new)
      pages_.insert(pages_.end(), at->first.begin(), at->first.end());
    page_of_.push_back(at->second);
  }
}

const unicode_classes& unicode_classes::instance() {
  static const unicode_classes table;
  return table;
}

} // namespace troupe
