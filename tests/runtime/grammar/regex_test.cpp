#include "runtime/grammar/regex.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace {

std::shared_ptr<const compiled_grammar> compile(std::string_view pattern,
                                                std::shared_ptr<const token_vocabulary> vocabulary,
                                                const regex_options& options = {}) {
  compile_budget budget;
  grammar_builder builder(budget);
  const grammar_rule root = builder.define("root", regex_expression(builder, pattern, options));
  return compile_grammar(builder, root, std::move(vocabulary));
}

std::shared_ptr<const compiled_grammar> compile_for_real(const std::string& source) {
  return compile(source, real_vocabulary());
}

std::string refusal(std::string_view pattern) {
  try {
    (void)compile(pattern, small_vocabulary());
  } catch (const grammar_failure& f) {
    return f.why.code + ": " + f.why.message;
  }
  return "compiled";
}

} // namespace

BOOST_AUTO_TEST_SUITE(grammar_regex)

BOOST_AUTO_TEST_CASE(shared_cases) {
  BOOST_TEST(check_cases("regex.jsonl", compile_for_real) == 227u);
}

BOOST_AUTO_TEST_CASE(masks_agree_with_accept_over_the_whole_vocabulary) {
  BOOST_TEST(check_masks("regex.jsonl", compile_for_real, 4) >= 20u);
}

BOOST_AUTO_TEST_CASE(refusals) {
  for (const auto& [pattern, expected] : std::vector<std::pair<std::string, std::string>>{
           {"a**", "so_syntax"},
           {"a^b", "so_syntax: regular expression: anchor inside: '^' at position 2"},
           {"(a$)b", "so_syntax: regular expression: anchor inside: '$' at position 3"},
           {"(", "so_syntax"},
           {"a{3,2}", "so_syntax"},
           {"[]", "so_syntax"},
           {"(?=a)", "so_unsupported"},
           {"\\bx", "so_unsupported"},
           {"\\p{L}", "so_unsupported"},
           {"\u00e9b\xff", "so_syntax: position 3: this is not valid UTF-8"},
           {std::string("a\0b", 3), "so_syntax"}})
    BOOST_TEST(refusal(pattern).starts_with(expected), pattern << " gives " << refusal(pattern));
}

BOOST_AUTO_TEST_CASE(hostile_repetitions_stay_counters) {
  const auto grammar = compile("(a{1,1000}){1,1000}", small_vocabulary({"aaaa", std::string(200, 'a')}));
  BOOST_TEST(grammar->bytes() < 300'000u);
  BOOST_TEST(matches(grammar, std::string(5000, 'a')));
  BOOST_TEST(!matches(grammar, ""));
  const auto big = compile("[a-z]{1,2000}", real_vocabulary());
  BOOST_TEST(matches(big, std::string(2000, 'x')));
  BOOST_TEST(!matches(big, std::string(2001, 'x')));
}

BOOST_AUTO_TEST_SUITE_END()
