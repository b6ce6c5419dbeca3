#include "runtime/grammar/char_automaton.hpp"

#include "runtime/tokenizer/utf8.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>

namespace troupe {
namespace {

constexpr char32_t last_char = 0x10FFFF, first_surrogate = 0xD800, last_surrogate = 0xDFFF;
constexpr std::uint32_t none = UINT32_MAX;

[[noreturn]] void too_large() {
  throw automaton_too_large("needs more than " + std::to_string(most_rule_states()) + " automaton states");
}

constexpr std::size_t nodes_of_unit = 16; // nodes, edges or characters that are looked at for a unit of work
void charge_nodes(std::size_t count) {
  charge_work(1 + count / nodes_of_unit);
}

struct vector_hash {
  std::size_t operator()(const std::vector<std::uint32_t>& v) const {
    std::uint64_t h = v.size();
    for (const std::uint32_t x : v)
      h = (h ^ x) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
  }
};

// Numbers distinct states of a construction in the order in which they are first seen.
template <class Key, class Hash> class state_numbers {
public:
  std::uint32_t of(const Key& key) {
    const auto [it, fresh] = number_.try_emplace(key, static_cast<std::uint32_t>(order_.size()));
    if (fresh) {
      if (order_.size() == most_rule_states())
        too_large();
      held_.add(sizeof(Key) + 64 + bytes_of(key));
      order_.push_back(&it->first);
    }
    return it->second;
  }
  std::size_t size() const { return order_.size(); }
  const Key& operator[](std::size_t i) const { return *order_[i]; }

private:
  static std::size_t bytes_of(const Key& key) {
    if constexpr (requires { key.size(); })
      return key.size() * sizeof(key[0]);
    return 0;
  }
  std::unordered_map<Key, std::uint32_t, Hash> number_;
  std::vector<const Key*> order_; // nodes of the map stay where they are
  charged_memory held_;
};

} // namespace

char_set::char_set(std::initializer_list<char_range> ranges) {
  for (const char_range& r : ranges)
    add(r.low, r.high);
}

char_set::char_set(std::vector<char_range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (const char_range& r : ranges)
    add(r.low, r.high);
}

char_set char_set::all() {
  return {{0, last_char}};
}

void char_set::add(char32_t low, char32_t high) {
  if (low < first_surrogate && high >= first_surrogate) {
    add(low, first_surrogate - 1);
    low = first_surrogate;
  }
  if (low >= first_surrogate && low <= last_surrogate)
    low = last_surrogate + 1;
  if (high >= first_surrogate && high <= last_surrogate)
    high = first_surrogate - 1;
  if (low > high)
    return;
  // Ranges that overlap or touch [low, high] melt into it; those on both sides of the surrogates stay apart.
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), low,
                                      [](const char_range& r, char32_t c) { return r.high + 1 < c; });
  auto last = first;
  while (last != ranges_.end() && last->low <= high + 1) {
    low = std::min(low, last->low);
    high = std::max(high, last->high);
    ++last;
  }
  ranges_.insert(ranges_.erase(first, last), {low, high});
}

void char_set::add(const char_set& other) {
  for (const char_range& r : other.ranges_)
    add(r.low, r.high);
}

char_set char_set::complement() const {
  char_set out;
  char32_t next = 0;
  for (const char_range& r : ranges_) {
    if (r.low > next)
      out.add(next, r.low - 1);
    next = r.high + 1;
  }
  if (next <= last_char)
    out.add(next, last_char);
  return out;
}

void char_set::fold_ascii_case() {
  const std::vector<char_range> before = ranges_;
  for (const char_range& r : before) {
    const auto other_case = [&](char32_t first, char32_t last, std::int32_t shift) {
      const char32_t low = std::max(r.low, first), high = std::min(r.high, last);
      if (low <= high)
        add(low + shift, high + shift);
    };
    other_case(U'a', U'z', -32);
    other_case(U'A', U'Z', 32);
  }
}

