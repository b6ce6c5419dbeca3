#include "runtime/grammar/grammar_builder.hpp"
#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t most_size = std::size_t{1} << 40;

std::size_t saturating_product(std::size_t a, std::uint64_t b) {
  return a != 0 && b > most_size / a ? most_size : a * static_cast<std::size_t>(b);
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  if (a == 0 || b == 0)
    return 0;
  return a == unbounded || b == unbounded || a > unbounded / b ? unbounded : a * b;
}

// One run of code points whose UTF-8 forms are a product of byte ranges.
struct utf8_run {
  unsigned char low[4], high[4];
  int length;
};

int utf8_encode(char32_t c, unsigned char* out) {
  if (c < 0x80) {
    out[0] = static_cast<unsigned char>(c);
    return 1;
  }
  const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static constexpr unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = length - 1; i > 0; --i, c >>= 6)
    out[i] = static_cast<unsigned char>(0x80 | (c & 0x3F));
  out[0] = static_cast<unsigned char>(lead[length] | c);
  return length;
}

void add_utf8_runs(char32_t low, char32_t high, std::vector<utf8_run>& out) {
  static constexpr char32_t ends[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  for (const char32_t end : ends)
    if (low <= end && high > end) {
      add_utf8_runs(low, end, out);
      add_utf8_runs(end + 1, high, out);
      return;
    }
  // Where the last i bytes do not run over their whole range, the range is cut at the nearest multiple.
  for (int i = 1; i < 4; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if (low < 0x80 || (low & ~mask) == (high & ~mask))
      continue;
    if ((low & mask) != 0) {
      add_utf8_runs(low, low | mask, out);
      add_utf8_runs((low | mask) + 1, high, out);
      return;
    }
    if ((high & mask) != mask) {
      add_utf8_runs(low, (high & ~mask) - 1, out);
      add_utf8_runs(high & ~mask, high, out);
      return;
    }
  }
  utf8_run run{};
  run.length = utf8_encode(low, run.low);
  utf8_encode(high, run.high);
  out.push_back(run);
}

} // namespace

grammar_builder::grammar_builder(compile_budget& budget) : budget_(budget) {
  node n{};
  n.finite = true;
  n.what = kind::empty;
  nodes_.push_back(n);
  n.what = kind::never;
  nodes_.push_back(n);
}

grammar_expr grammar_builder::add(node n) {
  budget_.work();
  budget_.memory(2 * sizeof(node)); // room to grow included, as below
  nodes_.push_back(n);
  return {static_cast<std::uint32_t>(nodes_.size() - 1)};
}

grammar_expr grammar_builder::list(kind what, const std::vector<grammar_expr>& parts) {
  node n{};
  n.what = what;
  n.first = static_cast<std::uint32_t>(children_.size());
  n.count = static_cast<std::uint32_t>(parts.size());
  n.finite = true;
  for (const grammar_expr p : parts) {
    n.size = std::min(most_size, n.size + nodes_[p.index].size + 1);
    n.finite = n.finite && nodes_[p.index].finite;
  }
  budget_.memory(2 * parts.size() * sizeof(grammar_expr));
  children_.insert(children_.end(), parts.begin(), parts.end());
  return add(n);
}

grammar_expr grammar_builder::bytes(const byte_set& one_of) {
  if (one_of.none())
    return never();
  node n{};
  n.what = kind::bytes;
  n.first = static_cast<std::uint32_t>(sets_.size());
  n.size = 1;
  n.finite = true;
  budget_.memory(2 * sizeof(byte_set));
  sets_.push_back(one_of);
  return add(n);
}

grammar_expr grammar_builder::byte_range(unsigned low, unsigned high) {
  byte_set set;
  for (unsigned b = low; b <= high; ++b)
    set.set(b);
  return bytes(set);
}

grammar_expr grammar_builder::literal(std::string_view text) {
  std::vector<grammar_expr> parts;
  parts.reserve(text.size());
  for (const char c : text)
    parts.push_back(byte_range(static_cast<unsigned char>(c), static_cast<unsigned char>(c)));
  return sequence(parts);
}

