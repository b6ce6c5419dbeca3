// Does a JSON text satisfy a JSON schema? Direct evaluation of draft 2020-12 (and of the older spellings that
// structured_output.md 6.1 maps), keyword by keyword, written apart from the front end that it judges: other parser,
// other numbers, other regular expressions.
#pragma once
#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::testing {

// A JSON value with numbers as they are written and every member as it stands, repeated keys too.
struct json_tree {
  enum class type { null, boolean, number, string, array, object };
  type kind = type::null;
  bool truth = false;
  std::string text; // of a string, decoded; of a number, as written
  std::vector<json_tree> items;
  std::vector<std::pair<std::string, json_tree>> members;

  const json_tree* get(const std::string& key) const { // the last one, as most parsers
    for (auto m = members.rbegin(); m != members.rend(); ++m)
      if (m->first == key)
        return &m->second;
    return nullptr;
  }

  // Throws std::invalid_argument for text that is not JSON, std::range_error for numbers that it cannot hold.
  static json_tree parse(const std::string& text);
};

struct json_tree_reader {
  json_tree root;
  std::vector<json_tree*> open; // only the last one grows, so the others stay where they are
  std::string name, why;
  json_tree& place() {
    if (open.empty())
      return root;
    json_tree& in = *open.back();
    if (in.kind == json_tree::type::array)
      return in.items.emplace_back();
    return in.members.emplace_back(std::exchange(name, {}), json_tree{}).second;
  }
  bool leaf(json_tree::type kind, std::string text = {}, bool truth = false) {
    json_tree& v = place();
    v.kind = kind;
    v.text = std::move(text);
    v.truth = truth;
    return true;
  }
  bool null() { return leaf(json_tree::type::null); }
  bool boolean(bool b) { return leaf(json_tree::type::boolean, {}, b); }
  bool number_integer(std::int64_t v) { return leaf(json_tree::type::number, std::to_string(v)); }
  bool number_unsigned(std::uint64_t v) { return leaf(json_tree::type::number, std::to_string(v)); }
  bool number_float(double, const std::string& s) { return leaf(json_tree::type::number, s); }
  bool string(std::string& s) { return leaf(json_tree::type::string, s); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start(json_tree::type kind) {
    json_tree& v = place();
    v.kind = kind;
    open.push_back(&v);
    return true;
  }
  bool start_object(std::size_t) { return start(json_tree::type::object); }
  bool start_array(std::size_t) { return start(json_tree::type::array); }
  bool end_object() {
    open.pop_back();
    return true;
  }
  bool end_array() { return end_object(); }
  bool key(std::string& k) {
    name = k;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception& e) {
    why = std::to_string(at) + ": " + e.what();
    return false;
  }
};

inline json_tree json_tree::parse(const std::string& text) {
  json_tree_reader r;
  if (!nlohmann::json::sax_parse(text, &r)) {
    if (r.why.find("number overflow") != std::string::npos)
      throw std::range_error(r.why);
    throw std::invalid_argument("not JSON: " + r.why);
  }
  return std::move(r.root);
}

// mantissa * 10^exponent. Numbers of more than 18 digits or beyond 10^18 throw std::range_error.
struct small_decimal {
  __extension__ typedef __int128 wide;
  wide mantissa = 0;
  int exponent = 0;