std::uint32_t char_nfa::add_node() {
  if (nodes_.size() == 10 * most_rule_states())
    too_large();
  held_.add(2 * sizeof(node));
  nodes_.emplace_back();
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

void char_nfa::add_edge(std::uint32_t from, const char_set& chars, std::uint32_t to) {
  if (chars.empty())
    return;
  charge_nodes(chars.ranges().size());
  held_.add(2 * sizeof(char_edge));
  if (sets_.empty() || sets_.back() != chars) {
    held_.add(2 * sizeof(char_set) + chars.ranges().size() * sizeof(char_range));
    sets_.push_back(chars);
  }
  nodes_[from].chars.push_back({static_cast<std::uint32_t>(sets_.size() - 1), to});
}

void char_nfa::add_empty_edge(std::uint32_t from, std::uint32_t to, gate when) {
  charge_work(1);
  held_.add(2 * sizeof(empty_edge));
  nodes_[from].empties.push_back({when, to});
}

void char_dfa::begin_state(bool accepting) {
  if (accepts_.size() == most_rule_states())
    too_large();
  accepts_.push_back(accepting);
  first_.push_back(static_cast<std::uint32_t>(edges_.size()));
}

void char_dfa::add_edge(char32_t low, char32_t high, std::uint32_t target) {
  if (first_.back() > first_[first_.size() - 2]) {
    edge& before = edges_.back();
    const bool touches = before.high + 1 == low || (before.high == first_surrogate - 1 && low == last_surrogate + 1);
    if (before.target == target && touches) {
      before.high = high;
      return;
    }
  }
  if (edges_.size() == max_automaton_edges)
    throw automaton_too_large("needs more than " + std::to_string(max_automaton_edges) + " automaton edges");
  edges_.push_back({low, high, target});
  first_.back() = static_cast<std::uint32_t>(edges_.size());
}

void char_dfa::trim() {
  const std::size_t n = size();
  charge_nodes(n + edges_.size());
  std::vector<std::vector<std::uint32_t>> sources(n);
  for (std::uint32_t s = 0; s < n; ++s)
    for (const edge& e : edges(s))
      sources[e.target].push_back(s);
  std::vector<std::uint8_t> alive(n);
  std::vector<std::uint32_t> open;
  for (std::uint32_t s = 0; s < n; ++s)
    if (accepts_[s]) {
      alive[s] = true;
      open.push_back(s);
    }
  while (!open.empty()) {
    const std::uint32_t s = open.back();
    open.pop_back();
    for (const std::uint32_t from : sources[s])
      if (!alive[from]) {
        alive[from] = true;
        open.push_back(from);
      }
  }
  // Numbers in order of first visit from the start, so that equal automata are equal values.
  char_dfa out;
  if (n > 0 && alive[0]) {
    std::vector<std::uint32_t> number(n, none), order{0};
    number[0] = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      out.begin_state(accepts_[order[i]]);
      for (const edge& e : edges(order[i])) {
        if (!alive[e.target])
          continue;
        if (number[e.target] == none) {
          number[e.target] = static_cast<std::uint32_t>(order.size());
          order.push_back(e.target);
        }
        out.add_edge(e.low, e.high, number[e.target]);
      }
    }
  }
  *this = std::move(out);
}

