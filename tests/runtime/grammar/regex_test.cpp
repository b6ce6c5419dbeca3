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

// Every case of the shared file, token by token with the real vocabulary: the bit of each token says what accept()
// does.
BOOST_AUTO_TEST_CASE(shared_cases) {
  const auto vocabulary = real_vocabulary();
  std::vector<std::uint32_t> row(vocabulary->words());
  std::size_t cases = 0;
  for (const nlohmann::json& r : read_rows("regex.jsonl")) {
    const std::string pattern = r["source"], id = r["id"];
    const auto grammar = compile(pattern, vocabulary);
    for (const nlohmann::json& c : r["cases"]) {
      const std::string text = c["text"];
      const bool expected = c["expect"] == "accept";
      BOOST_TEST(matches(grammar, text) == expected, id << ": " << text << " byte by byte");
      constraint_matcher m(grammar);
      bool accepted = true;
      for (const std::int32_t token : real_tokenizer().encode(text, encode_mode::plain)) {
        m.fill(row.data());
        const bool allowed = has_bit(row.data(), token);
        accepted = m.accept(token);
        BOOST_TEST(allowed == accepted, id << ": " << text << " at token " << token);
        if (!accepted)
          break;
      }
      m.fill(row.data());
      BOOST_TEST(has_bit(row.data(), vocabulary->end_token()) == m.can_end());
      BOOST_TEST((accepted && m.can_end()) == expected, id << ": " << text);
      ++cases;
    }
  }
  BOOST_TEST(cases == 227u);
}

BOOST_AUTO_TEST_CASE(masks_agree_with_accept_over_the_whole_vocabulary) {
  const auto vocabulary = real_vocabulary();
  std::size_t states = 0;
  for (const nlohmann::json& r : read_rows("regex.jsonl")) {
    const auto grammar = compile(r["source"].get<std::string>(), vocabulary);
    const std::string text = r["cases"][0]["text"];
    constraint_matcher m(grammar);
    for (const std::int32_t token : real_tokenizer().encode(text, encode_mode::plain)) {
      if (states++ % 4 == 0) {
        const auto wrong = disagreements(m);
        BOOST_TEST(wrong.empty(),
                   r["id"] << " before token " << token << ": wrong bit of " << (wrong.empty() ? -1 : wrong[0]));
      }
      if (!m.accept(token))
        break;
    }
  }
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
