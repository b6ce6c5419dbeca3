// Number languages against exact comparison of the numbers that the texts spell.
#include "runtime/grammar/json_number.hpp"

#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

exact_decimal dec(std::string_view text) {
  return exact_decimal::of(text);
}

bool spells(const char_dfa& language, std::string_view text) {
  return language.contains(to_code_points(text));
}

std::string random_number(std::mt19937& random) {
  std::string text = random() % 2 ? "-" : "";
  const char* integers[] = {"0", "1", "2", "9", "10", "12", "99", "100", "123", "119", "120", "121", "1000"};
  text += integers[random() % std::size(integers)];
  if (random() % 2) {
    text += '.';
    for (std::size_t n = 1 + random() % 4; n > 0; --n)
      text += static_cast<char>('0' + (random() % 3 ? random() % 10 : 0));
  }
  return text;
}

} // namespace

BOOST_AUTO_TEST_SUITE(json_number)

BOOST_AUTO_TEST_CASE(decimals_are_exact) {
  BOOST_TEST((dec("1.50e2") == dec("150")));
  BOOST_TEST((dec("-0.0") == dec("0")));
  BOOST_TEST(dec("1e-8").plain() == "0.00000001");
  BOOST_TEST(dec("-1200").plain() == "-1200");
  BOOST_TEST(dec("12.034").plain() == "12.034");
  BOOST_TEST(dec("12e2").as_integer().value() == 1200);
  BOOST_TEST(!dec("1e18").as_integer());
  BOOST_TEST(!dec("0.5").as_integer());
  const char* ascending[] = {"-1e9", "-10",  "-9.99", "-0.1",   "0", "1e-400", "0.09",
                             "0.1",  "0.11", "1",     "1.0001", "9", "10",     "1e308"};
  for (std::size_t i = 0; i < std::size(ascending); ++i)
    for (std::size_t k = 0; k < std::size(ascending); ++k)
      BOOST_TEST(((dec(ascending[i]) <=> dec(ascending[k])) == (i <=> k)));
  BOOST_TEST(is_multiple(dec("4.5"), dec("1.5")));
  BOOST_TEST(!is_multiple(dec("35"), dec("1.5")));
  BOOST_TEST(is_multiple(dec("0.0075"), dec("0.0001")));
  BOOST_TEST(!is_multiple(dec("0.00751"), dec("0.0001")));
  BOOST_TEST(is_multiple(dec("12391239123"), dec("1e-8")));
  BOOST_TEST(!is_multiple(dec("1e308"), dec("0.123456789")));
  BOOST_TEST(is_multiple(dec("123456789e300"), dec("0.123456789")));
  BOOST_TEST(is_multiple(dec("-1200"), dec("400")));
  BOOST_TEST(!is_multiple(dec("-1300"), dec("400")));
}

BOOST_AUTO_TEST_CASE(unconstrained_numbers_have_the_grammar_of_json) {
  const char_dfa numbers = number_spellings({}), integers = number_spellings({.fractions = false});
  for (const char* text : {"0", "-0", "10", "1.50", "-0.5e-7", "1E+9", "3e5"})
    BOOST_TEST(spells(numbers, text), text);
  for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1 "})
    BOOST_TEST(!spells(numbers, text), text);
  for (const char* text : {"0", "-0", "-10", "123"})
    BOOST_TEST(spells(integers, text), text);
  for (const char* text : {"1.0", "1e2", "-", "00"})
    BOOST_TEST(!spells(integers, text), text);
}

BOOST_AUTO_TEST_CASE(spellings_are_exactly_the_allowed_numbers) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    number_rules rules;
    rules.integers = random() % 6 != 0;
    rules.fractions = !rules.integers || random() % 3 != 0;
    if (random() % 2)
      rules.at_least({dec(random_number(random)), random() % 2 == 0});
    if (random() % 2)
      rules.at_most({dec(random_number(random)), random() % 2 == 0});
    if (random() % 4 == 0)
      rules.excluded = {dec(random_number(random)), dec(random_number(random))};
    const char* divisors[] = {"3", "0.01", "1.5", "12", "0.5", "100", "7"};
    if (random() % 3 == 0)
      rules.multiples_of = {dec(divisors[random() % std::size(divisors)])};
    if (random() % 5 == 0)
      rules.not_multiples_of = {dec(divisors[random() % std::size(divisors)])};
    const char_dfa language = number_spellings(rules);
    for (int i = 0; i < 200; ++i) {
      const std::string text = random_number(random);
      const bool spelled_so = rules.fractions || text.find('.') == std::string::npos;
      BOOST_TEST(spells(language, text) == (rules.allows(dec(text)) && spelled_so), text << " in round " << round);
    }
  }
}

BOOST_AUTO_TEST_CASE(bounds_of_many_digits_and_hostile_ones) {
  const char_dfa small = number_spellings({.high = number_rules::bound{dec("1e-300"), true}});
  BOOST_TEST(spells(small, "0." + std::string(300, '0') + "9"));
  BOOST_TEST(!spells(small, "0." + std::string(299, '0') + "1"));
  BOOST_TEST(spells(small, "-1"));
  const char_dfa large = number_spellings({.fractions = false, .low = number_rules::bound{dec("1e308"), false}});
  BOOST_TEST(spells(large, "1" + std::string(308, '0')));
  BOOST_TEST(!spells(large, std::string(308, '9')));
  BOOST_CHECK_THROW(number_spellings({.low = number_rules::bound{dec("1e999999999"), false}}), automaton_too_large);
  BOOST_CHECK_THROW(number_spellings({.multiples_of = {dec("1e-999999999")}}), automaton_too_large);
  BOOST_CHECK_THROW(number_spellings({.multiples_of = {dec("4097")}}), automaton_too_large);
  BOOST_TEST(
      number_spellings({.low = number_rules::bound{dec("5"), true}, .high = number_rules::bound{dec("5"), false}})
          .empty());
  BOOST_TEST(
      number_spellings(
          {.fractions = false, .low = number_rules::bound{dec("5"), true}, .high = number_rules::bound{dec("6"), true}})
          .empty());
}

BOOST_AUTO_TEST_SUITE_END()