// Hopcroft's partition refinement: states are equal unless characters can tell them apart. Missing edges lead to one
// more state, which is dead.
void char_dfa::merge_equal() {
  constexpr std::size_t most_cells = 2'000'000; // of the table of transitions; beyond, states stay as they are
  std::vector<char32_t> cuts{0, last_char + 1};
  for (const edge& e : edges_) {
    cuts.push_back(e.low);
    cuts.push_back(e.high + 1);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const std::size_t n = size() + 1, classes = cuts.size() - 1;
  if (n < 3 || n * classes > most_cells)
    return;
  charge_nodes(n * classes);

  // sources[first_source[c * n + s] ...]: states from which a character of class c leads to s.
  std::vector<std::uint32_t> target(n * classes, static_cast<std::uint32_t>(n - 1));
  for (std::uint32_t s = 0; s < size(); ++s)
    for (const edge& e : edges(s))
      for (auto c = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), e.low) - cuts.begin());
           cuts[c] <= e.high; ++c)
        target[c * n + s] = e.target;
  std::vector<std::uint32_t> first_source(n * classes + 1), sources(n * classes);
  for (std::size_t i = 0; i < n * classes; ++i)
    ++first_source[i / n * n + target[i] + 1];
  for (std::size_t i = 0; i < n * classes; ++i)
    first_source[i + 1] += first_source[i];
  std::vector<std::uint32_t> fill(first_source.begin(), first_source.end() - 1);
  for (std::size_t i = 0; i < n * classes; ++i)
    sources[fill[i / n * n + target[i]]++] = static_cast<std::uint32_t>(i % n);

  // Groups are ranges of `order`; the marked members of a group are at its front.
  struct group {
    std::uint32_t begin, end, marked = 0;
    bool open = false;
  };
  std::vector<std::uint32_t> order, place(n), group_of(n);
  std::vector<group> groups;
  for (const bool accepting : {true, false}) {
    const auto begin = static_cast<std::uint32_t>(order.size());
    for (std::uint32_t s = 0; s < n; ++s)
      if ((s < size() && accepts_[s]) == accepting) {
        place[s] = static_cast<std::uint32_t>(order.size());
        group_of[s] = static_cast<std::uint32_t>(groups.size());
        order.push_back(s);
      }
    groups.push_back({begin, static_cast<std::uint32_t>(order.size())});
  }
  const auto smaller = [&](std::uint32_t a, std::uint32_t b) {
    return groups[a].end - groups[a].begin <= groups[b].end - groups[b].begin ? a : b;
  };
  std::vector<std::uint32_t> open{smaller(0, 1)}, touched, splitter;
  groups[open[0]].open = true;
  while (!open.empty()) {
    group& by = groups[open.back()];
    open.pop_back();
    by.open = false;
    charge_nodes(classes * (1 + (by.end - by.begin)));
    splitter.assign(order.begin() + by.begin, order.begin() + by.end);
    for (std::size_t c = 0; c < classes; ++c) {
      touched.clear();
      for (const std::uint32_t t : splitter)
        for (std::uint32_t i = first_source[c * n + t]; i < first_source[c * n + t + 1]; ++i) {
          const std::uint32_t s = sources[i];
          group& g = groups[group_of[s]];
          if (g.marked == 0)
            touched.push_back(group_of[s]);
          const std::uint32_t front = g.begin + g.marked++, other = order[front];
          std::swap(order[front], order[place[s]]);
          place[other] = place[s];
          place[s] = front;
        }
      for (const std::uint32_t g : touched) {
        const std::uint32_t middle = groups[g].begin + groups[g].marked;
        groups[g].marked = 0;
        if (middle == groups[g].end)
          continue;
        const auto fresh = static_cast<std::uint32_t>(groups.size());
        groups.push_back({groups[g].begin, middle});
        groups[g].begin = middle;
        for (std::uint32_t i = groups[fresh].begin; i < middle; ++i)
          group_of[order[i]] = fresh;
        const std::uint32_t next = groups[g].open ? fresh : smaller(g, fresh);
        groups[next].open = true;
        open.push_back(next);
      }
    }
  }

  if (groups.size() == n)
    return;
  char_dfa out;
  const std::uint32_t dead = group_of[n - 1];
  std::vector<std::uint32_t> number(groups.size(), none), found{0};
  number[group_of[0]] = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    out.begin_state(accepts_[found[i]]);
    for (const edge& e : edges(found[i])) {
      const std::uint32_t g = group_of[e.target];
      if (g == dead)
        continue;
      if (number[g] == none) {
        number[g] = static_cast<std::uint32_t>(found.size());
        found.push_back(e.target);
      }
      out.add_edge(e.low, e.high, number[g]);
    }
  }
  *this = std::move(out);
}

