#include "runtime/grammar/byte_dfa.hpp"
#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace troupe {

namespace {

// Thompson's construction, for finite expressions only.
struct byte_nfa {
  struct edge {
    std::uint32_t to;
    int low, high; // -1: free
  };
  std::vector<std::vector<edge>> states;

  std::uint32_t add() {
    states.emplace_back();
    return static_cast<std::uint32_t>(states.size() - 1);
  }
};

class nfa_maker {
public:
  nfa_maker(const grammar_builder& builder, std::size_t most_states) : builder_(builder), most_(most_states) {}

  // False: not finite, or too large.
  bool read(grammar_expr e, std::uint32_t from, std::uint32_t to, byte_nfa& nfa) {
    if (nfa.states.size() > most_ || ++steps_ > 8 * most_ || depth_ > 200)
      return false;
    ++depth_;
    const bool read = read_node(builder_.at(e), from, to, nfa);
    --depth_;
    return read;
  }

private:
  bool read_node(const grammar_builder::node& n, std::uint32_t from, std::uint32_t to, byte_nfa& nfa) {
    using kind = grammar_builder::kind;
    switch (n.what) {
    case kind::empty:
      nfa.states[from].push_back({to, -1, -1});
      return true;
    case kind::never:
      return true;
    case kind::bytes: {
      const byte_set& set = builder_.set(n);
      for (int b = 0; b < 256; ++b) {
        if (!set[static_cast<std::size_t>(b)])
          continue;
        const int low = b;
        while (b < 255 && set[static_cast<std::size_t>(b + 1)])
          ++b;
        nfa.states[from].push_back({to, low, b});
      }
      return true;
    }
    case kind::sequence: {
      const auto parts = builder_.children(n);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::uint32_t next = i + 1 == parts.size() ? to : nfa.add();
        if (!read(parts[i], from, next, nfa))
          return false;
        from = next;
      }
      return true;
    }
    case kind::alternatives: {
      const auto parts = builder_.children(n);
      return std::all_of(parts.begin(), parts.end(), [&](grammar_expr p) { return read(p, from, to, nfa); });
    }
    case kind::repeat: {
      if (n.max == unbounded || n.max > most_)
        return false;
      for (std::uint64_t i = 0; i < n.max; ++i) {
        if (i >= n.min)
          nfa.states[from].push_back({to, -1, -1});
        const std::uint32_t next = i + 1 == n.max ? to : nfa.add();
        if (!read({n.first}, from, next, nfa))
          return false;
        from = next;
      }
      return true;
    }
    case kind::call:
      return builder_.defined({n.first}) && read(builder_.body_of({n.first}), from, to, nfa);
    case kind::graph:
    case kind::distinct:
    case kind::tokens:
      return false;
    }
    return false;
  }

  const grammar_builder& builder_;
  std::size_t most_, steps_ = 0;
  int depth_ = 0;
};

using state_set = std::vector<std::uint32_t>;

state_set closed(const byte_nfa& nfa, state_set set) {
  std::set<std::uint32_t> seen(set.begin(), set.end());
  while (!set.empty()) {
    const std::uint32_t s = set.back();
    set.pop_back();
    for (const byte_nfa::edge& e : nfa.states[s])
      if (e.low < 0 && seen.insert(e.to).second)
        set.push_back(e.to);
  }
  return {seen.begin(), seen.end()};
}

// None if it has more than most_states.
std::optional<byte_dfa> determinised(const byte_nfa& nfa, std::uint32_t start, std::uint32_t accept,
                                     std::size_t most_states, compile_budget& budget) {
  byte_dfa dfa;
  charged_memory held;
  std::map<state_set, std::uint32_t> index;
  std::vector<state_set> sets;
  const auto number = [&](state_set set) {
    const auto [at, fresh] = index.emplace(std::move(set), static_cast<std::uint32_t>(sets.size()));
    if (fresh) {
      budget.states(1);
      held.add(2 * at->first.size() * sizeof(std::uint32_t) + 128);
      sets.push_back(at->first);
      dfa.states.push_back({std::binary_search(at->first.begin(), at->first.end(), accept), {}});
    }
    return at->second;
  };
  number(closed(nfa, {start}));
  for (std::uint32_t s = 0; s < sets.size(); ++s) {
    if (sets.size() > most_states)
      return std::nullopt;
    std::array<bool, 257> cut{};
    for (const std::uint32_t member : sets[s])
      for (const byte_nfa::edge& e : nfa.states[member])
        if (e.low >= 0)
          cut[static_cast<std::size_t>(e.low)] = cut[static_cast<std::size_t>(e.high) + 1] = true;
    for (int low = 0; low < 256;) {
      int high = low;
      while (high < 255 && !cut[static_cast<std::size_t>(high) + 1])
        ++high;
      state_set targets;
      for (const std::uint32_t member : sets[s])
        for (const byte_nfa::edge& e : nfa.states[member])
          if (e.low >= 0 && e.low <= low && high <= e.high)
            targets.push_back(e.to);
      budget.work(sets[s].size());
      if (!targets.empty()) {
        const std::uint32_t target = number(closed(nfa, std::move(targets)));
        dfa.states[s].out.push_back({static_cast<unsigned char>(low), static_cast<unsigned char>(high), target});
      }
      low = high + 1;
    }
  }
  return dfa;
}

