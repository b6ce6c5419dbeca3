// Languages of decoded texts: boolean operations against membership, patterns against texts that other engines agree
// on.
#include "runtime/grammar/char_automaton.hpp"
#include "runtime/grammar/char_pattern.hpp"

#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

char_dfa search(std::string_view expression) {
  auto p = parse_pattern(expression, {.dot_excludes_newline = true});
  BOOST_REQUIRE_MESSAGE(p, expression << ": " << (p ? "" : p.failure().message));
  return texts_with_match(*p);
}

bool finds(std::string_view expression, std::string_view text) {
  return search(expression).contains(to_code_points(text));
}

std::string refusal(std::string_view expression) {
  const auto p = parse_pattern(expression);
  return p ? "none" : p.failure().code + ": " + p.failure().message;
}

} // namespace

BOOST_AUTO_TEST_SUITE(char_automaton)

BOOST_AUTO_TEST_CASE(sets_keep_ranges_apart_and_never_hold_surrogates) {
  char_set set{{U'c', U'e'}, {U'a', U'a'}, {U'f', U'g'}};
  BOOST_TEST(set.ranges().size() == 2);
  set.add(U'b', U'b');
  BOOST_TEST(set.ranges().size() == 1);
  BOOST_TEST((set.ranges()[0] == char_range{U'a', U'g'}));
  BOOST_TEST((set.complement().complement() == set));
  BOOST_TEST(char_set::all().complement().empty());
  BOOST_TEST(char_set::all().ranges().size() == 2);
  char_set folded{{U'x', U'{'}};
  folded.fold_ascii_case();
  BOOST_TEST((folded == char_set{{U'X', U'Z'}, {U'x', U'{'}}));
}

BOOST_AUTO_TEST_CASE(search_finds_matches_and_keeps_anchors_where_they_stand) {
  BOOST_TEST(finds("ab", "xaby"));
  BOOST_TEST(!finds("^ab", "xab"));
  BOOST_TEST(finds("ab$", "xab"));
  BOOST_TEST(!finds("ab$", "abx"));
  BOOST_TEST(finds("^foo$|^bar$", "bar"));
  BOOST_TEST(!finds("^foo$|^bar$", "barx"));
  BOOST_TEST(finds("^foo|bar$", "xbar"));
  BOOST_TEST(finds("^$|(^[0-9]+$)", ""));
  BOOST_TEST(finds("^$|(^[0-9]+$)", "12"));
  BOOST_TEST(!finds("^$|(^[0-9]+$)", "1x"));
  BOOST_TEST(finds("^(\\/?((\\.{2})|([a-z0-9\\-]*))($|\\/))*$", "a/../b"));
  BOOST_TEST(!finds("^(\\/?((\\.{2})|([a-z0-9\\-]*))($|\\/))*$", "a/.../b"));
  BOOST_TEST(!finds("a^b", "a^b")); // nothing stands before the start
  BOOST_TEST(finds("a\\^b", "a^b"));
  BOOST_TEST(search("a$b").empty());
  BOOST_TEST(finds("^.{3}$", "\xF0\x9F\x98\x80é\"")); // characters, not bytes
  BOOST_TEST(!finds("^.{3}$", "a\nb"));
  BOOST_TEST(finds("(?s)^.{3}$", "a\nb"));
  BOOST_TEST(finds("(?i)^[a-c]X$", "Bx"));
  BOOST_TEST(!finds("(?i:a)b", "AB"));
  BOOST_TEST(finds("[\\w-.]{2}", "-."));
  BOOST_TEST(finds("^[]a]+$", "]a"));
  BOOST_TEST(finds("^\\u00e9\\u{1F600}\\x41$", "é\xF0\x9F\x98\x80"
                                               "A"));
  BOOST_TEST(finds("^(?<year>[0-9]{4})(?P<x>-)?$", "2024-"));
  BOOST_TEST(finds("^a{2,3}?$", "aaa"));
  BOOST_TEST(!finds("^a{2,3}$", "aaaa"));
  BOOST_TEST(finds("^{x}$", "{x}"));
  BOOST_TEST(search("").is_everything());
  BOOST_TEST(search(".*|x").is_everything());
}