void char_dfa::finish() {
  trim();
  merge_equal();
}

char_dfa char_dfa::of_states(std::span<const raw_state> states) {
  char_dfa out;
  for (const raw_state& s : states) {
    out.begin_state(s.accepting);
    for (const edge& e : s.edges)
      out.add_edge(e.low, e.high, e.target);
  }
  out.finish();
  return out;
}

char_dfa char_dfa::everything() {
  char_dfa out;
  out.begin_state(true);
  out.add_edge(0, first_surrogate - 1, 0);
  out.add_edge(last_surrogate + 1, last_char, 0);
  return out;
}

char_dfa char_dfa::nothing() {
  return {};
}

char_dfa char_dfa::words(std::span<const std::u32string> words) {
  struct node {
    bool accepting = false;
    std::map<char32_t, std::uint32_t> next;
  };
  std::vector<node> trie(1);
  for (const std::u32string& word : words) {
    std::uint32_t at = 0;
    charge_nodes(word.size());
    for (const char32_t c : word) {
      const auto [it, fresh] = trie[at].next.try_emplace(c, static_cast<std::uint32_t>(trie.size()));
      at = it->second;
      if (fresh)
        trie.emplace_back();
      if (trie.size() > most_rule_states())
        too_large();
    }
    trie[at].accepting = true;
  }
  char_dfa out;
  for (const node& n : trie) {
    out.begin_state(n.accepting);
    for (const auto& [c, target] : n.next)
      out.add_edge(c, c, target);
  }
  if (trie.size() <= 2000)
    out.finish();
  else
    out.trim(); // sharing the ends of that many words costs more than it saves
  return out;
}

char_dfa char_dfa::length(std::uint64_t min, std::optional<std::uint64_t> max) {
  if (max && *max < min)
    return {};
  const std::uint64_t last = max ? *max : min;
  if (last >= most_rule_states())
    too_large();
  char_dfa out;
  for (std::uint32_t s = 0; s <= last; ++s) {
    out.begin_state(s >= min);
    if (s < last || !max) {
      const std::uint32_t target = s < last ? s + 1 : s;
      out.add_edge(0, first_surrogate - 1, target);
      out.add_edge(last_surrogate + 1, last_char, target);
    }
  }
  return out;
}

