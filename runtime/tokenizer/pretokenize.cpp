#include "runtime/tokenizer/pretokenize.hpp"
#include "runtime/tokenizer/utf8.hpp"

namespace troupe {

namespace {

constexpr unsigned bit(char_class c) {
  return 1u << c;
}
constexpr unsigned letter_or_mark = bit(class_letter) | bit(class_mark);
constexpr unsigned punctuation_or_symbol = bit(class_punctuation) | bit(class_symbol);

bool in(std::uint8_t value, unsigned classes) {
  return (classes >> (value & class_mask) & 1u) != 0;
}

} // namespace

pretokenizer::pretokenizer(std::string_view text)
    : classes_(unicode_classes::instance()), ascii_(classes_.first_page()), at_(text.data()),
      end_(text.data() + text.size()), segment_end_(at_) {}

inline std::uint8_t pretokenizer::class_at(const char* p, unsigned& length) const {
  const auto lead = static_cast<unsigned char>(*p);
  if (lead < 0x80) {
    length = 1;
    return ascii_[lead];
  }
  return classes_.of(decode_valid_utf8(p, length));
}

inline const char* pretokenizer::run_of(const char* p, unsigned classes) const {
  unsigned length = 0;
  while (p < segment_end_ && in(class_at(p, length), classes))
    p += length;
  return p;
}

inline const char* pretokenizer::line_break_run(const char* p) const {
  while (p < segment_end_ && (*p == '\n' || *p == '\r'))
    ++p;
  return p;
}

// First two splits. Sets segment_end_; for a group of digits, which no later split can cut, returns its end, else
// nullptr.
const char* pretokenizer::open_segment() {
  unsigned length = 0;
  std::uint8_t value = class_at(at_, length);
  const char* p = at_ + length;
  if (in(value, bit(class_number))) {
    for (int i = 1; i < 3 && p < end_ && in(class_at(p, length), bit(class_number)); ++i)
      p += length;
    segment_end_ = p;
    return p;
  }
  const unsigned cjk = value & flag_cjk;
  while (p < end_) {
    value = class_at(p, length);
    if ((value & flag_cjk) != cjk || in(value, bit(class_number)))
      break;
    p += length;
  }
  segment_end_ = p;
  return nullptr;
}

const char* pretokenizer::match_space(const char* p) const {
  // The run from p; after_break: behind its last CR or LF; last: start of its last character.
  const char* after_break = nullptr;
  const char* last = p;
  const char* r = p;
  for (unsigned length = 0; r < segment_end_; r += length) {
    const std::uint8_t value = class_at(r, length);
    if (!in(value, bit(class_space)))
      break;
    last = r;
    if (value & flag_line_break)
      after_break = r + 1;
  }
  if (after_break != nullptr)
    return after_break;
  // The last space of a longer run is left to the word behind it.
  return r == segment_end_ || last == p ? r : last;
}

const char* pretokenizer::match(const char* p) const {
  unsigned length = 0;
  const std::uint8_t value = class_at(p, length);
  const char* second = p + length;
  std::uint8_t next_value = class_other;
  unsigned next_length = 0;
  if (second < segment_end_)
    next_value = class_at(second, next_length);
  if ((value & flag_ascii_punctuation) && (next_value & flag_ascii_letter)) {
    const char* q = second + 1;
    while (q < segment_end_ && static_cast<unsigned char>(*q) < 0x80 &&
           (ascii_[static_cast<unsigned char>(*q)] & flag_ascii_letter))
      ++q;
    return q;
  }
  const bool may_lead_word = !in(value, bit(class_letter) | punctuation_or_symbol) && !(value & flag_line_break);
  if (may_lead_word && in(next_value, letter_or_mark))
    return run_of(second + next_length, letter_or_mark);
  if (in(value, letter_or_mark))
    return run_of(second, letter_or_mark);
  if (in(value, punctuation_or_symbol))
    return line_break_run(run_of(second, punctuation_or_symbol));
  if (*p == ' ' && in(next_value, punctuation_or_symbol))
    return line_break_run(run_of(second + next_length, punctuation_or_symbol));
  if (in(value, bit(class_space)))
    return match_space(p);
  return nullptr;
}

bool pretokenizer::next(std::string_view& piece) {
  if (at_ == end_)
    return false;
  const char* from = at_;
  const char* to = match_end_;
  match_end_ = nullptr;
  if (to == nullptr && at_ == segment_end_)
    to = open_segment();
  if (to == nullptr) {
    to = match(from);
    if (to == nullptr) { // a gap reaches to the next match or the end of the segment
      unsigned length = 0;
      to = from;
      do {
        class_at(to, length);
        to += length;
      } while (to < segment_end_ && (match_end_ = match(to)) == nullptr);
    }
  }
  at_ = to;
  piece = {from, static_cast<std::size_t>(to - from)};
  return true;
}

} // namespace troupe