BOOST_AUTO_TEST_CASE(refused_expressions_say_where_and_what) {
  BOOST_TEST(refusal("ab(?=c)") == "so_unsupported: position 3: look-ahead is not supported");
  BOOST_TEST(refusal("(?<!a)") == "so_unsupported: position 1: look-behind is not supported");
  BOOST_TEST(refusal("(a)\\1") == "so_unsupported: position 4: a back-reference is not supported");
  BOOST_TEST(refusal("\\bx") == "so_unsupported: position 1: the word boundary \\b is not supported");
  BOOST_TEST(refusal("\\p{L}") == "so_unsupported: position 1: the Unicode property \\p is not supported");
  BOOST_TEST(refusal("a)") == "so_syntax: position 2: `)` without a group");
  BOOST_TEST(refusal("(a") == "so_syntax: position 3: the group from position 1 is not closed");
  BOOST_TEST(refusal("x[a") == "so_syntax: position 2: `[` is not closed");
  BOOST_TEST(refusal("[]") == "so_syntax: position 1: an empty class");
  BOOST_TEST(refusal("a*+") == "so_syntax: position 4: two repetition marks in a row");
  BOOST_TEST(refusal("a{,3}") == "so_syntax: position 2: a repetition needs its lower bound: {0,m}");
  BOOST_TEST(refusal("a{3,2}") == "so_syntax: position 7: the bounds of a repetition are in the wrong order");
  BOOST_TEST(refusal("*a") == "so_syntax: position 1: nothing to repeat");
  BOOST_TEST(refusal("a\\") == "so_syntax: position 3: a backslash at the end");
  BOOST_TEST(refusal(std::string("a\0b", 3)) == "so_syntax: position 2: a NUL character");
  BOOST_TEST(refusal("[b-a]") == "so_syntax: position 3: a range whose ends are in the wrong order");
  BOOST_TEST(refusal(std::string(300, '(')).substr(0, 15) == "so_too_complex:");
  BOOST_CHECK_THROW(search("^(a{1,1000}){1,1000}$"), automaton_too_large);
  BOOST_CHECK_THROW(search("^(a|b)*a(a|b){20}$"), automaton_too_large);
}

BOOST_AUTO_TEST_CASE(boolean_operations_agree_with_membership) {
  std::mt19937 random(7);
  const char_dfa a = search("^(ab|b)*$"), b = search("a.b"), c = search("^.{2,4}$"),
                 words = char_dfa::words(std::vector<std::u32string>{U"", U"ab", U"abb", U"b"});
  const char_dfa* languages[] = {&a, &b, &c, &words};
  const std::vector<char_partition::part> parts = char_partition::of(languages);
  for (int i = 0; i < 3000; ++i) {
    std::u32string text;
    for (std::size_t n = random() % 7; n > 0; --n)
      text += U"abc"[random() % 3];
    const bool in_a = a.contains(text), in_b = b.contains(text), in_c = c.contains(text), in_w = words.contains(text);
    BOOST_TEST(a.complement().contains(text) != in_a);
    BOOST_TEST(words.complement().contains(text) != in_w);
    BOOST_TEST(a.intersect(b).contains(text) == (in_a && in_b));
    BOOST_TEST(b.subtract(c).contains(text) == (in_b && !in_c));
    BOOST_TEST(c.contains(text) == (text.size() >= 2 && text.size() <= 4));
    const std::uint64_t members = in_a | in_b << 1 | in_c << 2 | in_w << 3;
    for (const char_partition::part& part : parts)
      BOOST_TEST(part.texts.contains(text) == (part.members == members));
  }
  BOOST_TEST(a.intersect(a.complement()).empty());
  BOOST_TEST((a.complement().complement() == a));
  BOOST_TEST((char_dfa::length(2, 4).intersect(search("^.b")) == search("^.b[\\s\\S]{0,2}$")));
}

BOOST_AUTO_TEST_CASE(lengths_and_words) {
  BOOST_TEST(search("^a{3,7}$").min_length() == 3);
  BOOST_TEST(search("^a{3,7}$").max_length().value() == 7);
  BOOST_TEST(!search("^a{3,}$").max_length());
  BOOST_TEST((char_dfa::length(2, std::nullopt) == search("^[\\s\\S]{2,}$")));
  BOOST_TEST(char_dfa::length(3, 2).empty());
  BOOST_TEST(char_dfa::everything().is_everything());
  BOOST_TEST(char_dfa::nothing().complement().is_everything());
  BOOST_TEST(char_dfa::everything().complement().empty());
  const auto words = search("^(foo|ba[rz])$").enumerate(3);
  BOOST_REQUIRE(words);
  BOOST_TEST(words->size() == 3);
  BOOST_TEST(!search("^(foo|ba[rz])$").enumerate(2));
  BOOST_TEST(!search("^a*$").enumerate(100));
}

BOOST_AUTO_TEST_SUITE_END()