// Subset construction; in each state over the classes of characters that none of its edges tells apart.
char_dfa char_dfa::of(const char_nfa& nfa, std::uint32_t accept) {
  using subset = std::vector<std::uint32_t>; // sorted nodes, closed over edges that are always open
  std::vector<std::uint32_t> mark(nfa.nodes_.size());
  std::uint32_t round = 0;
  const auto close = [&](subset& set, auto&& open_gate) {
    ++round;
    for (const std::uint32_t n : set)
      mark[n] = round;
    for (std::size_t i = 0; i < set.size(); ++i)
      for (const char_nfa::empty_edge& e : nfa.nodes_[set[i]].empties)
        if (open_gate(e.when) && mark[e.to] != round) {
          mark[e.to] = round;
          set.push_back(e.to);
        }
    charge_nodes(set.size());
    std::sort(set.begin(), set.end());
  };
  const auto accepting = [&](subset set, bool at_start) {
    close(set, [&](char_nfa::gate g) { return g != char_nfa::gate::at_start || at_start; });
    return std::binary_search(set.begin(), set.end(), accept);
  };
  // A node that takes every character back to itself and is the accepting one: nothing after it matters.
  const auto accepts_all = [&](const subset& set) {
    if (!std::binary_search(set.begin(), set.end(), accept))
      return false;
    for (const char_nfa::char_edge& e : nfa.nodes_[accept].chars)
      if (e.to == accept && nfa.sets_[e.set] == char_set::all())
        return true;
    return false;
  };

  state_numbers<subset, vector_hash> states;
  subset start{0};
  close(start, [](char_nfa::gate g) { return g != char_nfa::gate::at_end; });
  states.of(start); // state 0 is only ever the start: its closure took the gates of the start
  char_dfa out;
  std::vector<std::uint32_t> sets; // on the edges of the state
  std::vector<char32_t> cuts;      // where a class begins; one more behind the last
  std::vector<subset> targets;     // by class, as number
  std::vector<std::uint32_t> number;
  charged_memory held;
  constexpr std::size_t most_work = 10'000'000; // edges followed: a fraction of a second
  std::size_t work = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const subset from = states[i];
    out.begin_state(accepting(from, i == 0));
    sets.clear();
    for (const std::uint32_t n : from)
      for (const char_nfa::char_edge& e : nfa.nodes_[n].chars)
        sets.push_back(e.set);
    std::sort(sets.begin(), sets.end());
    sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
    cuts.clear();
    for (const std::uint32_t s : sets)
      for (const char_range& r : nfa.sets_[s].ranges())
        cuts.insert(cuts.end(), {r.low, r.high + 1});
    if (cuts.empty())
      continue;
    charge_work(1 + cuts.size());
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const std::size_t classes = cuts.size() - 1;
    if (classes > targets.size()) {
      held.add((classes - targets.size()) * (2 * sizeof(char32_t) + sizeof(subset) + sizeof(number[0])));
      targets.resize(classes);
      number.resize(classes);
    }
    for (std::size_t c = 0; c < classes; ++c)
      targets[c].clear();
    for (const std::uint32_t n : from)
      for (const char_nfa::char_edge& e : nfa.nodes_[n].chars) {
        const std::size_t before = work;
        for (const char_range& r : nfa.sets_[e.set].ranges())
          for (auto c = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), r.low) - cuts.begin());
               cuts[c] <= r.high; ++c, ++work)
            targets[c].push_back(e.to);
        held.add((work - before) * 2 * sizeof(e.to));
        charge_nodes(work - before);
        if (work > most_work)
          throw automaton_too_large("takes too many steps to be made deterministic");
      }
    for (std::size_t c = 0; c < classes; ++c) {
      if (targets[c].empty())
        continue;
      if (c > 0 && targets[c] == targets[c - 1]) { // as pushed, before closing: neighbours often agree
        number[c] = number[c - 1];
      } else {
        subset to = targets[c];
        std::sort(to.begin(), to.end());
        to.erase(std::unique(to.begin(), to.end()), to.end());
        close(to, [](char_nfa::gate g) { return g == char_nfa::gate::always; });
        if (accepts_all(to))
          to = {accept};
        number[c] = states.of(to);
      }
      out.add_edge(cuts[c], cuts[c + 1] - 1, number[c]);
    }
  }
  out.finish();
  return out;
}

char_dfa char_dfa::complement() const {
  char_dfa out;
  const std::uint32_t sink = static_cast<std::uint32_t>(size());
  bool sink_used = size() == 0;
  const auto fill = [&](char32_t low, char32_t high) {
    if (low > high)
      return;
    const char_set gap{{low, high}};
    for (const char_range& r : gap.ranges()) {
      out.add_edge(r.low, r.high, sink);
      sink_used = true;
    }
  };
  for (std::uint32_t s = 0; s < size(); ++s) {
    out.begin_state(!accepts_[s]);
    char32_t next = 0;
    for (const edge& e : edges(s)) {
      if (e.low > next)
        fill(next, e.low - 1);
      out.add_edge(e.low, e.high, e.target);
      next = e.high + 1;
    }
    if (next <= last_char)
      fill(next, last_char);
  }
  if (sink_used) {
    out.begin_state(true);
    out.add_edge(0, first_surrogate - 1, sink);
    out.add_edge(last_surrogate + 1, last_char, sink);
  }
  out.finish();
  return out;
}

