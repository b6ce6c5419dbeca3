#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_cache.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

constraint of(constraint_kind kind, std::string text) {
  constraint what;
  what.kind = kind;
  what.text = std::move(text);
  return what;
}

std::string refusal(const constraint& what, const compile_limits& limits = {},
                    const std::function<bool()>& out_of_time = {}) {
  const auto compiled = compile_constraint(what, small_vocabulary(), limits, out_of_time);
  return compiled ? "compiled" : compiled.failure().code + ": " + compiled.failure().message;
}

} // namespace

BOOST_AUTO_TEST_SUITE(grammar_constraint)

BOOST_AUTO_TEST_CASE(kinds) {
  BOOST_TEST((*constraint_kind_of("json") == constraint_kind::json));
  BOOST_TEST((*constraint_kind_of("regex") == constraint_kind::regex));
  BOOST_TEST((*constraint_kind_of("ebnf") == constraint_kind::ebnf));
  const auto unknown = constraint_kind_of("lark");
  BOOST_TEST(unknown.failure().code == "so_invalid_args");
  BOOST_TEST(unknown.failure().message.find("\"lark\"") != std::string::npos);
  for (const auto& what : {of(constraint_kind::regex, "a+"), of(constraint_kind::ebnf, "root ::= \"a\"+"),
                           of(constraint_kind::json, "{\"const\":\"a\"}")})
    BOOST_TEST(refusal(what) == "compiled");
}

BOOST_AUTO_TEST_CASE(limits_end_the_work_from_inside) {
  compile_limits limits;
  limits.text_bytes = 10;
  BOOST_TEST(refusal(of(constraint_kind::regex, "abcdefghijk"), limits)
                 .starts_with("so_too_complex: the constraint has 11 bytes"));
  std::string alternatives = "a0";
  for (int i = 1; i < 10'000; ++i)
    alternatives += "|a" + std::to_string(i);
  BOOST_TEST(
      refusal(of(constraint_kind::regex, alternatives)).starts_with("so_too_complex: \"root\" needs more than 20000"));
  // of the automata that the front ends make, too
  limits = {};
  limits.states_per_rule = 50;
  for (const constraint& what :
       {of(constraint_kind::json, R"({"type":"string","pattern":"^[ab]*a[ab]{6}$"})"),
        of(constraint_kind::json, R"({"type":"string","pattern":"x","maxLength":60})"),
        of(constraint_kind::json, R"({"type":"integer","minimum":123456,"maximum":987654321})"),
        of(constraint_kind::json, R"({"type":"array","items":{},"contains":{"const":1},"minItems":60})"),
        of(constraint_kind::regex, "a{60}b|[ab]{5}")}) {
    BOOST_TEST(refusal(what) == "compiled", what.text);
    BOOST_TEST(refusal(what, limits).starts_with("so_too_complex"), what.text << ": " << refusal(what, limits));
  }
  limits = {};
  limits.memory_bytes = 100'000;
  BOOST_TEST(refusal(of(constraint_kind::regex, alternatives), limits)
                 .starts_with("so_too_complex: the constraint needs more than 100000 bytes"));
  // asked while it works, and ended at once
  int asked = 0;
  BOOST_TEST(
      refusal(of(constraint_kind::regex, alternatives), {}, [&] { return ++asked == 3; }).starts_with("so_timeout"));
  BOOST_TEST(asked == 3);
}

// A keyword that cannot be honoured refuses the constraint, or, if the request is lenient, has no effect and is named.
BOOST_AUTO_TEST_CASE(lenient_schemas_keep_their_warnings) {
  structured_output_args a{.schema_type = "json",
                           .schema = R"({"type":"array","uniqueItems":true,"items":{"$ref":"#/$defs/word"},
                                         "$defs":{"word":{"type":"string","pattern":"(?=a)b"}}})"};
  BOOST_TEST(refusal(constraint_of(a)) == "so_unsupported: #/$defs/word/pattern: position 1: look-ahead is not "
                                          "supported");
  a.lenient = true;
  const auto compiled = compile_constraint(constraint_of(a), small_vocabulary());
  BOOST_REQUIRE(compiled);
  const std::vector<std::string> warnings{"#/$defs/word/pattern has no effect: position 1: look-ahead is not supported",
                                          "#/uniqueItems has no effect: only for items of at most 64 values"};
  BOOST_TEST((*compiled)->warnings() == warnings, boost::test_tools::per_element());
  BOOST_TEST(matches(*compiled, R"(["a","a"])"));
  BOOST_TEST(!matches(*compiled, "[1]"));
  a.schema = R"({"type":"string"})";
  BOOST_TEST((*compile_constraint(constraint_of(a), small_vocabulary()))->warnings().empty());
}

BOOST_AUTO_TEST_CASE(cache_keys_tell_apart_what_differs) {
  const constraint base = of(constraint_kind::json, "{}");
  std::vector<constraint> others(8, base);
  others[0].text = "{ }";
  others[1].kind = constraint_kind::ebnf;
  others[2].schema.strict = false;
  others[3].schema.max_whitespace = 1;
  others[4].schema.indent = 0;
  others[5].dot_excludes_newline = true;
  others[6].schema.any_order = true;
  others[7].schema.lenient = true;
  BOOST_TEST(constraint_key(base, "tenant") == constraint_key(base, "tenant"));
  BOOST_TEST(constraint_key(base, "tenant") != constraint_key(base, "other"));
  BOOST_TEST(constraint_key(of(constraint_kind::json, "b{}"), "a") != constraint_key(base, "ab"));
  for (const constraint& o : others)
    BOOST_TEST(constraint_key(base, "") != constraint_key(o, ""));
}

BOOST_AUTO_TEST_CASE(cache_drops_what_was_used_longest_ago) {
  const auto compiled = [](const char* text) {
    return compile_constraint(of(constraint_kind::regex, text), small_vocabulary());
  };
  const auto a = compiled("a"), b = compiled("b"), c = compiled("c");
  (void)matches(*a, "a");
  const std::size_t one = (*a)->bytes();
  constraint_cache cache(2 * one + one / 2);
  cache.insert("a", a);
  (void)matches(*b, "b");
  cache.insert("b", b);
  BOOST_TEST((*cache.find("a"))->get() == a->get()); // now b is the older one
  (void)matches(*c, "c");
  cache.insert("c", c);
  BOOST_TEST(cache.size() == 2u);
  BOOST_TEST(!cache.find("b"));
  BOOST_TEST(cache.find("c").has_value());
  BOOST_TEST(cache.bytes() <= 2 * one + one / 2);
  // refusals are remembered, except those that another attempt may not meet
  cache.insert("bad", error{"so_syntax", "x"});
  cache.insert("late", error{"so_timeout", "x"});
  BOOST_TEST(cache.find("bad")->failure().code == "so_syntax");
  BOOST_TEST(!cache.find("late"));
  cache.insert("unlucky", error{"so_internal", "x"});
  BOOST_TEST(!cache.find("unlucky"));
  constraint_cache none(0);
  none.insert("a", a);
  BOOST_TEST(!none.find("a"));
}

BOOST_AUTO_TEST_SUITE_END()
