#include "runtime/grammar/json_value.hpp"

#include "runtime/grammar/compile_budget.hpp"
#include "runtime/tokenizer/utf8.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

namespace troupe {

namespace {
constexpr std::size_t many_members = 12;
}

class json_reader {
public:
  json_reader(std::string_view text, json_limits limits) : text_(text), limits_(limits) {}

  result<json_value> document() {
    try {
      if (text_.size() > limits_.bytes)
        throw error{"so_too_complex", "the text has more than " + std::to_string(limits_.bytes) + " bytes"};
      blanks();
      json_value v = value(0);
      blanks();
      if (at_ < text_.size())
        fail("text after the end of the value");
      return v;
    } catch (error& e) {
      return std::move(e);
    }
  }

private:
  [[noreturn]] void fail(const std::string& why, const char* code = "so_syntax") const {
    std::size_t line = 1, column = 1;
    for (const char c : text_.substr(0, at_)) {
      column = c == '\n' ? 1 : column + ((c & 0xC0) != 0x80); // characters, not bytes
      line += c == '\n';
    }
    throw error{code, "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + why};
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word))
      return false;
    at_ += word.size();
    return true;
  }

  json_value value(std::size_t depth) {
    charge_work(1);
    if (depth > limits_.depth)
      fail("nested more than " + std::to_string(limits_.depth) + " deep", "so_too_complex");
    json_value v;
    const char c = peek();
    if (c == '{') {
      object(v, depth);
    } else if (c == '[') {
      array(v, depth);
    } else if (c == '"') {
      v.what = json_value::kind::string;
      v.text = string();
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      number(v);
    } else if (take("true")) {
      v.what = json_value::kind::boolean;
      v.truth = true;
    } else if (take("false")) {
      v.what = json_value::kind::boolean;
    } else if (!take("null")) {
      fail(at_ < text_.size() ? "no JSON value starts like this" : "the text ends where a value is expected");
    }
    return v;
  }

  void object(json_value& v, std::size_t depth) {
    v.what = json_value::kind::object;
    ++at_;
    blanks();
    std::unordered_map<std::string, std::size_t> seen;
    if (!take("}"))
      do {
        blanks();
        if (peek() != '"')
          fail("a key in quotes is expected");
        std::string key = string();
        blanks();
        if (!take(":"))
          fail("`:` is expected");
        blanks();
        charge_memory(3 * sizeof(json_value::member) + 64); // and in the table of the keys seen
        json_value member = value(depth + 1);
        const auto [it, fresh] = seen.try_emplace(key, v.members.size());
        if (fresh)
          v.members.emplace_back(std::move(key), std::move(member));
        else
          v.members[it->second].second = std::move(member);
        blanks();
      } while (take(",") || (!take("}") && (fail("`,` or `}` is expected"), false)));
    if (v.members.size() > many_members) {
      v.by_key_.resize(v.members.size());
      std::iota(v.by_key_.begin(), v.by_key_.end(), 0u);
      std::sort(v.by_key_.begin(), v.by_key_.end(),
                [&](std::uint32_t a, std::uint32_t b) { return v.members[a].first < v.members[b].first; });
    }
  }

  void array(json_value& v, std::size_t depth) {
    v.what = json_value::kind::array;
    ++at_;
    blanks();
    if (!take("]"))
      do {
        blanks();
        charge_memory(3 * sizeof(json_value)); // while the list grows, too
        v.items.push_back(value(depth + 1));
        blanks();
      } while (take(",") || (!take("]") && (fail("`,` or `]` is expected"), false)));
  }

  void number(json_value& v) {
    const std::size_t start = at_;
    const auto digits = [&] {
      if (peek() < '0' || peek() > '9')
        fail("a digit is expected");
      while (peek() >= '0' && peek() <= '9')
        ++at_;
    };
    take("-");
    if (!take("0"))
      digits();
    else if (peek() >= '0' && peek() <= '9')
      fail("a number with a leading zero");
    if (take("."))
      digits();
    if (take("e") || take("E")) {
      if (!take("-"))
        take("+");
      digits();
    }
    v.what = json_value::kind::number;
    v.text = text_.substr(start, at_ - start);
    v.number = exact_decimal::of(v.text);
    if (std::abs(v.number.exponent) > max_exponent)
      throw error{"so_too_complex",
                  "the number " + v.text.substr(0, 40) + " has an exponent beyond " + std::to_string(max_exponent)};
  }