char_dfa char_dfa::intersect(const char_dfa& other) const {
  if (empty() || other.empty())
    return {};
  struct pair_hash {
    std::size_t operator()(std::uint64_t v) const { return v * 0x9E3779B97F4A7C15u ^ v >> 31; }
  };
  state_numbers<std::uint64_t, pair_hash> states;
  const auto pair = [](std::uint32_t a, std::uint32_t b) { return static_cast<std::uint64_t>(a) << 32 | b; };
  states.of(pair(0, 0));
  char_dfa out;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto a = static_cast<std::uint32_t>(states[i] >> 32), b = static_cast<std::uint32_t>(states[i]);
    out.begin_state(accepts_[a] && other.accepts_[b]);
    const std::span<const edge> ea = edges(a), eb = other.edges(b);
    charge_nodes(ea.size() + eb.size());
    for (std::size_t x = 0, y = 0; x < ea.size() && y < eb.size();) {
      const char32_t low = std::max(ea[x].low, eb[y].low), high = std::min(ea[x].high, eb[y].high);
      if (low <= high)
        out.add_edge(low, high, states.of(pair(ea[x].target, eb[y].target)));
      (ea[x].high < eb[y].high) ? ++x : ++y;
    }
  }
  out.finish();
  return out;
}

bool char_dfa::is_everything() const {
  return *this == everything();
}

std::size_t char_dfa::hash() const {
  std::uint64_t h = size();
  for (const edge& e : edges_) {
    h = (h ^ (std::uint64_t{e.low} << 32 | e.high)) * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 29) ^ e.target) * 0xBF58476D1CE4E5B9u;
  }
  return static_cast<std::size_t>(h ^ h >> 32);
}

bool char_dfa::contains(std::u32string_view text) const {
  if (empty())
    return false;
  std::uint32_t at = 0;
  for (const char32_t c : text) {
    const std::span<const edge> out = edges(at);
    const auto it = std::lower_bound(out.begin(), out.end(), c, [](const edge& e, char32_t x) { return e.high < x; });
    if (it == out.end() || it->low > c)
      return false;
    at = it->target;
  }
  return accepts_[at];
}

std::uint64_t char_dfa::min_length() const {
  std::vector<std::uint8_t> seen(size());
  std::vector<std::uint32_t> layer{0}, next;
  seen[0] = true;
  for (std::uint64_t length = 0;; ++length, layer.swap(next)) {
    next.clear();
    for (const std::uint32_t s : layer) {
      if (accepts_[s])
        return length;
      for (const edge& e : edges(s))
        if (!seen[e.target]) {
          seen[e.target] = true;
          next.push_back(e.target);
        }
    }
  }
}

std::vector<std::uint64_t> char_dfa::distances() const {
  std::vector<std::uint32_t> first(size() + 1), from(edges_.size()), order;
  for (const edge& e : edges_)
    ++first[e.target + 1];
  for (std::size_t s = 0; s < size(); ++s)
    first[s + 1] += first[s];
  std::vector<std::uint32_t> at(first.begin(), first.end() - 1);
  for (std::uint32_t s = 0; s < size(); ++s)
    for (const edge& e : edges(s))
      from[at[e.target]++] = s;
  constexpr std::uint64_t far = ~std::uint64_t{0};
  std::vector<std::uint64_t> out(size(), far);
  for (std::uint32_t s = 0; s < size(); ++s)
    if (accepts_[s]) {
      out[s] = 0;
      order.push_back(s);
    }
  for (std::size_t i = 0; i < order.size(); ++i) // nearest first
    for (std::uint32_t k = first[order[i]]; k < first[order[i] + 1]; ++k)
      if (out[from[k]] == far) {
        out[from[k]] = out[order[i]] + 1;
        order.push_back(from[k]);
      }
  return out;
}

