#include "runtime/grammar/json_formats.hpp"

#include "runtime/base/check.hpp"
#include "runtime/grammar/char_pattern.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {
namespace {

char_dfa language(const std::string& expression) {
  const auto pattern = parse_pattern(expression);
  TROUPE_CHECK(pattern, "an expression of a format is malformed");
  return matched_texts(*pattern);
}

std::string group(const std::string& expression) {
  return "(?:" + expression + ")";
}

// RFC 3339, with the lengths of months and leap years of the Gregorian calendar.
std::string date() {
  const std::string leap_two = "(?:[02468][048]|[13579][26])"; // two digits that 4 divides
  const std::string leap_pair = "(?:0[48]|[2468][048]|[13579][26])";
  return group("[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
               "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}" +
               leap_pair + "|" + leap_two + "00)-02-29");
}

std::string time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string duration() { // RFC 3339, appendix A
  const std::string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string date = "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)";
  return "P(?:" + date + group(time) + "?|" + time + "|[0-9]+W)";
}

std::string ipv4() {
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return octet + "(?:\\." + octet + "){3}";
}

std::string ipv6() { // RFC 4291, 2.2
  const std::string h = "[0-9A-Fa-f]{1,4}", last = "(?:" + h + ":" + h + "|" + ipv4() + ")";
  std::string out = "(?:" + h + ":){6}" + last;
  for (int after = 5; after >= 0; --after) { // groups after "::", before the last 32 bits
    const int before = 5 - after;            // at most that many and one more groups before it
    out += "|" + (before == 0 ? std::string() : "(?:(?:" + h + ":){0," + std::to_string(before - 1) + "}" + h + ")?") +
           "::(?:" + h + ":){" + std::to_string(after) + "}" + last;
  }
  out += "|(?:(?:" + h + ":){0,5}" + h + ")?::" + h + "|(?:(?:" + h + ":){0,6}" + h + ")?::";
  return group(out);
}

// RFC 1123: labels of at most 63 characters, 253 in all. An automaton that knows both counts exactly needs 24,125
// states, more than a rule may have, so labels with their dots are counted in steps of four characters: no name is too
// long, and some names of more than 125 characters are left out.
char_dfa hostname() {
  constexpr std::uint32_t steps = 254 / 4, longest = 63, step = 4;
  constexpr std::uint32_t kinds = longest + 1; // of states with the same number of steps before their label
  const auto letter = [](std::uint32_t before, std::uint32_t length) { return 2 * (before * kinds + length); };
  std::vector<char_dfa::raw_state> states(2 * steps * kinds); // even: the last character may end a label; odd: a dash
  for (std::uint32_t before = 0; before < steps; ++before)
    for (std::uint32_t length = 0; length <= longest; ++length)
      for (const bool dash : {false, true}) {
        char_dfa::raw_state& s = states[letter(before, length) + dash];
        const std::uint32_t after = before + (length + step) / step; // steps with this label and a dot behind it
        s.accepting = length > 0 && !dash && after <= steps;
        const std::uint32_t more = letter(before, length + 1);
        if (length > 0 && length < longest)
          s.edges.push_back({U'-', U'-', more + 1});
        if (length > 0 && !dash && after < steps)
          s.edges.push_back({U'.', U'.', letter(after, 0)});
        if (length < longest)
          for (const char_range r : {char_range{U'0', U'9'}, {U'A', U'Z'}, {U'a', U'z'}})
            s.edges.push_back({r.low, r.high, more});
      }
  return char_dfa::of_states(states);
}

std::string labels() {
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + "(?:\\." + label + ")*";
}

// RFC 5321: dot-string or quoted string; a domain or an address in brackets.
std::string email(const std::string& address) {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\"";
  return group(atom + "(?:\\." + atom + ")*|" + quoted) + "@" + group(labels() + "|\\[" + group(address) + "\\]");
}

constexpr const char* percent = "%[0-9A-Fa-f]{2}";
constexpr const char* unreserved_and_subdelims = "A-Za-z0-9._~!$&'()*+,;=\\-";

// RFC 3986, appendix A.
std::string pchar(const std::string& more) {
  return std::string("(?:[") + unreserved_and_subdelims + more + "]|" + percent + ")";
}

std::string authority() {
  const std::string host = "(?:\\[(?:" + ipv6() + "|[vV][0-9A-Fa-f]+\\.[" + unreserved_and_subdelims + ":]+)\\]|" +
                           pchar("") + "*)"; // an IPv4 address is a name by its form
  return "(?:" + pchar(":") + "*@)?" + host + "(?::[0-9]*)?";
}

std::string query_and_fragment() {
  return "(?:\\?" + pchar(":@/?") + "*)?(?:#" + pchar(":@/?") + "*)?";
}

std::string path_after_authority() {
  return "(?:/" + pchar(":@") + "*)*";
}

std::string uri() {
  const std::string segment = pchar(":@");
  return "[A-Za-z][A-Za-z0-9+.\\-]*:" +
         group("//" + authority() + path_after_authority() + "|/(?:" + segment + "+(?:/" + segment + "*)*)?|" +
               segment + "+(?:/" + segment + "*)*|") +
         query_and_fragment();
}

std::string uri_reference() {
  const std::string segment = pchar(":@");
  return group(uri() + "|" +
               group("//" + authority() + path_after_authority() + "|/(?:" + segment + "+(?:/" + segment + "*)*)?|" +
                     pchar("@") + "+(?:/" + segment + "*)*|") +
               query_and_fragment());
}

// RFC 6570; `more` literal characters. Code points that are no characters and the tags of plane 14 are none.
std::string uri_template(const std::string& more) {
  std::string literal = "[!#$&(-;=?-\\[\\]_a-z~\\u{A0}-\\u{D7FF}\\u{E000}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}" + more;
  for (const char* plane : {"1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B", "C", "D", "E", "F", "10"})
    literal += "\\u{" + std::string(plane) + (*plane == 'E' ? "1000" : "0000") + "}-\\u{" + plane + "FFFD}";
  literal += "]";
  const std::string character = std::string("(?:[A-Za-z0-9_]|") + percent + ")";
  const std::string name = character + "(?:\\.?" + character + ")*";
  const std::string variable = name + "(?::[1-9][0-9]{0,3}|\\*)?";
  return "(?:" + literal + "|" + percent + "|\\{[+#./;?&=,!@|]?" + variable + "(?:," + variable + ")*\\})*";
}

std::string json_pointer() {
  return "(?:/(?:[^/~]|~[01])*)*";
}

// `step`: a sum after the number, that some versions of the format have.
std::string relative_json_pointer(const std::string& step) {
  return "(?:0|[1-9][0-9]*)" + step + "(?:#|" + json_pointer() + ")";
}

} // namespace

