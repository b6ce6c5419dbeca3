#include "runtime/grammar/ebnf.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

std::shared_ptr<const compiled_grammar>
compile(std::string_view text, std::shared_ptr<const token_vocabulary> vocabulary, compile_limits limits = {}) {
  compile_budget budget(limits);
  grammar_builder builder(budget);
  const grammar_rule root = ebnf_grammar(builder, text, *vocabulary);
  return compile_grammar(builder, root, std::move(vocabulary));
}

std::shared_ptr<const compiled_grammar> compile_for_real(const std::string& source) {
  return compile(source, real_vocabulary());
}

std::string refusal(std::string_view text, compile_limits limits = {}) {
  try {
    (void)compile(text, small_vocabulary(), limits);
  } catch (const grammar_failure& f) {
    return f.why.code + ": " + f.why.message;
  }
  return "compiled";
}

bool accepts(std::string_view grammar, std::string_view text) {
  return matches(compile(grammar, small_vocabulary()), text);
}

} // namespace

BOOST_AUTO_TEST_SUITE(grammar_ebnf)

BOOST_AUTO_TEST_CASE(shared_cases) {
  BOOST_TEST(check_cases("ebnf.jsonl", compile_for_real) == 149u);
}

BOOST_AUTO_TEST_CASE(masks_agree_with_accept_over_the_whole_vocabulary) {
  BOOST_TEST(check_masks("ebnf.jsonl", compile_for_real, 3) >= 20u);
}

BOOST_AUTO_TEST_CASE(no_maximal_munch) {
  BOOST_TEST(accepts("root ::= [a-z]+ \"a\"", "aba"));
}

BOOST_AUTO_TEST_CASE(recursion_of_every_kind) {
  for (const char* hidden : {"root ::= e root \"b\" | \"a\"\ne ::= \"\" | \"x\"", // left recursion behind an empty rule
                             "root ::= other \"b\" | \"a\"\nother ::= root"}) {
    BOOST_TEST(accepts(hidden, "a"));
    BOOST_TEST(accepts(hidden, "abbb"));
    BOOST_TEST(!accepts(hidden, "b"));
    BOOST_TEST(!accepts(hidden, ""));
  }
  BOOST_TEST(accepts("root ::= root | \"a\"", "a"));
  BOOST_TEST(accepts("root ::= root root | \"a\"", "aaaaaaaa"));
  BOOST_TEST(accepts("root ::= root root root | \"a\" | \"\"", ""));
  // a counted loop whose first round begins with the rule itself
  const char* counted = "root ::= (root \"x\"){2,40} | \"y\"";
  BOOST_TEST(accepts(counted, "yxyx"));
  BOOST_TEST(accepts(counted, "yxyxxyxyxyxx"
                              "yx"));
  BOOST_TEST(!accepts(counted, "yx"));
  // left recursion behind rules that are empty or not
  const char* empties = "root ::= a b c\na ::= \"a\"?\nb ::= a \"b\"? a\nc ::= b* root \"\" | \"c\" | \"\"";
  for (const char* text : {"", "a", "b", "c", "bc", "aabac", "abab", "abaabc", "bbbbc"})
    BOOST_TEST(accepts(empties, text), text);
  for (const char* text : {"ca", "cc", "acb", "x"})
    BOOST_TEST(!accepts(empties, text), text);
}