  explicit small_decimal(const std::string& text) {
    if (text.size() > 20)
      throw std::range_error("a number beyond this validator: " + text);
    bool fraction = false, negative = false;
    std::size_t i = 0;
    for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
      if (text[i] == '-')
        negative = true;
      else if (text[i] == '.')
        fraction = true;
      else {
        mantissa = mantissa * 10 + (text[i] - '0');
        exponent -= fraction;
      }
    }
    if (i < text.size())
      exponent += std::clamp(std::stoi(text.substr(i + 1).substr(0, 6)), -1000, 1000);
    if (negative)
      mantissa = -mantissa;
    while (mantissa != 0 && mantissa % 10 == 0) {
      mantissa /= 10;
      ++exponent;
    }
    if (mantissa == 0)
      exponent = 0;
    if (exponent < -18 || exponent > 18)
      throw std::range_error("a number beyond this validator: " + text);
  }
  bool integral() const { return exponent >= 0; }
  // Both as integers of one unit.
  static std::pair<wide, wide> aligned(small_decimal a, small_decimal b) {
    for (; a.exponent > b.exponent && a.mantissa != 0; --a.exponent)
      a.mantissa *= 10;
    for (; b.exponent > a.exponent && b.mantissa != 0; --b.exponent)
      b.mantissa *= 10;
    return {a.mantissa, b.mantissa};
  }
  int compare(const small_decimal& other) const {
    const auto [a, b] = aligned(*this, other);
    return a < b ? -1 : a > b;
  }
  bool multiple_of(const small_decimal& d) const {
    const auto [a, b] = aligned(*this, d);
    return a % b == 0;
  }
};

inline bool same_tree(const json_tree& a, const json_tree& b) {
  using type = json_tree::type;
  if (a.kind != b.kind)
    return false;
  if (a.kind == type::number)
    return small_decimal(a.text).compare(small_decimal(b.text)) == 0;
  if (a.kind == type::array)
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_tree);
  if (a.kind == type::object) {
    const auto covers = [](const json_tree& x, const json_tree& y) {
      return std::all_of(x.members.begin(), x.members.end(), [&](const auto& m) {
        const json_tree *v = x.get(m.first), *w = y.get(m.first);
        return w && same_tree(*v, *w);
      });
    };
    return covers(a, b) && covers(b, a);
  }
  return a.truth == b.truth && a.text == b.text;
}

class json_validator {
public:
  explicit json_validator(const std::string& schema) : root_(json_tree::parse(schema)) { register_names(root_); }

  // Throws as json_tree::parse.
  bool valid(const std::string& text) const {
    const json_tree value = json_tree::parse(text);
    seen place;
    return holds(root_, value, place);
  }

private:
  using type = json_tree::type;
  struct seen { // what was evaluated at one place of the value
    std::set<std::string> members;
    std::set<std::size_t> items;
    void add(const seen& other) {
      members.insert(other.members.begin(), other.members.end());
      items.insert(other.items.begin(), other.items.end());
    }
  };

  static std::wstring wide(const std::string& utf8) {
    std::wstring out;
    for (std::size_t i = 0; i < utf8.size();) {
      const auto lead = static_cast<unsigned char>(utf8[i]);
      const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
      std::uint32_t c = more == 0 ? lead : lead & (0x3Fu >> more);
      for (int k = 1; k <= more; ++k)
        c = c << 6 | (static_cast<unsigned char>(utf8[i + static_cast<std::size_t>(k)]) & 0x3F);
      out += static_cast<wchar_t>(c);
      i += static_cast<std::size_t>(more) + 1;
    }
    return out;
  }

  static bool matches(const std::string& pattern, const std::string& text) {
    return std::regex_search(wide(text), std::wregex(wide(pattern), std::regex::ECMAScript));
  }
  static bool fits(const char* pattern, const std::string& text) {
    return std::regex_match(text, std::regex(pattern, std::regex::ECMAScript));
  }