const json_format* find_format(std::string_view name) {
  const auto is = [&](std::string_view other) { return name == other; };
  if (is("date-time")) {
    static const json_format format{language(group(date()) + "[Tt]" + time())};
    return &format;
  }
  if (is("date")) {
    static const json_format format{language(date())};
    return &format;
  }
  if (is("time")) {
    static const json_format format{language(time())};
    return &format;
  }
  if (is("duration")) {
    static const json_format format{language(duration())};
    return &format;
  }
  if (is("email")) { // general addresses in brackets, and other spellings of those of the internet, are left out
    static const json_format format{language(email(ipv4() + "|IPv6:" + ipv6())), language(email("[!-Z^-~]+"))};
    return &format;
  }
  if (is("hostname")) {
    static const json_format format{hostname(), language(labels())};
    return &format;
  }
  if (is("ipv4")) {
    static const json_format format{language(ipv4())};
    return &format;
  }
  if (is("ipv6")) {
    static const json_format format{language(ipv6())};
    return &format;
  }
  if (is("uri")) {
    static const json_format format{language(uri())};
    return &format;
  }
  if (is("uri-reference")) {
    static const json_format format{language(uri_reference())};
    return &format;
  }
  if (is("uri-template")) { // an erratum of the RFC allows the apostrophe
    static const json_format format{language(uri_template("")), language(uri_template("'"))};
    return &format;
  }
  if (is("uuid")) {
    static const json_format format{language("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")};
    return &format;
  }
  if (is("json-pointer")) {
    static const json_format format{language(json_pointer())};
    return &format;
  }
  if (is("relative-json-pointer")) {
    static const json_format format{language(relative_json_pointer("")),
                                    language(relative_json_pointer("(?:[+-][1-9][0-9]*)?"))};
    return &format;
  }
  return nullptr;
}

} // namespace troupe
