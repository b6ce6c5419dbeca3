#include "runtime/grammar/tag_automaton.hpp"
#include <array>
#include <map>

namespace troupe {

namespace {

// The automaton of Aho and Corasick: a state is the longest end of the text so far that begins a word.
struct word_automaton {
  struct state {
    std::array<std::int32_t, 256> next;
    std::int32_t shorter = 0;      // the next longest end that begins a word
    std::vector<std::size_t> ends; // words that end here
    state() { next.fill(-1); }
  };
  std::vector<state> states;

  word_automaton(const std::vector<std::string>& words, compile_budget& budget) : states(1) {
    for (std::size_t w = 0; w < words.size(); ++w) {
      std::int32_t at = 0;
      for (const char c : words[w]) {
        std::int32_t next = states[static_cast<std::size_t>(at)].next[static_cast<unsigned char>(c)];
        if (next < 0) {
          next = static_cast<std::int32_t>(states.size());
          states[static_cast<std::size_t>(at)].next[static_cast<unsigned char>(c)] = next;
          budget.states(1);
          budget.memory(sizeof(state));
          states.emplace_back();
        }
        at = next;
      }
      states[static_cast<std::size_t>(at)].ends.push_back(w);
    }
    std::vector<std::int32_t> order{0};
    for (std::size_t i = 0; i < order.size(); ++i) {
      state& s = states[static_cast<std::size_t>(order[i])];
      const state& fallback = states[static_cast<std::size_t>(s.shorter)];
      if (i > 0)
        s.ends.insert(s.ends.end(), fallback.ends.begin(), fallback.ends.end());
      for (std::size_t b = 0; b < 256; ++b) {
        if (s.next[b] < 0) {
          s.next[b] = i == 0 ? 0 : fallback.next[b];
          continue;
        }
        states[static_cast<std::size_t>(s.next[b])].shorter = i == 0 ? 0 : fallback.next[b];
        order.push_back(s.next[b]);
      }
      budget.work(256);
    }
  }
};

} // namespace

grammar_expr tagged_text(grammar_builder& builder, const std::vector<tag_rule>& tags,
                         const std::vector<std::string>& excluded, bool again) {
  std::vector<std::string> words;
  for (const tag_rule& t : tags)
    words.push_back(t.tag);
  words.insert(words.end(), excluded.begin(), excluded.end());
  const word_automaton automaton(words, builder.budget());
  grammar_graph g;
  g.states = static_cast<std::uint32_t>(automaton.states.size());
  const std::uint32_t done = again ? 0 : g.add_state();
  for (std::uint32_t s = 0; s < automaton.states.size(); ++s) {
    const word_automaton::state& state = automaton.states[s];
    bool dead = false;
    for (const std::size_t w : state.ends)
      dead = dead || w >= tags.size();
    if (dead)
      continue;
    if (!state.ends.empty()) { // free text ends
      for (const std::size_t w : state.ends)
        g.add_edge(s, done, builder.call(tags[w].rule));
      continue;
    }
    g.accepting.push_back(s);
    std::map<std::int32_t, byte_set> by_target;
    for (std::size_t b = 0; b < 256; ++b)
      by_target[state.next[b]].set(b);
    for (const auto& [target, set] : by_target) {
      const grammar_expr one = builder.bytes(set);
      // as a rule where the text stays, since loops over rules have ready-made masks
      g.add_edge(s, static_cast<std::uint32_t>(target),
                 target == static_cast<std::int32_t>(s) ? builder.call(builder.define("free byte", one)) : one);
    }
  }
  if (!again)
    g.accepting.push_back(done);
  return builder.graph(g);
}

} // namespace troupe
