#include "runtime/grammar/char_pattern.hpp"

#include "runtime/tokenizer/utf8.hpp"

#include <algorithm>
#include <optional>
#include <string>

namespace troupe {
namespace {

const char_set& digits() {
  static const char_set set{{U'0', U'9'}};
  return set;
}

const char_set& word_characters() {
  static const char_set set{{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
  return set;
}

const char_set& spaces() {
  static const char_set set{{U'\t', U'\r'},   {U' ', U' '},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                            {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}

class parser {
public:
  parser(std::string_view expression, pattern_options options)
      : text_(to_code_points(expression)), dot_all_(!options.dot_excludes_newline), max_depth_(options.nesting) {}

  result<char_pattern> whole() {
    try {
      char_pattern p = choice(0);
      if (at_ < text_.size())
        fail("so_syntax", "`)` without a group");
      return p;
    } catch (error& e) {
      return std::move(e);
    }
  }

private:
  static constexpr std::uint32_t max_count = 1'000'000'000;

  [[noreturn]] void fail(const char* code, const std::string& why) const {
    throw error{code, "position " + std::to_string(at_ + 1) + ": " + why};
  }

  bool more() const { return at_ < text_.size(); }
  bool sees(char32_t c) const { return more() && text_[at_] == c; }
  bool sees(std::u32string_view s) const { return std::u32string_view(text_).substr(at_, s.size()) == s; }
  bool take(char32_t c) {
    if (!sees(c))
      return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view s) {
    if (!sees(s))
      return false;
    at_ += s.size();
    return true;
  }

  char_pattern choice(int depth) {
    const std::size_t position = at_;
    std::vector<char_pattern> branches{sequence(depth)};
    while (take(U'|'))
      branches.push_back(sequence(depth));
    if (branches.size() == 1)
      return std::move(branches[0]);
    return {char_pattern::kind::choice, {}, std::move(branches), 0, 0, position};
  }

  char_pattern sequence(int depth) {
    const std::size_t position = at_;
    std::vector<char_pattern> parts;
    while (more() && !sees(U'|') && !sees(U')'))
      if (!flags())
        parts.push_back(repeated(depth));
    if (parts.size() == 1)
      return std::move(parts[0]);
    return {char_pattern::kind::sequence, {}, std::move(parts), 0, 0, position};
  }

  // `(?i)` and `(?s)`: from here to the end of the group.
  bool flags() {
    const std::size_t before = at_;
    if (!take(U"(?"))
      return false;
    bool fold = fold_, dot_all = dot_all_;
    const std::size_t first = at_;
    while (sees(U'i') || sees(U's'))
      (text_[at_++] == U'i' ? fold : dot_all) = true;
    if (at_ == first || !take(U')')) {
      at_ = before;
      return false;
    }
    fold_ = fold;
    dot_all_ = dot_all;
    return true;
  }

  char_pattern repeated(int depth) {
    const std::size_t position = at_;
    char_pattern inner = atom(depth);
    std::uint32_t min = 0, max = 0;
    if (!repetition(min, max))
      return inner;
    take(U'?'); // lazy: the same language
    std::uint32_t again;
    if (repetition(again, again))
      fail("so_syntax", "two repetition marks in a row");
    return {char_pattern::kind::repeat, {}, {std::move(inner)}, min, max, position};
  }

  bool repetition(std::uint32_t& min, std::uint32_t& max) {
    if (take(U'*')) {
      min = 0;
      max = char_pattern::unbounded;
    } else if (take(U'+')) {
      min = 1;
      max = char_pattern::unbounded;
    } else if (take(U'?')) {
      min = 0;
      max = 1;
    } else if (sees(U"{,")) {
      fail("so_syntax", "a repetition needs its lower bound: {0,m}");
    } else if (sees(U'{') && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
      ++at_;
      min = max = count();
      if (take(U','))
        max = sees(U'}') ? char_pattern::unbounded : count();
      if (!take(U'}'))
        fail("so_syntax", "a repetition {n,m} is not closed");
      if (min > max)
        fail("so_syntax", "the bounds of a repetition are in the wrong order");
    } else {
      return false;
    }
    return true;
  }

  static bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }

  std::uint32_t count() {
    if (!more() || !is_digit(text_[at_]))
      fail("so_syntax", "a repetition count is missing");
    std::uint64_t n = 0;
    for (; more() && is_digit(text_[at_]); ++at_) {
      n = n * 10 + (text_[at_] - U'0');
      if (n > max_count)
        fail("so_too_complex", "a repetition count above 1000000000");
    }
    return static_cast<std::uint32_t>(n);
  }

  char_pattern chars(char_set set, std::size_t position) const {
    if (fold_)
      set.fold_ascii_case();
    return {char_pattern::kind::chars, std::move(set), {}, 0, 0, position};
  }

  char_pattern atom(int depth) {
    charge_work(1);
    const std::size_t position = at_;
    switch (const char32_t c = text_[at_]) {
    case U'(':
      return group(depth);
    case U'[':
      return chars(char_class(), position);
    case U'.': {
      ++at_;
      char_set set = char_set::all();
      if (!dot_all_)
        set = char_set{{U'\n', U'\n'}, {U'\r', U'\r'}, {0x2028, 0x2029}}.complement();
      return {char_pattern::kind::chars, set, {}, 0, 0, position};
    }
    case U'^':
      ++at_;
      return {char_pattern::kind::at_start, {}, {}, 0, 0, position};
    case U'$':
      ++at_;
      return {char_pattern::kind::at_end, {}, {}, 0, 0, position};
    case U'\\':
      return chars(escape(false), position);
    case U'*':
    case U'+':
    case U'?':
      fail("so_syntax", "nothing to repeat");
    case U'{':
      if (at_ + 1 < text_.size() && (is_digit(text_[at_ + 1]) || text_[at_ + 1] == U','))
        fail("so_syntax", "nothing to repeat");
      [[fallthrough]];
    default:
      if (c == 0)
        fail("so_syntax", "a NUL character");
      ++at_;
      return chars({{c, c}}, position);
    }
  }

  char_pattern group(int depth) {
    if (static_cast<std::size_t>(depth) == max_depth_)
      fail("so_too_complex", "groups nested more than " + std::to_string(max_depth_) + " deep");
    const std::size_t start = at_++;
    const bool fold = fold_, dot_all = dot_all_;
    if (take(U'?')) {
      if (take(U"=") || take(U"!"))
        fail_at(start, "look-ahead");
      if (take(U"<=") || take(U"<!"))
        fail_at(start, "look-behind");
      if (take(U"P<") || take(U"<")) {
        const std::size_t first = at_;
        while (more() && !sees(U'>'))
          ++at_;
        if (at_ == first || !take(U'>'))
          fail("so_syntax", "a group name that is empty or not closed");
      } else {
        while (sees(U'i') || sees(U's'))
          (text_[at_++] == U'i' ? fold_ : dot_all_) = true;
        if (!take(U':'))
          fail_at(start, "this kind of group");
      }
    }
    char_pattern inner = choice(depth + 1);
    if (!take(U')'))
      fail("so_syntax", "the group from position " + std::to_string(start + 1) + " is not closed");
    fold_ = fold;
    dot_all_ = dot_all;
    return inner;
  }

  [[noreturn]] void fail_at(std::size_t position, const std::string& construct) {
    at_ = position;
    fail("so_unsupported", construct + " is not supported");
  }

  // One character after the backslash, or a shorthand class.
  char_set escape(bool inside_class) {
    const std::size_t start = at_++;
    if (!more())
      fail("so_syntax", "a backslash at the end");
    const char32_t c = text_[at_++];
    const auto one = [](char32_t x) { return char_set{{x, x}}; };
    switch (c) {
    case U'd':
      return digits();
    case U'D':
      return digits().complement();
    case U'w':
      return word_characters();
    case U'W':
      return word_characters().complement();
    case U's':
      return spaces();
    case U'S':
      return spaces().complement();
    case U't':
      return one(U'\t');
    case U'r':
      return one(U'\r');
    case U'n':
      return one(U'\n');
    case U'f':
      return one(U'\f');
    case U'v':
      return one(U'\v');
    case U'a':
      return one(7);
    case U'e':
      return one(27);
    case U'b':
      if (inside_class)
        return one(8);
      fail_at(start, "the word boundary \\b");
    case U'B':
      fail_at(start, "the word boundary \\B");
    case U'p':
    case U'P':
      fail_at(start, "the Unicode property \\p");
    case U'k':
      fail_at(start, "a back-reference");
    case U'c':
      if (!more() || !((text_[at_] | 32) >= U'a' && (text_[at_] | 32) <= U'z'))
        fail("so_syntax", "\\c needs a letter");
      return one(text_[at_++] & 31);
    case U'x':
      return one(hex(2));
    case U'U':
      return one(scalar(hex(8)));
    case U'u':
      return one(unicode_escape());
    case U'0':
      if (more() && is_digit(text_[at_]))
        fail_at(start, "an octal escape");
      return one(0);
    default:
      if (c >= U'1' && c <= U'9')
        fail_at(start, "a back-reference");
      if ((c < 128 && (c == U'_' || !word_letter(c))) || c >= 128)
        return one(c);
      at_ = start;
      fail("so_syntax", "an unknown escape");
    }
  }

  static bool word_letter(char32_t c) { return (c | 32) >= U'a' && (c | 32) <= U'z'; }

  char32_t unicode_escape() {
    if (!take(U'{')) {
      const char32_t high = hex(4);
      if (high >= 0xD800 && high < 0xDC00 && sees(U"\\u")) { // a pair, as JavaScript writes it
        at_ += 2;
        const char32_t low = hex(4);
        if (low < 0xDC00 || low > 0xDFFF)
          fail("so_syntax", "half of a surrogate pair");
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
      }
      return scalar(high);
    }
    char32_t value = 0;
    int digits = 0;
    while (more() && !sees(U'}')) {
      if (++digits > 6)
        fail("so_syntax", "\\u{...} has 1 to 6 hexadecimal digits");
      value = value << 4 | hex(1);
    }
    if (digits == 0 || !take(U'}'))
      fail("so_syntax", "\\u{...} is empty or not closed");
    return scalar(value);
  }

  char32_t scalar(char32_t c) const {
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
      fail("so_syntax", "not a Unicode character");
    return c;
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (; digits > 0; --digits) {
      const char32_t c = more() ? text_[at_] : 0;
      const char32_t letter = c | 32;
      if (!is_digit(c) && !(letter >= U'a' && letter <= U'f'))
        fail("so_syntax", "a hexadecimal digit is missing");
      value = value << 4 | (is_digit(c) ? c - U'0' : letter - U'a' + 10);
      ++at_;
    }
    return value;
  }

  char_set char_class() {
    const std::size_t start = at_++;
    const bool negated = take(U'^');
    std::vector<char_range> ranges;
    const auto add = [&](const char_set& more) {
      ranges.insert(ranges.end(), more.ranges().begin(), more.ranges().end());
    };
    for (bool first = true;; first = false) {
      if (!more()) {
        at_ = start;
        fail("so_syntax", "`[` is not closed");
      }
      if (sees(U']') && !first) {
        ++at_;
        break;
      }
      if (sees(U']') && std::u32string_view(text_).substr(at_ + 1).find(U']') == std::u32string_view::npos) {
        at_ = start;
        fail("so_syntax", "an empty class");
      }
      charge_work(1);
      const char_set low = class_member();
      const bool single = low.ranges().size() == 1 && low.ranges()[0].low == low.ranges()[0].high;
      if (single && sees(U'-') && at_ + 1 < text_.size() && text_[at_ + 1] != U']') {
        const std::size_t dash = at_++;
        const char_set high = class_member();
        if (high.ranges().size() == 1 && high.ranges()[0].low == high.ranges()[0].high) {
          if (high.ranges()[0].low < low.ranges()[0].low) {
            at_ = dash;
            fail("so_syntax", "a range whose ends are in the wrong order");
          }
          ranges.push_back({low.ranges()[0].low, high.ranges()[0].low});
          continue;
        }
        ranges.push_back({U'-', U'-'}); // `a-\d`: the dash stands for itself
        add(high);
      }
      add(low);
    }
    char_set set(std::move(ranges));
    if (fold_)
      set.fold_ascii_case(); // before the complement: [^a] under (?i) leaves out A too
    return negated ? set.complement() : set;
  }

  char_set class_member() {
    if (sees(U'\\'))
      return escape(true);
    const char32_t c = text_[at_++];
    if (c == 0)
      fail("so_syntax", "a NUL character");
    return {{c, c}};
  }

  std::u32string text_;
  std::size_t at_ = 0;
  bool fold_ = false, dot_all_;
  std::size_t max_depth_;
};

// Adds the pattern between two nodes.
void translate(const char_pattern& p, char_nfa& nfa, std::uint32_t from, std::uint32_t to) {
  switch (p.what) {
  case char_pattern::kind::chars:
    nfa.add_edge(from, p.set, to);
    break;
  case char_pattern::kind::at_start:
    nfa.add_empty_edge(from, to, char_nfa::gate::at_start);
    break;
  case char_pattern::kind::at_end:
    nfa.add_empty_edge(from, to, char_nfa::gate::at_end);
    break;
  case char_pattern::kind::choice:
    for (const char_pattern& part : p.parts)
      translate(part, nfa, from, to);
    break;
  case char_pattern::kind::sequence: {
    std::uint32_t at = from;
    for (const char_pattern& part : p.parts) {
      const std::uint32_t next = nfa.add_node();
      translate(part, nfa, at, next);
      at = next;
    }
    nfa.add_empty_edge(at, to);
    break;
  }
  case char_pattern::kind::repeat: {
    std::uint32_t at = from;
    const auto once = [&] {
      const std::uint32_t next = nfa.add_node();
      translate(p.parts[0], nfa, at, next);
      at = next;
    };
    for (std::uint32_t i = 0; i < p.min; ++i)
      once();
    if (p.max == char_pattern::unbounded) {
      const std::uint32_t loop = nfa.add_node();
      nfa.add_empty_edge(at, loop);
      at = loop;
      once();
      nfa.add_empty_edge(at, loop);
      at = loop;
    } else {
      for (std::uint32_t i = p.min; i < p.max; ++i) {
        nfa.add_empty_edge(at, to);
        once();
      }
    }
    nfa.add_empty_edge(at, to);
    break;
  }
  }
}

} // namespace

result<char_pattern> parse_pattern(std::string_view expression, pattern_options options) {
  std::size_t position = 1;
  for (std::string_view rest = expression; !rest.empty(); ++position) {
    const utf8_sequence c = read_utf8(rest);
    if (c.state != utf8_sequence::kind::valid)
      return error{"so_syntax", "position " + std::to_string(position) + ": this is not valid UTF-8"};
    rest.remove_prefix(c.length);
  }
  return parser(expression, options).whole();
}

char_dfa matched_texts(const char_pattern& pattern) {
  char_nfa nfa;
  const std::uint32_t start = nfa.add_node(), end = nfa.add_node();
  translate(pattern, nfa, start, end);
  return char_dfa::of(nfa, end);
}

char_dfa texts_with_match(const char_pattern& pattern) {
  // No edge may lead back to the start, where alone ^ holds: the text before the match is taken by a node of its own.
  char_nfa nfa;
  const std::uint32_t start = nfa.add_node(), before = nfa.add_node(), match = nfa.add_node(), after = nfa.add_node();
  nfa.add_empty_edge(start, match);
  nfa.add_edge(start, char_set::all(), before);
  nfa.add_edge(before, char_set::all(), before);
  nfa.add_empty_edge(before, match);
  translate(pattern, nfa, match, after);
  nfa.add_edge(after, char_set::all(), after);
  return char_dfa::of(nfa, after);
}

} // namespace troupe
