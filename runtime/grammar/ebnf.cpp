#include "runtime/grammar/ebnf.hpp"
#include "runtime/grammar/tag_automaton.hpp"
#include <algorithm>
#include <map>
#include <optional>
#include <utf8proc.h>

namespace troupe {

namespace {

constexpr std::uint64_t largest_count = 1'000'000'000'000'000;

bool is_letter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char32_t c) {
  return is_letter(c) || c == '_' || c == '-' || c == '.';
}
bool in_name(char32_t c) {
  return begins_name(c) || is_digit(c);
}

std::optional<unsigned> hex_value(char32_t c) {
  if (is_digit(c))
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return std::nullopt;
}

class ebnf_parser {
public:
  ebnf_parser(grammar_builder& builder, std::string_view text, const token_vocabulary& vocabulary)
      : builder_(builder), vocabulary_(vocabulary) {
    decode(text);
  }

  grammar_rule parse() {
    skip_blanks();
    while (at_ < text_.size()) {
      const std::size_t start = at_;
      try {
        parse_rule();
      } catch (grammar_failure& f) {
        at_ = start;
        f.place("rule \"" + name() + "\"");
        throw;
      }
      skip_blanks();
    }
    for (const auto& [name, r] : rules_)
      if (!builder_.defined(r.rule))
        fail("rule \"" + name + "\" is used here but not defined", r.used_at);
    const auto root = rules_.find("root");
    if (root == rules_.end())
      fail("there is no rule \"root\", where every text begins; add one", text_.size());
    return root->second.rule;
  }

private:
  struct named_rule {
    grammar_rule rule;
    std::size_t used_at;
  };

  [[noreturn]] void fail(std::string_view what, std::size_t where, const char* code = "so_syntax") const {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < where && i < text_.size(); ++i)
      if (text_[i] == '\n')
        ++line, column = 1;
      else
        ++column;
    fail_compile(code, "grammar: line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
                           std::string(what));
  }

