// Numbers of JSON schemas as exact decimals, and what numeric keywords say about them as a language of spellings
// (structured_output.md 6.3). Nothing here is rounded.
#pragma once
#include "runtime/grammar/char_automaton.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// (-1)^negative * digits * 10^exponent; digits without zeros at either end, empty for zero, which is not negative.
struct exact_decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  // `text` is a JSON number. What is beyond max_exponent stays beyond it, but need not be exact.
  static exact_decimal of(std::string_view text);
  static exact_decimal of(std::int64_t value);

  bool zero() const { return digits.empty(); }
  bool integral() const { return exponent >= 0; } // zero has exponent 0
  std::int64_t integer_digits() const;            // of the part before the point; 0 or less if the value is below 1
  std::optional<std::int64_t> as_integer() const; // none if not integral or not in 18 digits
  std::string plain() const;                      // without exponent; for at most max_plain_digits
  bool operator==(const exact_decimal&) const = default;
  std::strong_ordering operator<=>(const exact_decimal& other) const;
};

inline constexpr std::int64_t max_exponent = 1'000'000'000;
inline constexpr std::int64_t max_plain_digits = 4096;
inline constexpr std::uint64_t max_divisor = 4096;
inline constexpr std::int64_t max_listed_multiples = 1000; // of larger divisors, between bounds

bool is_multiple(const exact_decimal& value, const exact_decimal& divisor); // divisor > 0

// A conjunction. Every number that satisfies it is in the language below in each spelling without exponent, and, if
// nothing but the kinds is asked, with exponent too; integers alone are spelled without a fraction.
struct number_rules {
  struct bound {
    exact_decimal value;
    bool exclusive = false;
  };
  bool integers = true, fractions = true; // kinds of values that are allowed; 1.0 is an integer
  std::optional<bound> low = {}, high = {};
  std::vector<exact_decimal> multiples_of = {}, not_multiples_of = {}; // all positive
  std::vector<exact_decimal> excluded = {};

  void at_least(const bound& b); // keeps the tighter one
  void at_most(const bound& b);
  bool plain() const; // nothing but the kinds
  bool allows(const exact_decimal& value) const;
};

// Whether there is room for a divisor: it is at most max_divisor, or the bounds leave few multiples of it.
bool divisor_fits(const number_rules& rules, const exact_decimal& divisor);

// ASCII texts. Throws automaton_too_large: bounds of more than max_plain_digits digits, divisors that do not fit.
char_dfa number_spellings(const number_rules& rules);

} // namespace troupe