// The minimal form without dead states. Finite languages make automata without cycles: each state is compared once,
// after all states that it leads to.
class acyclic_minimiser {
public:
  explicit acyclic_minimiser(byte_dfa& dfa) : dfa_(dfa), merged_(dfa.states.size(), unseen) {}

  byte_dfa run() {
    merge(0);
    byte_dfa out;
    if (merged_[0] == dead)
      return out;
    // numbered from the start, so that equal languages have equal automata
    std::vector<std::uint32_t> number(kept_.size(), unseen), order{merged_[0]};
    number[merged_[0]] = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      byte_dfa::state s = kept_[order[i]]->first;
      for (byte_dfa::edge& e : s.out) {
        if (number[e.target] == unseen) {
          number[e.target] = static_cast<std::uint32_t>(order.size());
          order.push_back(e.target);
        }
        e.target = number[e.target];
      }
      out.states.push_back(std::move(s));
    }
    return out;
  }

private:
  static constexpr std::uint32_t unseen = UINT32_MAX, dead = UINT32_MAX - 1;

  std::uint32_t merge(std::uint32_t s) {
    if (merged_[s] != unseen)
      return merged_[s];
    byte_dfa::state state{dfa_.states[s].accepting, {}};
    for (const byte_dfa::edge& e : dfa_.states[s].out) {
      const std::uint32_t target = merge(e.target);
      if (target == dead)
        continue;
      if (!state.out.empty() && state.out.back().target == target && state.out.back().high + 1 == e.low)
        state.out.back().high = e.high;
      else
        state.out.push_back({e.low, e.high, target});
    }
    if (!state.accepting && state.out.empty())
      return merged_[s] = dead;
    const auto [at, fresh] = index_.emplace(std::move(state), static_cast<std::uint32_t>(kept_.size()));
    if (fresh)
      kept_.push_back(at);
    return merged_[s] = at->second;
  }

  byte_dfa& dfa_;
  std::vector<std::uint32_t> merged_;
  std::map<byte_dfa::state, std::uint32_t> index_;
  std::vector<std::map<byte_dfa::state, std::uint32_t>::iterator> kept_;
};

} // namespace

std::int32_t byte_dfa::next(std::uint32_t from, unsigned char byte) const {
  for (const edge& e : states[from].out)
    if (e.low <= byte && byte <= e.high)
      return static_cast<std::int32_t>(e.target);
  return -1;
}

byte_set byte_dfa::first_bytes() const {
  byte_set set;
  for (const edge& e : states[0].out)
    for (unsigned b = e.low; b <= e.high; ++b)
      set.set(b);
  return set;
}

bool byte_dfa::is_prefix_code() const {
  return !states[0].accepting &&
         std::all_of(states.begin(), states.end(), [](const state& s) { return !s.accepting || s.out.empty(); });
}

std::optional<byte_dfa> finite_dfa(const grammar_builder& builder, grammar_expr e, std::size_t most_states,
                                   compile_budget& budget) {
  if (builder.at(e).size > most_states)
    return std::nullopt;
  byte_nfa nfa;
  const std::uint32_t start = nfa.add(), accept = nfa.add();
  if (!nfa_maker(builder, most_states).read(e, start, accept, nfa))
    return std::nullopt;
  budget.work(nfa.states.size());
  constexpr std::size_t larger = 4; // times as many before states are merged
  std::optional<byte_dfa> large = determinised(nfa, start, accept, larger * most_states, budget);
  if (!large)
    return std::nullopt;
  byte_dfa dfa = acyclic_minimiser(*large).run();
  if (dfa.states.empty())
    return std::nullopt;
  return dfa;
}

} // namespace troupe