grammar_expr grammar_builder::sequence(std::span<const grammar_expr> parts) {
  std::vector<grammar_expr> kept;
  for (const grammar_expr p : parts) {
    if (p == never())
      return never();
    if (p != empty())
      kept.push_back(p);
  }
  if (kept.empty())
    return empty();
  return kept.size() == 1 ? kept.front() : list(kind::sequence, kept);
}

grammar_expr grammar_builder::alternatives(std::span<const grammar_expr> parts) {
  std::vector<grammar_expr> kept;
  for (const grammar_expr p : parts)
    if (p != never())
      kept.push_back(p);
  if (kept.empty())
    return never();
  return kept.size() == 1 ? kept.front() : list(kind::alternatives, kept);
}

grammar_expr grammar_builder::repeat(grammar_expr part, std::uint64_t min, std::uint64_t max) {
  if (min > max)
    return never();
  if (max == 0 || part == empty())
    return empty();
  if (part == never())
    return min == 0 ? empty() : never();
  if (min == 1 && max == 1)
    return part;
  const node inner = nodes_[part.index];
  // (x{a,b}){min,max} is x{a*min,b*max} where the counts of k and k+1 rounds leave no gap for any k >= min. The gap is
  // widest at the smallest k; k = 0 is its own case, since after zero rounds the count is 0 and not up to b.
  if (inner.what == kind::repeat) {
    const bool joined = times(std::max<std::uint64_t>(min, 1), inner.max) >=
                        times(std::max<std::uint64_t>(min, 1) + 1, inner.min) - (inner.min == 0 ? 0 : 1);
    const bool single_round = max == 1 || min == max;
    const bool from_zero = min > 0 || inner.min <= 1;
    if ((joined || single_round) && from_zero)
      return repeat({inner.first}, times(inner.min, min), times(inner.max, max));
  }
  node n{};
  n.what = kind::repeat;
  n.first = part.index;
  n.count = 1;
  n.min = min;
  n.max = max;
  n.finite = inner.finite && max != unbounded;
  n.size = saturating_product(inner.size + 1, max == unbounded ? std::max<std::uint64_t>(min, 1) : max);
  return add(n);
}

grammar_rule grammar_builder::declare(std::string name) {
  budget_.work();
  budget_.memory(sizeof(rule) + name.size());
  rules_.push_back({std::move(name), {}, false});
  return {static_cast<std::uint32_t>(rules_.size() - 1)};
}

void grammar_builder::define(grammar_rule r, grammar_expr body) {
  rules_[r.index].body = body;
  rules_[r.index].defined = true;
}

grammar_rule grammar_builder::define(std::string name, grammar_expr body) {
  const grammar_rule r = declare(std::move(name));
  define(r, body);
  return r;
}

grammar_expr grammar_builder::call(grammar_rule r) {
  node n{};
  n.what = kind::call;
  n.first = r.index;
  n.size = 1;
  return add(n);
}

grammar_expr grammar_builder::graph(const grammar_graph& g) {
  node n{};
  n.what = kind::graph;
  n.first = static_cast<std::uint32_t>(graphs_.size());
  n.size = g.states;
  for (const grammar_graph::edge& e : g.edges)
    n.size = std::min(most_size, n.size + nodes_[e.reads.index].size);
  n.size = std::min(most_size, n.size + g.marked.size());
  budget_.memory(g.edges.size() * sizeof(grammar_graph::edge) + g.accepting.size() * 4 +
                 g.marked.size() * sizeof(grammar_graph::marked_edge));
  budget_.work(g.edges.size() + g.marked.size());
  graphs_.push_back(g);
  return add(n);
}

grammar_expr grammar_builder::distinct(std::vector<grammar_rule> values, grammar_rule separator, distinct_list which) {
  node n{};
  n.what = kind::distinct;
  n.first = static_cast<std::uint32_t>(distincts_.size());
  n.size = 2;
  budget_.memory(values.size() * sizeof(grammar_rule) + which.allowed.size() * sizeof(std::uint64_t));
  distincts_.push_back({std::move(values), separator, std::move(which)});
  return add(n);
}

grammar_expr grammar_builder::tokens(std::vector<std::int32_t> ids, bool except) {
  node n{};
  n.what = kind::tokens;
  n.except = except;
  n.first = static_cast<std::uint32_t>(token_lists_.size());
  n.size = 1;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  budget_.memory(ids.size() * sizeof(std::int32_t));
  token_lists_.push_back(std::move(ids));
  return add(n);
}