BOOST_AUTO_TEST_CASE(notation) {
  BOOST_TEST(accepts("# comment\nroot ::= \"a\" # more\n  | other\n\nother ::= ( ) \"b\"\n  \"c\"", "bc"));
  BOOST_TEST(accepts("root ::= \"\\x41\\u00e9\\U0001F600\\e\\0\\?\\'\\/\"",
                     std::string("A\xC3\xA9\xF0\x9F\x98\x80\x1B\0?'/", 12)));
  BOOST_TEST(accepts("root ::= [\\]\\-a^-]{4}", "]-^a"));
  BOOST_TEST(accepts("root ::= [^]", "\xF0\x9F\x98\x80"));
  BOOST_TEST(accepts("root ::= \"a\"{2,-1}", "aaa"));
  BOOST_TEST(accepts("root ::= \"a\"{0,1000000000000000} \"b\"", "aaaab"));
  BOOST_TEST(accepts("root ::= \"ab\" (=\"c\" | \"d\")", "ab"));
  BOOST_TEST(!accepts("root ::= \"ab\" (=\"c\")", "abc"));
  BOOST_TEST(accepts("root ::= my-rule.v2 _x\nmy-rule.v2 ::= \"a\"\n_x ::= \"b\"", "ab"));
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto at = [](const char* place) { return std::string("so_syntax: grammar: line ") + place; };
  for (const auto& [grammar, expected] : std::vector<std::pair<std::string, std::string>>{
           {"root ::= root", "so_unsatisfiable: no text satisfies the constraint: \"root\" has no finite derivation"},
           {"root ::= \"a\" x\nx ::= \"b\" x", "so_unsatisfiable"},
           {"root ::= \"a\"\n  other", at("2, column 3: rule \"other\" is used here but not defined")},
           {"root ::= \"a\"\nroot ::= \"b\"", at("2, column 1: rule \"root\" is defined twice")},
           {"x ::= \"a\"", at("1, column 10: there is no rule \"root\"")},
           {"", at("1, column 1: there is no rule \"root\"")},
           {"root ::= \"a\\q\"", at("1, column 12: unknown escape")},
           {"root ::= \"a", at("1, column 10: the string is not closed")},
           {"root ::= \"a\nb\"", at("1, column 10: the string is not closed")},
           {"root ::= [a\n]", at("1, column 10: the class is not closed")},
           {"root ::= [\\d]", at("1, column 11: shorthand classes")},
           {"root ::= [b-a]", at("1, column 11: the range")},
           {"root ::= []", at("1, column 10: an empty class")},
           {"root ::= \"a\" |", at("1, column 15: an empty branch")},
           {"root ::= | \"a\"", at("1, column 10: an empty branch")},
           {"root ::=", at("1, column 9: an empty branch")},
           {"root ::= \"a\"{,3}", at("1, column 14: expected a number of repetitions")},
           {"root ::= \"a\"{3,2}", at("1, column 14: the repetition {3,2}")},
           {"root ::= \"a\"+*", at("1, column 14: two repetition marks")},
           {"root ::= \"a\"{9999999999999999}", at("1, column 14: the number is larger")},
           {"root ::= (\"a\"", at("1, column 14: expected \")\"")},
           {"root ::= \"a\")", at("1, column 13: \")\" without \"(\"")},
           {"root ::= 'a'", at("1, column 10: strings stand in double quotes")},
           {"root ::= .", at("1, column 10: rule \".\" is used here but not defined")},
           {"root ::= x y ::= \"a\"", at("1, column 12: the rule \"y\" must begin on a line of its own")},
           {"root ::= \"\xFF\"", at("1, column 11: this is not valid UTF-8")},
           {std::string("root ::= \"a\0\"", 13), at("1, column 12: a NUL character")},
           {"root ::= \"\\ud800\"", at("1, column 11: the escape is not a Unicode character")},
           {"root ::= Token(5000)", at("1, column 16: token id 5000 is outside the vocabulary of 258 ids")},
           {"root ::= \"a\"\n  Token(66, 99999999)", at("2, column 13: token id 99999999 is outside the vocabulary")},
           {"root ::= ExcludeToken(66, 258)", at("1, column 27: token id 258 is outside the vocabulary of 258 ids")},
           {"root ::= TokenTagDispatch((66, x), excludes=(9, 300))\nx ::= \"b\"",
            at("1, column 49: token id 300 is outside the vocabulary")},
           {"root ::= \"a\" Token(66, 257) \"b\"",
            "so_unsupported: grammar: line 1, column 24: token id 257 is the end token"},
           {"root ::= TokenTagDispatch((257, x))\nx ::= \"b\"",
            "so_unsupported: grammar: line 1, column 28: token id 257 is the end token"},
           {"root ::= ExcludeToken(257)", "compiled"},
           {"root ::= TagDispatch((\"ab\", root), excludes=(\"a\"))",
            at("1, column 21: the excluded string \"a\" begins the tag \"ab\"")}})
    BOOST_TEST(refusal(grammar).starts_with(expected), grammar << " gives " << refusal(grammar));
}