std::optional<std::uint64_t> char_dfa::max_length() const {
  // Every state is alive, so a cycle means words of any length. Longest path by removing states without predecessors.
  std::vector<std::uint32_t> incoming(size());
  for (const edge& e : edges_)
    ++incoming[e.target];
  std::vector<std::uint64_t> longest(size());
  std::vector<std::uint32_t> open;
  if (size() > 0 && incoming[0] == 0)
    open.push_back(0);
  std::size_t removed = 0;
  std::uint64_t best = 0;
  while (!open.empty()) {
    const std::uint32_t s = open.back();
    open.pop_back();
    ++removed;
    best = std::max(best, longest[s]);
    for (const edge& e : edges(s)) {
      longest[e.target] = std::max(longest[e.target], longest[s] + 1);
      if (--incoming[e.target] == 0)
        open.push_back(e.target);
    }
  }
  return removed == size() ? std::optional(best) : std::nullopt;
}

std::optional<std::vector<std::u32string>> char_dfa::enumerate(std::size_t limit) const {
  std::vector<std::u32string> words;
  if (empty())
    return words;
  if (!max_length())
    return std::nullopt;
  struct prefix {
    std::uint32_t state;
    std::u32string text;
  };
  std::deque<prefix> open{{0, {}}};
  while (!open.empty()) { // every prefix leads to a word, so few words mean few prefixes
    const prefix at = std::move(open.front());
    open.pop_front();
    charge_nodes(at.text.size());
    if (accepts_[at.state]) {
      if (words.size() == limit)
        return std::nullopt;
      words.push_back(at.text);
    }
    for (const edge& e : edges(at.state))
      for (char32_t c = e.low; c <= e.high; ++c) {
        if (c == first_surrogate)
          c = last_surrogate + 1;
        if (open.size() > limit + 1)
          return std::nullopt;
        open.push_back({e.target, at.text + c});
      }
  }
  return words;
}

std::vector<char_partition::part> char_partition::of(std::span<const char_dfa* const> languages) {
  using tuple = std::vector<std::uint32_t>; // a state of each language, `none` where it has failed
  state_numbers<tuple, vector_hash> states;
  tuple start;
  for (const char_dfa* language : languages)
    start.push_back(language->empty() ? none : 0);
  states.of(start);
  char_dfa all; // its accepting states are set for each part below
  std::vector<std::uint64_t> members;
  std::vector<char32_t> cuts;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const tuple from = states[i];
    std::uint64_t inside = 0;
    cuts.assign({0, first_surrogate, last_surrogate + 1, last_char + 1});
    for (std::size_t k = 0; k < languages.size(); ++k)
      if (from[k] != none) {
        inside |= static_cast<std::uint64_t>(languages[k]->accepts(from[k])) << k;
        for (const char_dfa::edge& e : languages[k]->edges(from[k])) {
          cuts.push_back(e.low);
          cuts.push_back(e.high + 1);
        }
      }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    members.push_back(inside);
    all.begin_state(false);
    charge_work(cuts.size() * languages.size() / 4);
    std::vector<std::size_t> position(languages.size());
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      if (cuts[c] == first_surrogate)
        continue;
      tuple to(languages.size(), none);
      for (std::size_t k = 0; k < languages.size(); ++k) {
        if (from[k] == none)
          continue;
        const auto out = languages[k]->edges(from[k]);
        while (position[k] < out.size() && out[position[k]].high < cuts[c])
          ++position[k];
        if (position[k] < out.size() && out[position[k]].low <= cuts[c])
          to[k] = out[position[k]].target;
      }
      all.add_edge(cuts[c], cuts[c + 1] - 1, states.of(to));
    }
  }
  std::vector<std::uint64_t> kinds = members;
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  std::vector<part> parts;
  for (const std::uint64_t kind : kinds) {
    char_dfa texts = all;
    for (std::size_t s = 0; s < members.size(); ++s)
      texts.accepts_[s] = members[s] == kind;
    texts.finish();
    charge_memory(texts.bytes());
    parts.push_back({kind, std::move(texts)});
  }
  return parts;
}

std::u32string to_code_points(std::string_view utf8) {
  std::u32string out;
  for (std::size_t i = 0; i < utf8.size();) {
    unsigned length = 1;
    out.push_back(decode_valid_utf8(utf8.data() + i, length));
    i += length;
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text)
    append_utf8(out, c);
  return out;
}

} // namespace troupe