  unsigned hex4() {
    unsigned x = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek(), letter = static_cast<char>(c | 32);
      if (c >= '0' && c <= '9')
        x = x << 4 | static_cast<unsigned>(c - '0');
      else if (letter >= 'a' && letter <= 'f')
        x = x << 4 | static_cast<unsigned>(letter - 'a' + 10);
      else
        fail("\\u needs four hexadecimal digits");
    }
    return x;
  }

  void escape(std::string& out) {
    static constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    ++at_;
    if (take("u")) {
      std::uint32_t c = hex4();
      if (c >= 0xD800 && c <= 0xDFFF) {
        const std::uint32_t low = c < 0xDC00 && take("\\u") ? hex4() : 0;
        if (low < 0xDC00 || low > 0xDFFF)
          fail("half of a surrogate pair");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      }
      append_utf8(out, c);
      return;
    }
    const std::size_t i = at_ < text_.size() ? names.find(text_[at_]) : std::string_view::npos;
    if (i == std::string_view::npos)
      fail("an unknown escape");
    ++at_;
    out += values[i];
  }

  std::string string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ >= text_.size())
        fail("a string that does not end");
      const char c = text_[at_];
      if (c == '"')
        break;
      if (static_cast<unsigned char>(c) < 0x20)
        fail("a control character inside a string");
      if (c == '\\') {
        escape(out);
      } else {
        const utf8_sequence s = read_utf8(text_.substr(at_));
        if (s.state != utf8_sequence::kind::valid)
          fail("invalid UTF-8");
        out.append(text_, at_, s.length);
        at_ += s.length;
      }
    }
    ++at_;
    return out;
  }

  std::string_view text_;
  json_limits limits_;
  std::size_t at_ = 0;
};

const json_value* json_value::find(std::string_view key) const {
  if (by_key_.empty()) {
    for (const member& m : members)
      if (m.first == key)
        return &m.second;
    return nullptr;
  }
  const auto it = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                   [&](std::uint32_t i, std::string_view k) { return members[i].first < k; });
  return it != by_key_.end() && members[*it].first == key ? &members[*it].second : nullptr;
}

bool same_value(const json_value& a, const json_value& b) {
  charge_work(1 + a.text.size() / 256);
  if (a.what != b.what)
    return false;
  switch (a.what) {
  case json_value::kind::null:
    return true;
  case json_value::kind::boolean:
    return a.truth == b.truth;
  case json_value::kind::number:
    return a.number == b.number;
  case json_value::kind::string:
    return a.text == b.text;
  case json_value::kind::array:
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value);
  case json_value::kind::object:
    return a.members.size() == b.members.size() &&
           std::all_of(a.members.begin(), a.members.end(), [&](const json_value::member& m) {
             const json_value* other = b.find(m.first);
             return other && same_value(m.second, *other);
           });
  }
  return false;
}

namespace {

void add_key(const json_value& v, std::string& out) { // equal for equal values only
  charge_work(1 + (v.text.size() + v.number.digits.size()) / 256);
  const auto add_text = [&](std::string_view text) { out += std::to_string(text.size()) + ':' + std::string(text); };
  switch (v.what) {
  case json_value::kind::null:
    out += 'n';
    break;
  case json_value::kind::boolean:
    out += v.truth ? 't' : 'f';
    break;
  case json_value::kind::number:
    out += (v.number.negative ? "-" : "+") + v.number.digits + "e" + std::to_string(v.number.exponent);
    break;
  case json_value::kind::string:
    out += 's';
    add_text(v.text);
    break;
  case json_value::kind::array:
    out += '[';
    for (const json_value& item : v.items) {
      add_key(item, out);
      out += ',';
    }
    out += ']';
    break;
  case json_value::kind::object: {
    std::vector<const json_value::member*> sorted;
    for (const json_value::member& m : v.members)
      sorted.push_back(&m);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    out += '{';
    for (const json_value::member* m : sorted) {
      add_text(m->first);
      add_key(m->second, out);
      out += ',';
    }
    out += '}';
    break;
  }
  }
}

std::string key_of(const json_value& v) {
  std::string key;
  add_key(v, key);
  return key;
}

} // namespace

json_value_set::json_value_set(const std::vector<json_value>& values) : values_(values.size()) {
  for (const json_value& v : values) {
    std::string key = key_of(v);
    charge_memory(sizeof(key) + key.capacity() + 32);
    keys_.insert(std::move(key));
  }
}

bool json_value_set::contains(const json_value& value) const {
  return keys_.contains(key_of(value));
}

result<json_value> parse_json(std::string_view text, json_limits limits) {
  return json_reader(text, limits).document();
}

std::string quoted_json(std::string_view utf8) {
  static constexpr std::string_view names = "bfnrt", values = "\b\f\n\r\t", hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : utf8) {
    if (const std::size_t i = values.find(c); i != std::string_view::npos) {
      out += '\\';
      out += names[i];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += hex[static_cast<unsigned char>(c) >> 4];
      out += hex[c & 15];
    } else {
      if (c == '"' || c == '\\')
        out += '\\';
      out += c;
    }
  }
  return out + '"';
}

std::string pointer_part(std::string_view key) {
  std::string out = "/";
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

} // namespace troupe