BOOST_AUTO_TEST_CASE(hostile) {
  BOOST_TEST(accepts("root ::= ((\"a\"{0,50}){0,50}){0,50}", ""));
  BOOST_TEST(accepts("root ::= ((\"a\"{0,50}){0,50}){0,50}", std::string(125000, 'a')));
  BOOST_TEST(!accepts("root ::= ((\"a\"{0,50}){0,50}){0,50}", std::string(125001, 'a')));
  BOOST_TEST(accepts("root ::= " + std::string(1000, '(') + "\"a\"" + std::string(1000, ')'), "a"));
  BOOST_TEST(refusal("root ::= " + std::string(1001, '(') + "\"a\"" + std::string(1001, ')'))
                 .starts_with("so_too_complex: grammar: line 1, column 1010: groups are nested more than 1000 deep"));
  std::string long_text;
  for (int i = 0; i < 300; ++i)
    long_text = "[" + long_text + "]";
  BOOST_TEST(accepts("root ::= \"[\" root? \"]\"", long_text));
  BOOST_TEST(!accepts("root ::= \"[\" root? \"]\"", long_text + "]"));
  std::string same = "root ::= \"x\"";
  for (int i = 0; i < 60; ++i)
    same += " | root \"a\"";
  BOOST_TEST(accepts(same, "xaa"));
  compile_limits few;
  few.states_total = 1000;
  BOOST_TEST(refusal("root ::= \"" + std::string(2000, 'x') + "\"", few).starts_with("so_too_complex"));
}

// Special ids by number only; tokens of text by number too, whatever they read.
BOOST_AUTO_TEST_CASE(token_constructs) {
  const auto vocabulary = small_vocabulary({"ab"}); // 256 "ab", 257 special, 258 end
  const auto grammar = compile("root ::= Token(257, 97) \"b\" | ExcludeToken(98) \"!\"", vocabulary);
  constraint_matcher m(grammar);
  BOOST_TEST(disagreements(m).empty());
  BOOST_TEST(m.accept(257));
  BOOST_TEST(!m.accept('!'));
  BOOST_TEST(m.accept('b'));
  BOOST_TEST(m.accept(258));
  BOOST_TEST(m.finished());
  constraint_matcher other(grammar);
  BOOST_TEST(!other.accept('b'));
  BOOST_TEST(other.accept(256)); // "ab" is one token that is not 98, and no two tokens
  BOOST_TEST(!other.accept('b'));
  BOOST_TEST(other.accept('!'));
  BOOST_TEST(other.can_end());
  constraint_matcher without_end(compile("root ::= ExcludeToken(258)", vocabulary));
  BOOST_TEST(!without_end.accept(258));
  BOOST_TEST(without_end.accept('a'));
}

BOOST_AUTO_TEST_CASE(tag_dispatch) {
  const char* again = "root ::= TagDispatch((\"<a>\", x), (\"<ab>\", y), excludes=(\"no\"))\nx ::= \"1\"\ny ::= \"2\"+";
  for (const auto& [text, expected] : std::vector<std::pair<std::string, bool>>{{"", true},
                                                                                {"free <text", true},
                                                                                {"<a>1", true},
                                                                                {"<a>1 and <ab>222 n", true},
                                                                                {"<<a>1", true},
                                                                                {"<a>", false},
                                                                                {"<a>2", false},
                                                                                {"now", false},
                                                                                {"<ab>2no", false},
                                                                                {"<ab>22<a>1", true}})
    BOOST_TEST(accepts(again, text) == expected, text);
  const char* once = "root ::= TagDispatch((\"<a>\", x), loop_after_dispatch=false)\nx ::= \"1\"";
  BOOST_TEST(accepts(once, "text"));
  BOOST_TEST(accepts(once, "text<a>1"));
  BOOST_TEST(!accepts(once, "text<a>1 more"));
  const auto grammar = compile(again, real_vocabulary());
  constraint_matcher m(grammar);
  for (const std::int32_t token : real_tokenizer().encode("some text <a>1 <ab>22", encode_mode::plain)) {
    BOOST_TEST(disagreements(m).empty());
    BOOST_TEST(m.accept(token));
  }
}

BOOST_AUTO_TEST_CASE(token_tag_dispatch) {
  const auto vocabulary = small_vocabulary(); // 256 special, 257 end
  const auto grammar = compile("root ::= TokenTagDispatch((256, x), excludes=(33))\nx ::= \"1\"", vocabulary);
  constraint_matcher m(grammar);
  BOOST_TEST(disagreements(m).empty());
  BOOST_TEST(m.accept('z'));
  BOOST_TEST(!m.accept('!'));
  BOOST_TEST(m.accept(256));
  BOOST_TEST(disagreements(m).empty());
  BOOST_TEST(!m.can_end());
  BOOST_TEST(!m.accept('z'));
  BOOST_TEST(m.accept('1'));
  BOOST_TEST(m.accept('z'));
  BOOST_TEST(m.can_end());
}

BOOST_AUTO_TEST_SUITE_END()