grammar_expr grammar_builder::utf8_chars(const char_set& one_of) {
  byte_set single;
  std::vector<grammar_expr> parts;
  std::vector<utf8_run> runs;
  for (const char_range& r : one_of.ranges())
    add_utf8_runs(r.low, r.high, runs);
  for (const utf8_run& run : runs) {
    if (run.length == 1) {
      for (unsigned b = run.low[0]; b <= run.high[0]; ++b)
        single.set(b);
      continue;
    }
    std::vector<grammar_expr> bytes_of_run;
    for (int i = 0; i < run.length; ++i)
      bytes_of_run.push_back(byte_range(run.low[i], run.high[i]));
    parts.push_back(sequence(bytes_of_run));
  }
  parts.push_back(bytes(single));
  return alternatives(parts);
}

// Numbers low..high, written with `digits` hexadecimal digits of either case.
grammar_expr grammar_builder::hex_range(unsigned low, unsigned high, int digits) {
  const auto digit = [&](unsigned from, unsigned to) {
    byte_set set;
    for (unsigned d = from; d <= to; ++d) {
      set.set(static_cast<unsigned char>("0123456789abcdef"[d]));
      set.set(static_cast<unsigned char>("0123456789ABCDEF"[d]));
    }
    return bytes(set);
  };
  if (digits == 1)
    return digit(low, high);
  const int shift = 4 * (digits - 1);
  const unsigned rest = (1u << shift) - 1, first = low >> shift, last = high >> shift;
  const auto from_to = [&](unsigned a, unsigned b, unsigned rest_low, unsigned rest_high) {
    return sequence({digit(a, b), hex_range(rest_low, rest_high, digits - 1)});
  };
  if (first == last)
    return from_to(first, last, low & rest, high & rest);
  std::vector<grammar_expr> parts;
  unsigned a = first, b = last;
  if ((low & rest) != 0)
    parts.push_back(from_to(a, a, low & rest, rest)), ++a;
  if ((high & rest) != rest)
    parts.push_back(from_to(b, b, 0, high & rest)), --b;
  if (a <= b)
    parts.push_back(from_to(a, b, 0, rest));
  return alternatives(parts);
}

grammar_expr grammar_builder::json_chars(const char_set& one_of) {
  static const char_set bare({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}});
  std::vector<grammar_expr> parts, escapes;
  char_set literal_ones;
  byte_set letters;
  for (const char_range& r : one_of.ranges()) {
    for (const char_range& b : bare.ranges())
      if (std::max(r.low, b.low) <= std::min(r.high, b.high))
        literal_ones.add(std::max(r.low, b.low), std::min(r.high, b.high));
    for (const auto& [c, letter] : {std::pair<char32_t, char>{'"', '"'},
                                    {'\\', '\\'},
                                    {'/', '/'},
                                    {'\b', 'b'},
                                    {'\f', 'f'},
                                    {'\n', 'n'},
                                    {'\r', 'r'},
                                    {'\t', 't'}})
      if (r.low <= c && c <= r.high)
        letters.set(static_cast<unsigned char>(letter));
    if (r.low <= 0xFFFF)
      escapes.push_back(sequence({literal("u"), hex_range(r.low, std::min<char32_t>(r.high, 0xFFFF), 4)}));
    if (r.high >= 0x10000) {
      const unsigned low = std::max<char32_t>(r.low, 0x10000) - 0x10000, high = r.high - 0x10000;
      const auto pairs = [&](unsigned h1, unsigned h2, unsigned l1, unsigned l2) {
        escapes.push_back(sequence({literal("u"), hex_range(0xD800 + h1, 0xD800 + h2, 4), literal("\\u"),
                                    hex_range(0xDC00 + l1, 0xDC00 + l2, 4)}));
      };
      unsigned h1 = low >> 10, h2 = high >> 10;
      if (h1 == h2) {
        pairs(h1, h2, low & 0x3FF, high & 0x3FF);
      } else {
        if ((low & 0x3FF) != 0)
          pairs(h1, h1, low & 0x3FF, 0x3FF), ++h1;
        if ((high & 0x3FF) != 0x3FF)
          pairs(h2, h2, 0, high & 0x3FF), --h2;
        if (h1 <= h2)
          pairs(h1, h2, 0, 0x3FF);
      }
    }
  }
  escapes.push_back(bytes(letters));
  parts.push_back(utf8_chars(literal_ones));
  parts.push_back(sequence({literal("\\"), alternatives(escapes)}));
  return alternatives(parts);
}

