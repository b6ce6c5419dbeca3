#include "runtime/grammar/json_number.hpp"

#include "runtime/base/check.hpp"
#include "runtime/grammar/char_pattern.hpp"
#include "runtime/grammar/compile_budget.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>

namespace troupe {
namespace {

constexpr std::int64_t clipped_exponent = 100'000'000'000'000'000; // no text has so many digits

// digits * 10^zeros modulo m.
std::uint64_t remainder(std::string_view digits, std::int64_t zeros, std::uint64_t m) {
  std::uint64_t r = 0;
  for (const char c : digits)
    r = (r * 10 + static_cast<std::uint64_t>(c - '0')) % m;
  std::uint64_t factor = 10 % m;
  for (; zeros > 0; zeros >>= 1, factor = factor * factor % m)
    if (zeros & 1)
      r = r * factor % m;
  return r;
}

// Long division of digits * 10^zeros by a divisor of any length: whether nothing remains.
bool divides(std::string_view divisor, std::string_view digits, std::int64_t zeros) {
  std::string rest; // without leading zeros, smaller than the divisor
  const auto less = [](std::string_view a, std::string_view b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(digits.size()) + zeros; ++i) {
    const char next = i < static_cast<std::int64_t>(digits.size()) ? digits[static_cast<std::size_t>(i)] : '0';
    if (!rest.empty() || next != '0')
      rest += next;
    while (!less(rest, divisor)) {
      charge_work(1 + rest.size() / 64);
      int borrow = 0;
      for (std::size_t k = 0; k < rest.size(); ++k) {
        char& d = rest[rest.size() - 1 - k];
        int x = d - '0' - borrow - (k < divisor.size() ? divisor[divisor.size() - 1 - k] - '0' : 0);
        borrow = x < 0;
        d = static_cast<char>('0' + (borrow ? x + 10 : x));
      }
      rest.erase(0, std::min(rest.find_first_not_of('0'), rest.size()));
    }
    if (rest.empty() && i >= static_cast<std::int64_t>(digits.size()))
      return true; // only zeros follow
  }
  return rest.empty();
}

} // namespace

exact_decimal exact_decimal::of(std::string_view text) {
  exact_decimal d;
  std::size_t i = 0;
  if (text[0] == '-') {
    d.negative = true;
    ++i;
  }
  std::int64_t point = 0;
  bool fraction = false;
  for (; i < text.size() && (text[i] | 32) != 'e'; ++i) {
    if (text[i] == '.') {
      fraction = true;
    } else {
      d.digits += text[i];
      point -= fraction;
    }
  }
  if (i < text.size()) {
    ++i;
    const bool minus = text[i] == '-';
    i += text[i] == '-' || text[i] == '+';
    std::int64_t e = 0;
    for (; i < text.size(); ++i)
      e = std::min(clipped_exponent, e * 10 + (text[i] - '0'));
    point += minus ? -e : e;
  }
  d.digits.erase(0, std::min(d.digits.find_first_not_of('0'), d.digits.size()));
  while (!d.digits.empty() && d.digits.back() == '0') {
    d.digits.pop_back();
    ++point;
  }
  if (d.digits.empty())
    return {};
  d.exponent = point;
  return d;
}

exact_decimal exact_decimal::of(std::int64_t value) {
  return of(std::to_string(value));
}

std::int64_t exact_decimal::integer_digits() const {
  return static_cast<std::int64_t>(digits.size()) + exponent;
}

std::optional<std::int64_t> exact_decimal::as_integer() const {
  if (!integral() || integer_digits() > 18)
    return std::nullopt;
  std::int64_t value = 0;
  const std::string text = plain();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string exact_decimal::plain() const {
  if (zero())
    return "0";
  std::string text = digits;
  if (exponent >= 0) {
    text.append(static_cast<std::size_t>(exponent), '0');
  } else {
    const auto places = static_cast<std::size_t>(-exponent);
    if (text.size() <= places)
      text.insert(0, places + 1 - text.size(), '0');
    text.insert(text.size() - places, ".");
  }
  return (negative ? "-" : "") + text;
}

std::strong_ordering exact_decimal::operator<=>(const exact_decimal& other) const {
  const auto sign = [](const exact_decimal& d) { return d.zero() ? 0 : d.negative ? -1 : 1; };
  if (const auto c = sign(*this) <=> sign(other); c != 0 || zero())
    return c;
  const exact_decimal &a = negative ? other : *this, &b = negative ? *this : other;
  if (const auto c = a.integer_digits() <=> b.integer_digits(); c != 0)
    return c;
  return a.digits.compare(b.digits) <=> 0; // first digits have the same weight, and the longer of two is larger
}

bool is_multiple(const exact_decimal& value, const exact_decimal& divisor) {
  if (value.zero())
    return true;
  // value / divisor = digits * 10^shift / divisor.digits
  const std::int64_t shift = value.exponent - divisor.exponent;
  if (shift < 0) // divisor.digits * 10^-shift must divide: it ends with zeros, value.digits does not
    return false;
  // More zeros than the divisor can have factors 2 and 5 change nothing.
  return divides(divisor.digits, value.digits, std::min(shift, 4 * static_cast<std::int64_t>(divisor.digits.size())));
}

void number_rules::at_least(const bound& b) {
  if (!low || b.value > low->value || (b.value == low->value && b.exclusive))
    low = b;
}

void number_rules::at_most(const bound& b) {
  if (!high || b.value < high->value || (b.value == high->value && b.exclusive))
    high = b;
}

bool number_rules::plain() const {
  return !low && !high && multiples_of.empty() && not_multiples_of.empty() && excluded.empty();
}

bool number_rules::allows(const exact_decimal& v) const {
  if (!(v.integral() ? integers : fractions) || (low && (v < low->value || (low->exclusive && v == low->value))) ||
      (high && (v > high->value || (high->exclusive && v == high->value))))
    return false;
  const auto is_divisor = [&](const exact_decimal& d) { return is_multiple(v, d); };
  return std::all_of(multiples_of.begin(), multiples_of.end(), is_divisor) &&
         std::none_of(not_multiples_of.begin(), not_multiples_of.end(), is_divisor) &&
         std::find(excluded.begin(), excluded.end(), v) == excluded.end();
}

namespace {

// The automaton reads a number from its first digit and keeps, for every rule, what the digits so far decide.

// How the magnitude read so far compares with that of a constant.
struct comparison {
  exact_decimal constant;
  // Digit of the constant at `place`: 0 is the first one after the point, -1 the last one before it.
  int digit(std::int64_t place) const {
    const std::int64_t index = place + constant.integer_digits();
    return index >= 0 && index < static_cast<std::int64_t>(constant.digits.size())
               ? constant.digits[static_cast<std::size_t>(index)] - '0'
               : 0;
  }
  std::int64_t integer_digits() const { return std::max<std::int64_t>(constant.integer_digits(), 0); }
  std::int64_t places() const { return std::max<std::int64_t>(-constant.exponent, 0); } // after the point
};

struct divisor_rule {
  std::uint64_t modulus; // value * 10^places is a multiple of it
  std::int64_t places;
  bool wanted;
};

// None: too large.
std::optional<divisor_rule> rule_of(const exact_decimal& d, bool wanted, bool fractions) {
  if (-d.exponent > 18 || std::max<std::int64_t>(d.integer_digits(), std::ssize(d.digits)) > 18)
    return std::nullopt;
  divisor_rule rule{std::stoull(d.exponent > 0 ? d.plain() : d.digits), std::max<std::int64_t>(-d.exponent, 0), wanted};
  if (!fractions) {
    // Integers: n * 10^places is a multiple of m exactly if n is one of m / gcd(m, 10^places).
    std::uint64_t power = 1;
    for (std::int64_t i = 0; i < rule.places; ++i)
      power *= 10;
    rule.modulus /= std::gcd(rule.modulus, power);
    rule.places = 0;
  }
  return rule.modulus <= max_divisor ? std::optional(rule) : std::nullopt;
}

// value * 10^places without what is behind the point; none beyond 18 digits.
std::optional<std::int64_t> scaled(const exact_decimal& value, std::int64_t places) {
  const std::int64_t digits = value.integer_digits() + places;
  if (digits > 18)
    return std::nullopt;
  if (digits <= 0)
    return 0;
  std::string text = value.digits.substr(0, static_cast<std::size_t>(digits));
  text.append(static_cast<std::size_t>(digits) - text.size(), '0');
  return value.negative ? -std::stoll(text) : std::stoll(text);
}

// The multiples between the bounds, and perhaps a few more; none if they are too many to be listed.
std::optional<std::vector<exact_decimal>> multiples(const number_rules& rules, const exact_decimal& d) {
  const std::int64_t places = std::max<std::int64_t>(-d.exponent, 0);
  const auto step = places <= 18 ? scaled(d, places) : std::nullopt;
  const auto low = step && rules.low ? scaled(rules.low->value, places) : std::nullopt;
  const auto high = low && rules.high ? scaled(rules.high->value, places) : std::nullopt;
  if (!high || *high / *step - *low / *step > max_listed_multiples)
    return std::nullopt;
  std::vector<exact_decimal> out;
  for (std::int64_t k = *low / *step - 1; k <= *high / *step + 1; ++k)
    out.push_back(exact_decimal::of(std::to_string(k * *step) + "e-" + std::to_string(places)));
  return out;
}

char_dfa spellings_of(const std::vector<exact_decimal>& values, bool fractions) {
  std::string expression;
  for (const exact_decimal& v : values) {
    if (!expression.empty())
      expression += '|';
    if (v.zero())
      expression += "-?";
    for (const char c : v.plain())
      expression += c == '.' ? "\\." : std::string(1, c);
    if (fractions)
      expression += v.integral() ? "(?:\\.0+)?" : "0*";
  }
  if (values.empty())
    return char_dfa::nothing();
  const auto pattern = parse_pattern(expression);
  TROUPE_CHECK(pattern, "an expression for numbers is malformed");
  return matched_texts(*pattern);
}

enum class phase : std::uint8_t { begin, zero, integer, point, fraction };

struct number_state {
  phase at = phase::begin;
  bool negative = false;
  std::uint32_t count = 0;            // digits in this part, as far as a rule still looks
  bool nonzero_fraction = false;      // kept only where it is asked
  std::vector<std::int8_t> order;     // one for each bound: -1, 0, 1
  std::vector<std::uint32_t> equal;   // excluded constants that the magnitude can still become
  std::vector<std::uint16_t> residue; // one for each divisor; `broken` where a digit too deep was not 0
  auto operator<=>(const number_state&) const = default;
};
constexpr std::uint16_t broken = UINT16_MAX;

class number_language {
public:
  explicit number_language(const number_rules& rules) : rules_(rules) {
    if (rules.low)
      compare(rules.low->value);
    if (rules.high)
      compare(rules.high->value);
    bounds_ = comparisons_.size();
    for (const exact_decimal& v : rules.excluded)
      compare(v);
    for (const exact_decimal& d : rules.multiples_of)
      divide(d, true);
    for (const exact_decimal& d : rules.not_multiples_of)
      divide(d, false);
    for (const comparison& c : comparisons_) {
      integer_count_ = std::max(integer_count_, c.integer_digits() + 1);
      fraction_count_ = std::max(fraction_count_, c.places());
    }
    for (const divisor_rule& d : divisors_)
      fraction_count_ = std::max(fraction_count_, d.places);
  }

  char_dfa build() {
    std::vector<char_dfa::raw_state> out;
    number_state start;
    start.order.assign(bounds_, 0);
    start.equal.resize(comparisons_.size() - bounds_);
    std::iota(start.equal.begin(), start.equal.end(), static_cast<std::uint32_t>(bounds_));
    start.residue.assign(divisors_.size(), 0);
    number(start);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const number_state from = *order_[i];
      std::vector<char_dfa::edge> edges;
      const auto add = [&](char32_t c, const number_state& to) { edges.push_back({c, c, number(to)}); };
      if (from.at == phase::begin && !from.negative) {
        number_state to = from;
        to.negative = true;
        add(U'-', to);
      }
      if ((from.at == phase::zero || from.at == phase::integer) && rules_.fractions) {
        number_state to = end_of_integer(from);
        to.at = phase::point;
        to.count = 0;
        add(U'.', to);
      }
      if (from.at != phase::zero)
        for (int digit = 0; digit < 10; ++digit)
          add(U'0' + static_cast<char32_t>(digit), after(from, digit));
      out.push_back({accepts(from), std::move(edges)});
    }
    return char_dfa::of_states(out);
  }

private:
  void compare(exact_decimal constant) {
    const std::int64_t digits = std::max(constant.integer_digits(), -constant.exponent);
    if (digits > max_plain_digits)
      throw automaton_too_large("a bound has more than " + std::to_string(max_plain_digits) + " digits");
    comparisons_.push_back({std::move(constant)});
  }

  void divide(const exact_decimal& d, bool wanted) {
    const std::optional<divisor_rule> rule = rule_of(d, wanted, rules_.fractions);
    if (!rule)
      throw automaton_too_large("divisors above " + std::to_string(max_divisor) + " are not supported");
    divisors_.push_back(*rule);
  }

  std::uint32_t number(const number_state& s) {
    charge_work(1 + s.equal.size() / 16);
    const auto [it, fresh] = numbers_.try_emplace(s, static_cast<std::uint32_t>(order_.size()));
    if (fresh) {
      held_.add(sizeof(s) + 64 + s.order.size() + s.residue.size() * 2 + s.equal.size() * 4);
      if (order_.size() == most_rule_states())
        throw automaton_too_large("numeric bounds and divisors together need too many states");
      order_.push_back(&it->first);
    }
    return it->second;
  }

  number_state after(number_state s, int digit) const {
    const bool in_fraction = s.at == phase::point || s.at == phase::fraction;
    for (std::size_t i = 0; i < bounds_; ++i) {
      std::int8_t& order = s.order[i];
      if (in_fraction) {
        if (order == 0 && static_cast<std::int64_t>(s.count) < fraction_count_)
          order = sign(digit - comparisons_[i].digit(s.count));
        else if (order == 0 && digit != 0)
          order = 1;
      } else if (order == 0) {
        // Digits before the point are compared from the left, as if both numbers had equally many; their count is
        // looked at when the integer part ends.
        const std::int64_t place = static_cast<std::int64_t>(s.count) - comparisons_[i].integer_digits();
        if (place < 0)
          order = sign(digit - comparisons_[i].digit(place));
      }
    }
    const bool zero = s.at == phase::begin && digit == 0; // the digit before a point, which no constant has
    std::erase_if(s.equal, [&](std::uint32_t i) {
      const std::int64_t digits = in_fraction ? fraction_count_ : comparisons_[i].integer_digits();
      const std::int64_t place = in_fraction ? s.count : s.count - digits;
      return s.count < digits ? digit != comparisons_[i].digit(place) : !zero && (!in_fraction || digit != 0);
    });
    for (std::size_t i = 0; i < divisors_.size(); ++i) {
      std::uint16_t& r = s.residue[i];
      if (!in_fraction || static_cast<std::int64_t>(s.count) < divisors_[i].places) {
        if (r != broken)
          r = static_cast<std::uint16_t>((r * 10u + static_cast<unsigned>(digit)) % divisors_[i].modulus);
      } else if (digit != 0) {
        r = broken;
      }
    }
    if (in_fraction) {
      s.at = phase::fraction;
      s.nonzero_fraction |= digit != 0 && !rules_.integers;
      s.count = static_cast<std::uint32_t>(std::min<std::int64_t>(s.count + 1, fraction_count_));
    } else {
      s.at = s.at == phase::begin && digit == 0 ? phase::zero : phase::integer;
      s.count = static_cast<std::uint32_t>(std::min<std::int64_t>(s.count + 1, integer_count_));
      if (static_cast<std::int64_t>(s.count) == integer_count_ && integer_count_ > 0)
        s.order.assign(s.order.size(), 1); // longer than every constant
    }
    return s;
  }

  static std::int8_t sign(int x) { return static_cast<std::int8_t>(x < 0 ? -1 : x > 0); }

  // The integer part is complete: more or fewer digits than the constant's decide before their values do.
  number_state end_of_integer(number_state s) const {
    const std::int64_t digits = s.at == phase::zero ? 0 : s.count;
    std::erase_if(s.equal, [&](std::uint32_t i) { return digits != comparisons_[i].integer_digits(); });
    for (std::size_t i = 0; i < bounds_; ++i)
      if (digits != comparisons_[i].integer_digits())
        s.order[i] = digits < comparisons_[i].integer_digits() ? -1 : 1;
      else if (s.at == phase::zero)
        s.order[i] = 0;
    return s;
  }

  bool accepts(const number_state& s) const {
    if (s.at == phase::begin || s.at == phase::point)
      return false;
    const bool fraction = s.at == phase::fraction;
    const number_state done = fraction ? s : end_of_integer(s);
    if (!rules_.integers && !(fraction && s.nonzero_fraction))
      return false;
    for (std::size_t i = 0; i < divisors_.size(); ++i) {
      const divisor_rule& d = divisors_[i];
      const std::int64_t missing = d.places - (fraction ? static_cast<std::int64_t>(s.count) : 0);
      const bool multiple = s.residue[i] != broken &&
                            remainder(std::to_string(s.residue[i]), std::max<std::int64_t>(missing, 0), d.modulus) == 0;
      if (multiple != d.wanted)
        return false;
    }
    const auto order = [&](std::size_t i, int magnitude) { // of the number against constant i, signs included
      const comparison& c = comparisons_[i];
      if (magnitude == 0 && (fraction ? static_cast<std::int64_t>(s.count) : 0) < c.places())
        magnitude = -1; // digits of the constant are left, and the last of them is not 0
      if (c.constant.zero() && magnitude == 0)
        return 0;
      if (s.negative != c.constant.negative && !c.constant.zero())
        return s.negative ? -1 : 1;
      return s.negative ? -magnitude : magnitude;
    };
    if (rules_.low)
      if (const int o = order(0, done.order[0]); o < 0 || (o == 0 && rules_.low->exclusive))
        return false;
    if (rules_.high)
      if (const int o = order(bounds_ - 1, done.order[bounds_ - 1]); o > 0 || (o == 0 && rules_.high->exclusive))
        return false;
    return std::none_of(done.equal.begin(), done.equal.end(), [&](std::uint32_t i) { return order(i, 0) == 0; });
  }

  const number_rules& rules_;
  std::vector<comparison> comparisons_; // low, high, excluded
  std::size_t bounds_ = 0;              // how many of them are low and high
  std::vector<divisor_rule> divisors_;
  std::int64_t integer_count_ = 0, fraction_count_ = 0; // how far counts are kept
  std::map<number_state, std::uint32_t> numbers_;
  std::vector<const number_state*> order_;
  charged_memory held_;
};

char_dfa plain_numbers(bool with_fraction) {
  // 0: start, 1: after minus, 2: zero, 3: integer, 4: point, 5: fraction, 6: e, 7: sign of the exponent, 8: exponent
  using state = char_dfa::raw_state;
  constexpr char32_t first = U'0', last = U'9';
  if (!with_fraction)
    return char_dfa::of_states(std::array<state, 4>{{{false, {{U'-', U'-', 1}, {first, first, 2}, {U'1', last, 3}}},
                                                     {false, {{first, first, 2}, {U'1', last, 3}}},
                                                     {true, {}},
                                                     {true, {{first, last, 3}}}}});
  const char_dfa::edge point{U'.', U'.', 4}, upper{U'E', U'E', 6}, lower{U'e', U'e', 6};
  return char_dfa::of_states(std::array<state, 9>{{{false, {{U'-', U'-', 1}, {first, first, 2}, {U'1', last, 3}}},
                                                   {false, {{first, first, 2}, {U'1', last, 3}}},
                                                   {true, {point, upper, lower}},
                                                   {true, {point, {first, last, 3}, upper, lower}},
                                                   {false, {{first, last, 5}}},
                                                   {true, {{first, last, 5}, upper, lower}},
                                                   {false, {{U'+', U'+', 7}, {U'-', U'-', 7}, {first, last, 8}}},
                                                   {false, {{first, last, 8}}},
                                                   {true, {{first, last, 8}}}}});
}

} // namespace

bool divisor_fits(const number_rules& rules, const exact_decimal& divisor) {
  return rule_of(divisor, true, rules.fractions) || multiples(rules, divisor);
}

char_dfa number_spellings(const number_rules& rules) {
  if (!rules.integers && !rules.fractions)
    return char_dfa::nothing();
  if (rules.plain() && rules.integers)
    return plain_numbers(rules.fractions);
  for (const exact_decimal& d : rules.multiples_of)
    if (!rule_of(d, true, rules.fractions))
      if (auto listed = multiples(rules, d)) {
        std::erase_if(*listed, [&](const exact_decimal& v) { return !rules.allows(v); });
        return spellings_of(*listed, rules.fractions);
      }
  number_rules left = rules;
  std::erase_if(left.not_multiples_of, [&](const exact_decimal& d) {
    const auto listed = rule_of(d, false, rules.fractions) ? std::nullopt : multiples(rules, d);
    if (listed)
      left.excluded.insert(left.excluded.end(), listed->begin(), listed->end());
    return listed.has_value();
  });
  return number_language(left).build();
}

} // namespace troupe
