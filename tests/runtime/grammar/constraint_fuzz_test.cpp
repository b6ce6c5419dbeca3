// What the fuzz targets check, over damaged case texts: no crash, and masks that agree with accept(). The number of
// inputs of each front end comes from TROUPE_FUZZ_INPUTS, the seed from TROUPE_FUZZ_SEED; the same numbers give the
// same inputs. With TROUPE_FUZZ_SECONDS it is as many as so much time allows (dev/test fuzz), the first ones of the
// same seed.
#include "tests/fuzz/damaged_texts.hpp"
#include "tests/fuzz/one_constraint.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <ctime>

using namespace troupe;
using namespace troupe::testing;

namespace {

unsigned long number_from(const char* variable, unsigned long otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::strtoul(text, nullptr, 10) : otherwise;
}

void check_damaged(constraint_kind kind, const std::string& file, std::vector<std::string> words) {
  std::vector<std::string> sources;
  for (const nlohmann::json& row : read_rows(file))
    sources.push_back(row["source"]);
  BOOST_REQUIRE(!sources.empty());
  fuzz::damaged_texts texts(std::move(sources), std::move(words),
                            static_cast<std::uint32_t>(number_from("TROUPE_FUZZ_SEED", 3)));
  using clock = std::chrono::steady_clock;
  const unsigned long seconds = number_from("TROUPE_FUZZ_SECONDS", 0);
  const unsigned long most = seconds > 0 ? ULONG_MAX : number_from("TROUPE_FUZZ_INPUTS", 10'000);
  const auto end = clock::now() + std::chrono::seconds(seconds);
  unsigned long inputs = 0;
  std::size_t followed = 0;
  double slowest_ms = 0;
  std::string slowest;
  for (; inputs < most && (seconds == 0 || clock::now() < end); ++inputs) {
    const std::string text = texts.next();
    const std::clock_t before = std::clock();
    followed += fuzz::try_constraint(kind, text) == fuzz::outcome::followed;
    if (const double ms = 1e3 * static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC; ms > slowest_ms)
      slowest_ms = ms, slowest = text;
  }
  BOOST_TEST_MESSAGE(inputs << " inputs, " << followed << " of them compiled and followed; the slowest took "
                            << slowest_ms << " ms: " << slowest);
  BOOST_TEST(followed > inputs / 50); // damage must leave some whole
}

} // namespace

BOOST_AUTO_TEST_SUITE(grammar_fuzz_regex)

BOOST_AUTO_TEST_CASE(damaged_regexes) {
  check_damaged(constraint_kind::regex, "regex.jsonl",
                {"(",           ")",   "[",      "]",  "[^",  "{1,", "{2}", "{0,300}",    "|",
                 "*",           "+",   "?",      "\\", "\\d", "\\W", "\\S", "\\u{1F600}", "\\x80",
                 "(?i)",        "(?:", "(?P<n>", "^",  "$",   ".",   "-",   "\xC3\xA9",   "\xF0\x9F\x98\x80",
                 "\xED\xA0\x80"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(grammar_fuzz_ebnf)

BOOST_AUTO_TEST_CASE(damaged_grammars) {
  check_damaged(constraint_kind::ebnf, "ebnf.jsonl",
                {"(",
                 ")",
                 "[^",
                 "]",
                 "{1,",
                 "{0,99}",
                 "|",
                 "*",
                 "+",
                 "?",
                 "\"",
                 "\"\"",
                 "root",
                 " ::= ",
                 "\nroot ::= ",
                 "\na ::= a a | ",
                 "#",
                 "\n",
                 "\\x",
                 "\\u00e9",
                 "TagDispatch((\"a\", root))",
                 "Token(3)",
                 "ExcludeToken(97, 98)",
                 "(= \"a\")",
                 "\xE4\xBD\xA0"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(grammar_fuzz_json)

BOOST_AUTO_TEST_CASE(damaged_schemas) {
  check_damaged(constraint_kind::json, "json_schema_suite.jsonl",
                {R"("type":"string",)",
                 R"("type":["integer","object"],)",
                 R"("maxLength":3,)",
                 R"("minLength":2,)",
                 R"("pattern":"^a+b?$",)",
                 R"("enum":[1,"a",null,{"b":[]}],)",
                 R"("const":0.5,)",
                 R"("required":["a","b"],)",
                 R"("properties":{"a":{}},)",
                 R"("additionalProperties":false,)",
                 R"("patternProperties":{"^a":{}},)",
                 R"("items":{"type":"number"},)",
                 R"("prefixItems":[{},{}],)",
                 R"("uniqueItems":true,)",
                 R"("contains":{"const":1},)",
                 R"("not":{"type":"null"},)",
                 R"("anyOf":[{"minimum":1},{"type":"null"}],)",
                 R"("oneOf":[{"const":1},{"const":2}],)",
                 R"("allOf":[{},{}],)",
                 R"("$ref":"#",)",
                 R"("multipleOf":0.01,)",
                 R"("minimum":-3,)",
                 R"("format":"date",)",
                 R"("if":{"type":"array"},"then":{"maxItems":2},)",
                 "{",
                 "}",
                 "[",
                 "]",
                 ",",
                 "\"",
                 "\\u0000",
                 "true",
                 "false"});
}

BOOST_AUTO_TEST_SUITE_END()