grammar_expr grammar_builder::chars(const char_set& one_of, text_form form) {
  if (one_of.empty())
    return never();
  set_key key{form, {}};
  budget_.work(1 + one_of.ranges().size() / 4);
  for (const char_range& r : one_of.ranges())
    key.second.emplace_back(r.low, r.high);
  if (const auto found = chars_.find(key); found != chars_.end())
    return found->second;
  const grammar_expr made =
      form == text_form::utf8 ? utf8_chars(one_of) : call(define("character", json_chars(one_of)));
  budget_.memory(sizeof(set_key) + key.second.size() * 8);
  chars_.emplace(std::move(key), made);
  return made;
}

grammar_expr grammar_builder::text(std::u32string_view text, text_form form) {
  std::vector<grammar_expr> parts;
  for (const char32_t c : text)
    parts.push_back(chars(char_set({{c, c}}), form));
  return sequence(parts);
}

static std::map<std::uint32_t, char_set> chars_by_target(const char_dfa& language, std::uint32_t state) {
  std::map<std::uint32_t, char_set> out;
  for (const char_dfa::edge& e : language.edges(state))
    out[e.target].add(e.low, e.high);
  return out;
}

grammar_expr grammar_builder::regular(const char_dfa& language, text_form form) {
  if (language.empty())
    return never();
  grammar_graph g;
  g.states = static_cast<std::uint32_t>(language.size());
  for (std::uint32_t s = 0; s < g.states; ++s) {
    if (language.accepts(s))
      g.accepting.push_back(s);
    for (const auto& [target, set] : chars_by_target(language, s))
      g.add_edge(s, target, chars(set, form));
  }
  return graph(g);
}

grammar_expr grammar_builder::json_char() {
  return chars(char_set::all(), text_form::json_string);
}

grammar_expr grammar_builder::json_string(std::uint64_t min_length, std::uint64_t max_length) {
  return sequence({literal("\""), repeat(json_char(), min_length, max_length), literal("\"")});
}

// The characters of a JSON string in an automaton that counts them: states stand for themselves whatever the count is.
// Where only a longer word could follow, the count allows no reading.
grammar_expr grammar_builder::counted(const char_dfa& language, std::uint64_t max_length) {
  const std::vector<std::uint64_t> rest = language.distances();
  grammar_graph g;
  g.states = static_cast<std::uint32_t>(language.size());
  for (std::uint32_t s = 0; s < g.states; ++s) {
    if (language.accepts(s))
      g.accepting.push_back(s);
    for (const auto& [target, set] : chars_by_target(language, s)) {
      if (rest[target] >= max_length)
        continue;
      const grammar_rule character{at(chars(set, text_form::json_string)).first};
      g.add_marked(s, target, character, {.counts = true, .room = max_length - rest[target]});
    }
  }
  return graph(g);
}

grammar_expr grammar_builder::json_string(const char_dfa& decoded, std::optional<std::uint64_t> max_length) {
  if (decoded.is_everything())
    return json_string(0, max_length.value_or(unbounded));
  if (decoded.empty() || (max_length && decoded.min_length() > *max_length))
    return never();
  const std::size_t hash = decoded.hash();
  const auto [first, last] = strings_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (it->second.max_length == max_length && it->second.decoded == decoded)
      return call(it->second.rule);
  const grammar_expr inside = max_length ? counted(decoded, *max_length) : regular(decoded, text_form::json_string);
  const grammar_rule r = define("string", sequence({literal("\""), inside, literal("\"")}));
  rules_[r.index].text = true;
  budget_.memory(decoded.bytes());
  strings_.emplace(hash, string_rule{decoded, max_length, r});
  return call(r);
}

} // namespace troupe