  static bool is_date(const std::string& s) {
    if (!fits("\\d{4}-\\d\\d-\\d\\d", s))
      return false;
    const int year = std::stoi(s), month = std::stoi(s.substr(5)), day = std::stoi(s.substr(8));
    const int days[] = {
        31, year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
  }
  static bool is_time(const std::string& s) {
    std::smatch m;
    static const std::regex form("(\\d\\d):(\\d\\d):(\\d\\d)(\\.\\d+)?([zZ]|[+-](\\d\\d):(\\d\\d))");
    return std::regex_match(s, m, form) && std::stoi(m[1]) < 24 && std::stoi(m[2]) < 60 && std::stoi(m[3]) <= 60 &&
           (!m[6].matched || (std::stoi(m[6]) < 24 && std::stoi(m[7]) < 60));
  }
  static bool is_hostname(const std::string& s) {
    std::size_t label = 0;
    for (std::size_t i = 0; i <= s.size(); ++i) {
      const char c = i < s.size() ? s[i] : '.';
      if (c == '.') {
        if (label == 0 || label > 63 || s[i - 1] == '-')
          return false;
        label = 0;
      } else if (std::isalnum(static_cast<unsigned char>(c)) || (c == '-' && label > 0)) {
        ++label;
      } else {
        return false;
      }
    }
    return s.size() <= 253;
  }
  static bool has_format(const std::string& format, const std::string& s) {
    in6_addr address;
    if (format == "date")
      return is_date(s);
    if (format == "time")
      return is_time(s);
    if (format == "date-time")
      return s.size() > 11 && is_date(s.substr(0, 10)) && (s[10] == 'T' || s[10] == 't') && is_time(s.substr(11));
    if (format == "duration")
      return fits(
          "P(?=.)(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)?(T(?=\\d)(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?"
          "|\\d+S))?)",
          s);
    if (format == "ipv4")
      return fits("\\d{1,3}(\\.\\d{1,3}){3}", s) && inet_pton(AF_INET, s.c_str(), &address) == 1;
    if (format == "ipv6")
      return s.find('%') == s.npos && s.find('\0') == s.npos && inet_pton(AF_INET6, s.c_str(), &address) == 1;
    if (format == "uuid")
      return fits("[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", s);
    if (format == "hostname")
      return is_hostname(s);
    if (format == "email")
      return s.rfind('@') != s.npos && s.rfind('@') > 0 && s.rfind('@') + 1 < s.size();
    if (format == "uri")
      return fits("[A-Za-z][A-Za-z0-9+.-]*:[!#$%&'()*+,\\-./0-9:;=?@A-Z\\[\\]_a-z~]*", s);
    if (format == "uri-reference")
      return fits("[!#$%&'()*+,\\-./0-9:;=?@A-Z\\[\\]_a-z~]*", s);
    if (format == "json-pointer")
      return fits("(/([^/~]|~0|~1)*)*", s);
    if (format == "relative-json-pointer")
      return fits("(0|[1-9][0-9]*)(#|(/([^/~]|~0|~1)*)*)", s);
    return true;
  }

  void register_names(const json_tree& v) {
    if (v.kind == type::object)
      for (const char* keyword : {"$anchor", "$id", "id"})
        if (const json_tree* name = v.get(keyword); name && name->kind == type::string)
          names_.emplace(std::string(*keyword == '$' && keyword[1] == 'a' ? "#" : "") + name->text, &v);
    for (const json_tree& i : v.items)
      register_names(i);
    for (const auto& m : v.members)
      register_names(m.second);
  }

  const json_tree& target(const std::string& reference) const {
    if (const auto named = names_.find(reference); named != names_.end())
      return *named->second;
    const std::size_t hash = reference.find('#');
    const json_tree* at = &root_;
    if (hash > 0) {
      const auto named = names_.find(reference.substr(0, hash));
      if (named == names_.end())
        throw std::invalid_argument("unknown reference " + reference);
      at = named->second;
    }
    std::string pointer = hash == reference.npos ? "" : reference.substr(hash + 1);
    while (!pointer.empty()) {
      const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
      std::string part;
      for (std::size_t i = 1; i < end; ++i) {
        if (pointer[i] == '~')
          part += pointer[++i] == '0' ? '~' : '/';
        else if (pointer[i] == '%') {
          part += static_cast<char>(std::stoi(pointer.substr(i + 1, 2), nullptr, 16));
          i += 2;
        } else
          part += pointer[i];
      }
      pointer.erase(0, end);
      at = at->kind == type::array ? &at->items.at(std::stoul(part)) : at->get(part);
      if (!at)
        throw std::invalid_argument("unknown reference " + reference);
    }
    return *at;
  }

  static bool is_type(const std::string& name, const json_tree& v) {
    switch (v.kind) {
    case type::null:
      return name == "null";
    case type::boolean:
      return name == "boolean";
    case type::number:
      return name == "number" || (name == "integer" && small_decimal(v.text).integral());
    case type::string:
      return name == "string";
    case type::array:
      return name == "array";
    case type::object:
      return name == "object";
    }
    return false;
  }

  bool holds(const json_tree& schema, const json_tree& v, seen& place) const {
    if (schema.kind == type::boolean)
      return schema.truth;
    seen here;
    const bool ok = general(schema, v) && combined(schema, v, here) && numeric(schema, v) && textual(schema, v) &&
                    array(schema, v, here) && object(schema, v, here) && unevaluated(schema, v, here);
    if (ok)
      place.add(here);
    return ok;
  }
  bool holds(const json_tree& schema, const json_tree& v) const {
    seen elsewhere;
    return holds(schema, v, elsewhere);
  }

  bool general(const json_tree& s, const json_tree& v) const {
    if (const json_tree* t = s.get("type")) {
      const bool listed = t->kind == type::array && std::any_of(t->items.begin(), t->items.end(),
                                                                [&](const json_tree& n) { return is_type(n.text, v); });
      if (!listed && !(t->kind == type::string && is_type(t->text, v)))
        return false;
    }
    const json_tree *c = s.get("const"), *e = s.get("enum");
    return (!c || same_tree(*c, v)) &&
           (!e || std::any_of(e->items.begin(), e->items.end(), [&](const json_tree& x) { return same_tree(x, v); }));
  }

  bool combined(const json_tree& s, const json_tree& v, seen& here) const {
    if (const json_tree* r = s.get("$ref"); r && !holds(target(r->text), v, here))
      return false;
    if (const json_tree* all = s.get("allOf"))
      for (const json_tree& x : all->items)
        if (!holds(x, v, here))
          return false;
    const auto count = [&](const json_tree* list) {
      std::size_t n = 0;
      for (const json_tree& x : list->items)
        n += holds(x, v, here);
      return n;
    };
    if (const json_tree* any = s.get("anyOf"); any && count(any) == 0)
      return false;
    if (const json_tree* one = s.get("oneOf"); one && count(one) != 1)
      return false;
    if (const json_tree* n = s.get("not"); n && holds(*n, v))
      return false;
    if (const json_tree* condition = s.get("if")) {
      const json_tree* branch = s.get(holds(*condition, v, here) ? "then" : "else");
      if (branch && !holds(*branch, v, here))
        return false;
    }
    return true;
  }

  bool numeric(const json_tree& s, const json_tree& v) const {
    if (v.kind != type::number)
      return true;
    const small_decimal x(v.text);
    const auto against = [&](const char* keyword, auto&& ok) {
      const json_tree* b = s.get(keyword);
      return !b || b->kind != type::number || ok(x.compare(small_decimal(b->text)));
    };
    const auto flag = [&](const char* keyword) {
      const json_tree* b = s.get(keyword);
      return b && b->kind == type::boolean && b->truth;
    };
    const json_tree* m = s.get("multipleOf");
    return against("minimum", [&](int c) { return c > 0 || (c == 0 && !flag("exclusiveMinimum")); }) &&
           against("maximum", [&](int c) { return c < 0 || (c == 0 && !flag("exclusiveMaximum")); }) &&
           against("exclusiveMinimum", [](int c) { return c > 0; }) &&
           against("exclusiveMaximum", [](int c) { return c < 0; }) && (!m || x.multiple_of(small_decimal(m->text)));
  }

  static std::optional<std::size_t> limit(const json_tree& s, const char* keyword) {
    const json_tree* n = s.get(keyword);
    return n ? std::optional(static_cast<std::size_t>(std::stod(n->text))) : std::nullopt;
  }
  static bool within(const json_tree& s, const char* low, const char* high, std::size_t n) {
    return n >= limit(s, low).value_or(0) && n <= limit(s, high).value_or(SIZE_MAX);
  }

  bool textual(const json_tree& s, const json_tree& v) const {
    if (v.kind != type::string)
      return true;
    const json_tree *p = s.get("pattern"), *f = s.get("format");
    return within(s, "minLength", "maxLength", wide(v.text).size()) && (!p || matches(p->text, v.text)) &&
           (!f || has_format(f->text, v.text));
  }

  bool array(const json_tree& s, const json_tree& v, seen& here) const {
    if (v.kind != type::array)
      return true;
    if (!within(s, "minItems", "maxItems", v.items.size()))
      return false;
    const json_tree *prefix = s.get("prefixItems"), *rest = s.get("items");
    if (rest && rest->kind == type::array) {
      prefix = rest;
      rest = s.get("additionalItems");
    }
    for (std::size_t i = 0; i < v.items.size(); ++i) {
      const json_tree* x = prefix && i < prefix->items.size() ? &prefix->items[i] : rest;
      if (!x)
        continue;
      here.items.insert(i);
      if (!holds(*x, v.items[i]))
        return false;
    }
    if (const json_tree* c = s.get("contains")) {
      std::size_t found = 0;
      for (std::size_t i = 0; i < v.items.size(); ++i)
        if (holds(*c, v.items[i])) {
          ++found;
          here.items.insert(i);
        }
      if (found < limit(s, "minContains").value_or(1) || found > limit(s, "maxContains").value_or(SIZE_MAX))
        return false;
    }
    if (const json_tree* u = s.get("uniqueItems"); u && u->truth)
      for (std::size_t i = 0; i < v.items.size(); ++i)
        for (std::size_t k = 0; k < i; ++k)
          if (same_tree(v.items[i], v.items[k]))
            return false;
    return true;
  }

  bool object(const json_tree& s, const json_tree& v, seen& here) const {
    if (v.kind != type::object)
      return true;
    if (!within(s, "minProperties", "maxProperties", v.members.size()))
      return false;
    const auto all_there = [&](const json_tree& keys) {
      return std::all_of(keys.items.begin(), keys.items.end(), [&](const json_tree& k) { return v.get(k.text); });
    };
    if (const json_tree* r = s.get("required"); r && !all_there(*r))
      return false;
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"})
      if (const json_tree* d = s.get(keyword))
        for (const auto& [key, needs] : d->members)
          if (v.get(key) && !(needs.kind == type::array ? all_there(needs) : holds(needs, v, here)))
            return false;
    const json_tree *declared = s.get("properties"), *patterns = s.get("patternProperties"),
                    *additional = s.get("additionalProperties"), *names = s.get("propertyNames");
    for (const auto& [key, value] : v.members) {
      bool known = false;
      const auto check = [&](const json_tree& x) {
        known = true;
        here.members.insert(key);
        return holds(x, value);
      };
      if (const json_tree* x = declared ? declared->get(key) : nullptr; x && !check(*x))
        return false;
      if (patterns)
        for (const auto& [pattern, x] : patterns->members)
          if (matches(pattern, key) && !check(x))
            return false;
      if (!known && additional && !check(*additional))
        return false;
      json_tree name;
      name.kind = type::string;
      name.text = key;
      if (names && !holds(*names, name))
        return false;
    }
    return true;
  }

  bool unevaluated(const json_tree& s, const json_tree& v, seen& here) const {
    if (const json_tree* u = s.get("unevaluatedItems"); u && v.kind == type::array)
      for (std::size_t i = 0; i < v.items.size(); ++i)
        if (here.items.insert(i).second && !holds(*u, v.items[i]))
          return false;
    if (const json_tree* u = s.get("unevaluatedProperties"); u && v.kind == type::object) {
      const std::set<std::string> before = here.members;
      for (const auto& [key, value] : v.members) {
        here.members.insert(key);
        if (!before.contains(key) && !holds(*u, value))
          return false;
      }
    }
    return true;
  }

  json_tree root_;
  std::map<std::string, const json_tree*> names_;
};

} // namespace troupe::testing