  void decode(std::string_view text) {
    builder_.budget().memory(text.size() * sizeof(char32_t));
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    for (std::size_t i = 0; i < text.size();) {
      utf8proc_int32_t c = -1;
      const auto length = utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(text.size() - i), &c);
      if (length <= 0)
        fail("this is not valid UTF-8", text_.size());
      if (c == 0)
        fail("a NUL character; write \\0 in a string", text_.size());
      text_.push_back(static_cast<char32_t>(c));
      i += static_cast<std::size_t>(length);
    }
  }

  char32_t peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  bool take(char32_t c) {
    if (peek() != c)
      return false;
    ++at_;
    return true;
  }
  bool starts_with(std::u32string_view s) const { return std::u32string_view(text_).substr(at_, s.size()) == s; }

  // Blanks, line ends and comments.
  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#')
        while (at_ < text_.size() && text_[at_] != '\n')
          ++at_;
      if (at_ >= text_.size() || (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\n' && text_[at_] != '\r'))
        return;
    }
  }

  // At a name that is the first of its line and is followed by "::=": there the body before it ends.
  bool at_rule_head() const {
    if (!begins_name(peek()))
      return false;
    std::size_t i = at_;
    while (i < text_.size() && in_name(text_[i]))
      ++i;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t'))
      ++i;
    return std::u32string_view(text_).substr(i, 3) == U"::=" && first_of_line();
  }
  bool first_of_line() const {
    std::size_t i = at_;
    while (i > 0 && (text_[i - 1] == ' ' || text_[i - 1] == '\t'))
      --i;
    return i == 0 || text_[i - 1] == '\n' || text_[i - 1] == '\r';
  }

  std::string name() {
    const std::size_t start = at_;
    if (begins_name(peek()))
      while (in_name(peek()))
        ++at_;
    return {text_.begin() + static_cast<std::ptrdiff_t>(start), text_.begin() + static_cast<std::ptrdiff_t>(at_)};
  }

  grammar_rule rule(const std::string& name, std::size_t used_at) {
    const auto [found, fresh] = rules_.try_emplace(name);
    if (fresh)
      found->second = {builder_.declare(name), used_at};
    return found->second.rule;
  }

  void parse_rule() {
    const std::size_t head = at_;
    const bool first = first_of_line();
    const std::string rule_name = name();
    if (rule_name.empty())
      fail("expected a rule: NAME ::= BODY", head);
    skip_blanks();
    if (!starts_with(U"::="))
      fail("expected \"::=\" after the rule name \"" + rule_name + "\"", at_);
    if (!first)
      fail("the rule \"" + rule_name + "\" must begin on a line of its own", head);
    at_ += 3;
    const grammar_rule r = rule(rule_name, head);
    if (builder_.defined(r))
      fail("rule \"" + rule_name + "\" is defined twice", head);
    const grammar_expr body = alternatives();
    skip_blanks();
    if (starts_with(U"(=")) { // a hint, without meaning for the language
      at_ += 2;
      (void)alternatives();
      skip_blanks();
      if (!take(')'))
        fail("expected \")\" at the end of the look-ahead", at_);
      skip_blanks();
    }
    if (at_ < text_.size() && !at_rule_head())
      fail(peek() == ')' ? "\")\" without \"(\"" : "expected an element, \"|\" or the next rule", at_);
    builder_.define(r, body);
  }

  grammar_expr alternatives() {
    std::vector<grammar_expr> branches{sequence()};
    for (skip_blanks(); take('|'); skip_blanks())
      branches.push_back(sequence());
    return builder_.alternatives(branches);
  }

  grammar_expr sequence() {
    std::vector<grammar_expr> parts;
    for (skip_blanks(); at_ < text_.size() && peek() != '|' && peek() != ')' && !starts_with(U"(=") && !at_rule_head();
         skip_blanks())
      parts.push_back(repetition());
    if (parts.empty())
      fail("an empty branch; write \"\" or ( ) for the empty text", at_);
    return builder_.sequence(parts);
  }

  grammar_expr repetition() {
    const grammar_expr e = element();
    skip_line_blanks();
    std::uint64_t min = 0, max = unbounded;
    switch (peek()) {
    case '?':
      max = 1;
      break;
    case '*':
      break;
    case '+':
      min = 1;
      break;
    case '{':
      ++at_;
      counts(min, max);
      break;
    default:
      return e;
    }
    ++at_;
    skip_line_blanks();
    const char32_t next = peek();
    if (next == '?' || next == '*' || next == '+' || next == '{')
      fail("two repetition marks in a row; use a group", at_);
    return builder_.repeat(e, min, max);
  }

  void skip_line_blanks() {
    while (peek() == ' ' || peek() == '\t')
      ++at_;
  }

  // Between braces; stops at the closing one.
  [[gnu::noinline]] void counts(std::uint64_t& min, std::uint64_t& max) {
    const std::size_t start = at_;
    skip_blanks();
    min = number("a number of repetitions");
    skip_blanks();
    max = min;
    if (take(',')) {
      skip_blanks();
      max = unbounded;
      if (starts_with(U"-1"))
        at_ += 2;
      else if (peek() != '}')
        max = number("the largest number of repetitions");
      skip_blanks();
    }
    if (peek() != '}')
      fail("expected \"}\" at the end of the repetition", at_);
    if (min > max)
      fail("the repetition {" + std::to_string(min) + "," + std::to_string(max) +
               "} has its bounds the wrong way round",
           start);
  }

  std::uint64_t number(const char* what) {
    if (!is_digit(peek()))
      fail(std::string("expected ") + what, at_);
    std::uint64_t value = 0;
    for (const std::size_t start = at_; is_digit(peek()); ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > largest_count)
        fail("the number is larger than 1000000000000000", start);
    }
    return value;
  }

  // Groups recurse, as deep as the limit says, on the stack of whoever compiles: group() and the functions between it
  // and itself keep small frames, what needs more stands in functions of its own.
  grammar_expr element() { return peek() == '(' ? group() : atom(); }

  grammar_expr group() {
    ++at_;
    if (++depth_ > builder_.budget().limits().group_nesting)
      fail_nested();
    skip_blanks();
    grammar_expr inner = builder_.empty();
    if (peek() != ')')
      inner = alternatives();
    skip_blanks();
    if (!take(')'))
      fail("expected \")\"", at_);
    --depth_;
    return inner;
  }

  [[noreturn, gnu::noinline]] void fail_nested() const {
    fail("groups are nested more than " + std::to_string(builder_.budget().limits().group_nesting) + " deep", at_ - 1,
         "so_too_complex");
  }

  [[gnu::noinline]] grammar_expr atom() {
    const std::size_t start = at_;
    if (peek() == '"')
      return builder_.literal(to_utf8(string()));
    if (peek() == '[')
      return builder_.chars(char_class());
    const std::string what = name();
    if (what.empty())
      fail(peek() == '\'' ? "strings stand in double quotes" : "expected a string, a class, a group or a rule name",
           start);
    if (peek() == '(') {
      if (what == "Token" || what == "ExcludeToken")
        return builder_.tokens(arguments(false, what == "ExcludeToken").ids, what == "ExcludeToken");
      if (what == "TagDispatch")
        return tag_dispatch();
      if (what == "TokenTagDispatch")
        return token_tag_dispatch();
    }
    skip_line_blanks();
    if (starts_with(U"::="))
      fail("the rule \"" + what + "\" must begin on a line of its own", start);
    return builder_.call(rule(what, start));
  }

  char32_t code_point(std::uint64_t value, std::size_t start) const {
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      fail("the escape is not a Unicode character", start);
    return static_cast<char32_t>(value);
  }

  // After a backslash. `more`: escapes of the place besides those of strings.
  char32_t escape(std::u32string_view more) {
    const std::size_t start = at_ - 1;
    static constexpr std::u32string_view names = U"nrtbfav0e", values(U"\n\r\t\b\f\a\v\0\x1B", 9),
                                         themselves = U"\"\\/'?";
    const char32_t c = peek();
    if (at_ < text_.size())
      ++at_;
    if (const std::size_t i = names.find(c); i != names.npos)
      return values[i];
    if (c != 0 && (themselves.find(c) != themselves.npos || more.find(c) != more.npos))
      return c;
    const int digits = c == 'x' ? 0 : c == 'u' ? 4 : c == 'U' ? 8 : -1;
    if (digits < 0)
      fail("unknown escape", start);
    std::uint64_t value = 0;
    int found = 0;
    for (; (digits == 0 || found < digits) && hex_value(peek()); ++found, ++at_)
      value = std::min<std::uint64_t>(value * 16 + *hex_value(peek()), 0x110000);
    if (found == 0 || found < digits)
      fail("the escape needs " + (digits == 0 ? std::string("at least one") : std::to_string(digits)) +
               " hexadecimal digits",
           start);
    return code_point(value, start);
  }

  std::u32string string() {
    const std::size_t start = at_++;
    std::u32string s;
    while (!take('"')) {
      if (at_ >= text_.size() || peek() == '\n' || peek() == '\r')
        fail("the string is not closed on its line; write \\n for a line end", start);
      s += take('\\') ? escape(U"") : text_[at_++];
    }
    return s;
  }

  char32_t class_char(std::size_t start) {
    if (at_ >= text_.size() || peek() == '\n' || peek() == '\r')
      fail("the class is not closed on its line; write \\n for a line end", start);
    if (!take('\\'))
      return text_[at_++];
    const char32_t c = peek();
    if (c == 'd' || c == 'w' || c == 's' || c == 'D' || c == 'W' || c == 'S')
      fail("shorthand classes such as \\d are not part of the notation; write the range", at_ - 1);
    return escape(U"^$.*+?()[]{}|/-");
  }

  char_set char_class() {
    const std::size_t start = at_++;
    const bool negated = take('^');
    std::vector<char_range> ranges;
    bool any = false;
    while (!take(']')) {
      any = true;
      builder_.budget().work();
      const std::size_t at = at_;
      const char32_t low = class_char(start);
      char32_t high = low;
      if (peek() == '-' && peek(1) != ']' && peek(1) != 0) {
        ++at_;
        high = class_char(start);
      }
      if (low > high)
        fail("the range has its bounds the wrong way round", at);
      ranges.push_back({low, high});
    }
    if (!any && !negated)
      fail("an empty class matches nothing", start);
    const char_set set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  // Arguments of Token, TagDispatch and the like, in any order.
  struct argument_list {
    std::vector<std::int32_t> ids;                                 // 1, 2
    std::vector<std::pair<std::u32string, grammar_rule>> tags;     // ("tag", rule)
    std::vector<std::pair<std::int32_t, grammar_rule>> token_tags; // (1, rule)
    std::vector<std::u32string> excluded;                          // excludes=("a", "b")
    std::vector<std::int32_t> excluded_ids;                        // excludes=(1, 2)
    bool again = true;                                             // loop_after_dispatch=
  };

  std::int32_t token_id(bool excluded) {
    const std::size_t start = at_;
    const std::uint64_t id = number("a token id");
    if (id >= static_cast<std::uint64_t>(vocabulary_.size()))
      fail("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocabulary_.size()) +
               " ids",
           start);
    if (static_cast<std::int32_t>(id) == vocabulary_.end_token() && !excluded)
      fail("token id " + std::to_string(id) +
               " is the end token, which ends the output wherever it is produced; leave it out, it may come where the "
               "grammar is complete",
           start, "so_unsupported");
    return static_cast<std::int32_t>(id);
  }

  argument_list arguments(bool tags, bool excluded = false) {
    const std::size_t start = at_++;
    argument_list list;
    for (skip_blanks(); peek() != ')'; skip_blanks()) {
      const std::size_t at = at_;
      if (is_digit(peek()) && !tags)
        list.ids.push_back(token_id(excluded));
      else if (take('(') && tags)
        tag_argument(list);
      else if (const std::string option = name(); tags && (option == "loop_after_dispatch" || option == "excludes"))
        option_argument(list, option);
      else
        fail(tags ? "expected (TAG, RULE), loop_after_dispatch= or excludes=" : "expected a token id", at);
      skip_blanks();
      if (!take(',') && peek() != ')')
        fail("expected \",\" or \")\"", at_);
    }
    ++at_;
    if (list.ids.empty() && list.tags.empty() && list.token_tags.empty())
      fail(tags ? "at least one (TAG, RULE) is needed" : "at least one token id is needed", start);
    return list;
  }

  void tag_argument(argument_list& list) {
    skip_blanks();
    std::optional<std::u32string> tag;
    std::int32_t id = 0;
    const std::size_t start = at_;
    if (peek() == '"')
      tag = string();
    else
      id = token_id(false);
    if (tag && tag->empty())
      fail("an empty tag", start);
    skip_blanks();
    if (!take(','))
      fail("expected \",\" and a rule after the tag", at_);
    skip_blanks();
    const std::size_t used_at = at_;
    const std::string rule_name = name();
    if (rule_name.empty())
      fail("expected the name of the rule that follows the tag", at_);
    const grammar_rule r = rule(rule_name, used_at);
    skip_blanks();
    if (!take(')'))
      fail("expected \")\" after the rule", at_);
    if (tag)
      list.tags.emplace_back(*tag, r);
    else
      list.token_tags.emplace_back(id, r);
  }

  void option_argument(argument_list& list, const std::string& option) {
    skip_blanks();
    if (!take('='))
      fail("expected \"=\" after " + option, at_);
    skip_blanks();
    if (option == "loop_after_dispatch") {
      const std::size_t at = at_;
      const std::string value = name();
      if (value != "true" && value != "false")
        fail("expected true or false", at);
      list.again = value == "true";
      return;
    }
    if (!take('('))
      fail("expected \"(\" and what is excluded", at_);
    for (skip_blanks(); peek() != ')'; skip_blanks()) {
      const std::size_t at = at_;
      if (peek() == '"')
        list.excluded.push_back(string());
      else
        list.excluded_ids.push_back(token_id(true));
      if (!list.excluded.empty() && list.excluded.back().empty())
        fail("an empty string is in every text", at);
      skip_blanks();
      if (!take(',') && peek() != ')')
        fail("expected \",\" or \")\"", at_);
    }
    ++at_;
  }

  grammar_expr tag_dispatch() {
    const std::size_t start = at_;
    const argument_list list = arguments(true);
    if (!list.token_tags.empty() || !list.excluded_ids.empty())
      fail("TagDispatch takes strings; token ids belong to TokenTagDispatch", start);
    std::vector<tag_rule> tags;
    for (const auto& [tag, r] : list.tags)
      tags.push_back({to_utf8(tag), r});
    std::vector<std::string> excluded;
    for (const std::u32string& word : list.excluded) {
      builder_.budget().work(1 + tags.size() / 16);
      excluded.push_back(to_utf8(word));
      for (const tag_rule& t : tags)
        if (t.tag.starts_with(excluded.back()))
          fail("the excluded string \"" + excluded.back() + "\" begins the tag \"" + t.tag + "\"", start);
    }
    return tagged_text(builder_, tags, excluded, list.again);
  }

  grammar_expr token_tag_dispatch() {
    const std::size_t start = at_;
    const argument_list list = arguments(true);
    if (!list.tags.empty() || !list.excluded.empty())
      fail("TokenTagDispatch takes token ids; strings belong to TagDispatch", start);
    std::vector<std::int32_t> not_free = list.excluded_ids;
    grammar_graph g;
    const std::uint32_t done = list.again ? 0 : g.add_state();
    for (const auto& [id, r] : list.token_tags) {
      builder_.budget().work(1 + list.excluded_ids.size() / 16);
      if (std::find(list.excluded_ids.begin(), list.excluded_ids.end(), id) != list.excluded_ids.end())
        fail("the excluded token " + std::to_string(id) + " is a tag", start);
      not_free.push_back(id);
      const std::uint32_t tagged = g.add_state();
      g.add_edge(0, tagged, builder_.tokens({id}));
      g.add_edge(tagged, done, builder_.call(r));
    }
    g.add_edge(0, 0, builder_.tokens(not_free, true));
    g.accepting = {0};
    if (!list.again)
      g.accepting.push_back(done);
    return builder_.graph(g);
  }

  grammar_builder& builder_;
  const token_vocabulary& vocabulary_;
  std::u32string text_;
  std::size_t at_ = 0, depth_ = 0;
  std::map<std::string, named_rule> rules_;
};

} // namespace

grammar_rule ebnf_grammar(grammar_builder& builder, std::string_view text, const token_vocabulary& vocabulary) {
  return ebnf_parser(builder, text, vocabulary).parse();
}

} // namespace troupe
