#include "runtime/grammar/rule_network.hpp"
#include "runtime/grammar/left_recursion.hpp"
#include "runtime/grammar/near_states.hpp"
#include <algorithm>
#include <deque>
#include <map>
#include <optional>

namespace troupe {

namespace {

using kind = grammar_builder::kind;
using edge_kind = rule_network::edge_kind;

constexpr std::size_t unrolled_states = 256; // up to here a repetition is written out
constexpr std::size_t round_states = 2'000;  // of an expression that is made deterministic
constexpr std::size_t wide_bytes = 20;       // loops over so many bytes get tables
constexpr std::size_t inlined_size = 8;      // of rules that are copied instead of called

// Edges of all rules, in the order in which they are found.
class network_maker {
public:
  network_maker(const grammar_builder& builder, compile_budget& budget) : builder_(builder), budget_(budget) {}

  rule_network make(grammar_rule root) {
    net_.root = rule_of(root);
    while (done_ < todo_.size()) {
      const pending p = todo_[done_++];
      first_state_ = states_;
      reading_ = p.rule;
      const std::uint32_t start = add_state(), end = add_state();
      net_.rules[p.rule].start = start;
      net_.rules[p.rule].end = end;
      try {
        if (p.dfa >= 0)
          read_dfa(dfas_[static_cast<std::size_t>(p.dfa)], start, end);
        else
          read(p.body, start, end);
      } catch (grammar_failure& f) {
        f.place("\"" + net_.place_of(p.rule) + "\"");
        throw;
      }
      if (p.text)
        net_.text_rules.push_back({first_state_, states_});
    }
    index_edges(net_, states_);
    return std::move(net_);
  }

private:
  struct pending {
    std::uint32_t rule;
    grammar_expr body;
    std::int32_t dfa; // index of dfas_, or -1: made of body
    bool text;        // grammar_builder::is_text
  };
  struct round {
    std::uint32_t rule;
    std::int32_t table; // -1: no prefix code or too narrow
  };

  std::uint32_t add_state() {
    budget_.states(1);
    budget_.memory(16);
    if (states_ - first_state_ > budget_.limits().states_per_rule)
      fail_compile("so_too_complex", "\"" + net_.place_of(reading_) + "\" needs more than " +
                                         std::to_string(budget_.limits().states_per_rule) +
                                         " automaton states; make its repetitions and alternatives smaller");
    return states_++;
  }

  void add(rule_network::edge e) {
    budget_.work();
    budget_.memory(3 * sizeof(rule_network::edge)); // with the copies that sort them
    net_.edges.push_back(e);
  }
  [[gnu::noinline]] void free(std::uint32_t from, std::uint32_t to) { add({from, to}); }

  std::uint32_t new_rule(std::string name, std::optional<grammar_rule> body_of, grammar_expr body, std::int32_t dfa,
                         bool text = false) {
    const auto index = static_cast<std::uint32_t>(net_.rules.size());
    // Parts of a schema that only help have no path of their own.
    const bool placed = index == 0 || name.starts_with('#') || (!net_.rules[0].name.starts_with('#') && body_of);
    net_.rules.push_back({.name = std::move(name), .place = placed ? index : net_.rules[reading_].place});
    if (body_of)
      net_.rules.back().source = body_of->index;
    if (dfa >= 0) {
      const byte_dfa& small = dfas_[static_cast<std::size_t>(dfa)];
      if (small.is_prefix_code() && small.first_bytes().count() >= wide_bytes) {
        net_.rules.back().table = static_cast<std::int32_t>(net_.round_dfas.size());
        net_.round_dfas.push_back(small);
      }
    }
    todo_.push_back({index, body, dfa, text});
    return index;
  }

  std::uint32_t rule_of(grammar_rule r) {
    if (const auto found = rule_index_.find(r.index); found != rule_index_.end())
      return found->second;
    if (!builder_.defined(r))
      fail_compile("so_syntax", "rule \"" + builder_.name_of(r) + "\" is used but not defined; define it");
    const std::uint32_t index =
        new_rule(builder_.name_of(r), r, builder_.body_of(r), wide_dfa(builder_.body_of(r)), builder_.is_text(r));
    rule_index_.emplace(r.index, index);
    return index;
  }

  // Whether a word of e can begin with many different bytes. What is behind a part that can be empty does not count,
  // nor what is called in more than a few steps; every rule is looked into once.
  bool is_wide(grammar_expr e) const {
    constexpr std::uint32_t most_calls = 8;
    byte_set first;
    std::vector<std::pair<grammar_expr, std::uint32_t>> open{{e, 0}}; // calls on the way; fewer ones first
    std::vector<std::uint32_t> called;
    for (std::size_t i = 0; i < open.size() && first.count() < wide_bytes; ++i) {
      budget_.work(1 + called.size() / 16);
      const auto [at, calls] = open[i];
      const grammar_builder::node& n = builder_.at(at);
      if (n.what == kind::bytes) {
        first |= builder_.set(n);
      } else if (n.what == kind::sequence) {
        open.emplace_back(builder_.children(n)[0], calls);
      } else if (n.what == kind::repeat) {
        open.emplace_back(grammar_expr{n.first}, calls);
      } else if (n.what == kind::alternatives) {
        for (const grammar_expr part : builder_.children(n))
          open.emplace_back(part, calls);
      } else if (n.what == kind::call && calls < most_calls && builder_.defined({n.first}) &&
                 std::find(called.begin(), called.end(), n.first) == called.end()) {
        called.push_back(n.first);
        open.emplace_back(builder_.body_of({n.first}), calls + 1);
      }
    }
    return first.count() >= wide_bytes;
  }

  // The deterministic form of what begins with many bytes: only that is worth a table. -1: none.
  std::int32_t wide_dfa(grammar_expr e) {
    if (builder_.at(e).size > round_states || !is_wide(e))
      return -1;
    std::optional<byte_dfa> made = finite_dfa(builder_, e, round_states, budget_);
    if (!made)
      return -1;
    dfas_.push_back(std::move(*made));
    return static_cast<std::int32_t>(dfas_.size() - 1);
  }

  // Rules of a few states are copied; but not those that make wide loops, whose masks go by rule.
  bool is_inlined(grammar_rule r) {
    const grammar_builder::node& body = builder_.at(builder_.body_of(r));
    if (!body.finite || body.size > inlined_size || builder_.body_of(r) == builder_.never())
      return false;
    return !is_wide(builder_.body_of(r));
  }

  [[gnu::noinline]] round round_of(grammar_expr body) {
    if (const auto found = rounds_.find(body.index); found != rounds_.end())
      return found->second;
    round made{0, -1};
    const grammar_builder::node& n = builder_.at(body);
    if (n.what == kind::call) {
      made.rule = rule_of({n.first});
    } else {
      made.rule = new_rule("round", {}, body, wide_dfa(body));
    }
    made.table = net_.rules[made.rule].table;
    rounds_.emplace(body.index, made);
    return made;
  }

  void read_dfa(const byte_dfa& dfa, std::uint32_t start, std::uint32_t end) {
    // A state that accepts and has no edges is the end itself.
    std::vector<std::uint32_t> to(dfa.states.size());
    for (std::size_t s = 0; s < dfa.states.size(); ++s)
      to[s] = s == 0 ? start : dfa.states[s].accepting && dfa.states[s].out.empty() ? end : add_state();
    for (std::size_t s = 0; s < dfa.states.size(); ++s) {
      if (dfa.states[s].accepting && to[s] != end)
        free(to[s], end);
      for (const byte_dfa::edge& e : dfa.states[s].out)
        add({to[s], to[e.target], 0, e.low, e.high, edge_kind::bytes});
    }
  }

  // Adds the ways from `from` to `to` that read a word of e. Recurses as deep as groups are nested: what needs a large
  // frame stands in functions of its own, which are not inlined.
  void read(grammar_expr e, std::uint32_t from, std::uint32_t to) {
    const grammar_builder::node& n = builder_.at(e);
    switch (n.what) {
    case kind::empty:
      return free(from, to);
    case kind::never:
      return;
    case kind::bytes:
      return read_bytes(builder_.set(n), from, to);
    case kind::sequence: {
      const auto parts = builder_.children(n);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::uint32_t next = i + 1 == parts.size() ? to : add_state();
        read(parts[i], from, next);
        from = next;
      }
      return;
    }
    case kind::alternatives:
      for (const grammar_expr part : builder_.children(n))
        read(part, from, to);
      return;
    case kind::repeat:
      return read_repeat(n, from, to);
    case kind::call: {
      const grammar_rule r{n.first};
      if (builder_.defined(r) && is_inlined(r))
        return read(builder_.body_of(r), from, to);
      return read_call(r, from, to);
    }
    case kind::graph:
      return read_graph(builder_.graph_of(n), from, to);
    case kind::distinct:
      return read_distinct(builder_.distinct_of(n), from, to);
    case kind::tokens:
      return read_tokens(n, from, to);
    }
  }

  [[gnu::noinline]] void read_call(grammar_rule r, std::uint32_t from, std::uint32_t to) {
    add({from, to, rule_of(r), 0, 0, edge_kind::call});
  }
  [[gnu::noinline]] void read_tokens(const grammar_builder::node& n, std::uint32_t from, std::uint32_t to) {
    add({from, to, static_cast<std::uint32_t>(net_.token_lists.size()), 0, 0, edge_kind::tokens});
    net_.token_lists.push_back({builder_.tokens_of(n), n.except});
    net_.has_token_edges = true;
  }

  [[gnu::noinline]] void read_graph(const grammar_graph& g, std::uint32_t from, std::uint32_t to) {
    std::vector<std::uint32_t> state(g.states);
    for (std::uint32_t& s : state)
      s = add_state();
    free(from, state[0]);
    for (const grammar_graph::edge& edge : g.edges)
      read(edge.reads, state[edge.from], state[edge.to]);
    for (const std::uint32_t a : g.accepting)
      free(state[a], to);
    if (g.marked.empty())
      return;
    const std::uint32_t graph = net_.mark_graphs++;
    budget_.memory(2 * g.marked.size() * sizeof(rule_network::marked));
    for (const grammar_graph::marked_edge& edge : g.marked) {
      add({state[edge.from], state[edge.to], static_cast<std::uint32_t>(net_.marks.size()), 0, 0,
           edge.reads ? edge_kind::mark : edge_kind::leave});
      net_.marks.push_back({edge.reads ? rule_of(*edge.reads) : 0, graph, edge.marks});
    }
  }

  [[gnu::noinline]] void read_distinct(const grammar_builder::distinct_values& d, std::uint32_t from,
                                       std::uint32_t to) {
    const std::uint32_t picking = add_state(), separating = add_state();
    const auto index = static_cast<std::uint32_t>(net_.distincts.size());
    free(from, picking);
    add({picking, to, index, 0, 0, edge_kind::pick});
    add({picking, separating, index, 0, 0, edge_kind::pick, true});
    add({separating, picking, rule_of(d.separator), 0, 0, edge_kind::call});
    rule_network::distinct made{{}, d.which};
    for (const grammar_rule r : d.values)
      made.values.push_back(rule_of(r));
    budget_.memory(made.values.size() * sizeof(std::uint32_t) + made.which.allowed.size() * sizeof(std::uint64_t));
    net_.distincts.push_back(std::move(made));
  }

  [[gnu::noinline]] void read_bytes(const byte_set& set, std::uint32_t from, std::uint32_t to) {
    for (unsigned b = 0; b < 256; ++b) {
      if (!set[b])
        continue;
      const unsigned low = b;
      while (b < 255 && set[b + 1])
        ++b;
      add({from, to, 0, static_cast<unsigned char>(low), static_cast<unsigned char>(b), edge_kind::bytes});
    }
  }

  [[gnu::noinline]] void read_repeat(const grammar_builder::node& n, std::uint32_t from, std::uint32_t to) {
    const grammar_expr part{n.first};
    if (n.min == 0 && n.max == 1) {
      // over a state of its own: `from` can be the middle of an outer repetition
      read(part, from, to);
      return free(from, to);
    }
    const round r = round_of(part);
    const std::size_t size = builder_.at(part).size + 1;
    const std::uint64_t copies = n.max == unbounded ? n.min : n.max;
    if (r.table < 0 && copies <= unrolled_states / size) {
      for (std::uint64_t i = 0; i < copies; ++i) {
        if (i >= n.min)
          free(from, to);
        const std::uint32_t next = i + 1 == copies && n.max != unbounded ? to : add_state();
        read(part, from, next);
        from = next;
      }
      if (n.max == unbounded) {
        const std::uint32_t again = add_state();
        free(from, again);
        read(part, again, again);
        free(again, to);
      }
      return;
    }
    const std::uint32_t counting = add_state();
    free(from, counting);
    add({counting, to, static_cast<std::uint32_t>(net_.loops.size()), 0, 0, edge_kind::loop});
    net_.loops.push_back({r.rule, n.min, n.max, r.table});
  }

  const grammar_builder& builder_;
  compile_budget& budget_;
  rule_network net_;
  std::uint32_t states_ = 0, first_state_ = 0, reading_ = 0;
  std::vector<pending> todo_;
  std::size_t done_ = 0;
  std::vector<byte_dfa> dfas_;
  std::map<std::uint32_t, std::uint32_t> rule_index_; // of the builder's to those of the network
  std::map<std::uint32_t, round> rounds_;             // by expression
};

// Rules that can be empty, and the states at which each rule can stand without having read anything.
void find_openings(rule_network& net) {
  std::vector<std::uint32_t> rule_at(net.states()), pending;
  std::vector<std::uint8_t> reached(net.states());
  std::vector<std::vector<std::uint32_t>> waiting(net.rules.size()); // edges behind a rule that may prove to be empty
  // A rule that could be empty still can: rewritten left recursion does not show it in the automaton any more.
  for (rule_network::rule& r : net.rules)
    r.opening.clear();
  const auto reach = [&](std::uint32_t state, std::uint32_t rule) {
    if (reached[state])
      return;
    reached[state] = 1;
    rule_at[state] = rule;
    pending.push_back(state);
  };
  for (std::uint32_t r = 0; r < net.rules.size(); ++r)
    reach(net.rules[r].start, r);
  while (!pending.empty()) {
    const std::uint32_t s = pending.back(), rule = rule_at[s];
    pending.pop_back();
    net.rules[rule].opening.push_back(s);
    if (s == net.rules[rule].end) {
      net.rules[rule].can_be_empty = true;
      for (const std::uint32_t e : waiting[rule])
        reach(net.edges[e].to, rule_at[net.edges[e].from]);
      waiting[rule].clear();
    }
    for (std::uint32_t i = net.first[s]; i < net.first[s + 1]; ++i) {
      const rule_network::edge& e = net.edges[i];
      if (e.kind == edge_kind::free || (e.kind == edge_kind::loop && net.loops[e.what].min == 0) ||
          (e.kind == edge_kind::leave && net.marks[e.what].marks.behind(0)))
        reach(e.to, rule);
      else if (e.kind == edge_kind::call || e.kind == edge_kind::loop) {
        const std::uint32_t called = e.kind == edge_kind::call ? e.what : net.loops[e.what].body;
        if (e.reads)
          continue;
        if (net.rules[called].can_be_empty)
          reach(e.to, rule);
        else
          waiting[called].push_back(i);
      }
    }
  }
  for (rule_network::loop& l : net.loops)
    if (net.rules[l.body].can_be_empty)
      l.min = 0;
}

// Which marks can be put at all, and where sets of marks wait for them.
class mark_liveness {
public:
  explicit mark_liveness(rule_network& net) : net_(net), graphs_(net.mark_graphs), readers_(net.rules.size()) {
    for (std::uint32_t i = 0; i < net.edges.size(); ++i)
      if (net.edges[i].kind == edge_kind::mark)
        readers_[net.marks[net.edges[i].what].rule].push_back(net.edges[i].what);
  }

  // The rule has words; calls enliven(state) for the sets that can end now.
  void found(std::uint32_t rule, const auto& enliven) {
    for (const std::uint32_t i : readers_[rule]) {
      const rule_network::marked& m = net_.marks[i];
      graph& g = graphs_[m.graph];
      g.again |= !m.marks.once && !m.marks.goes_on;
      if ((m.marks.puts & ~g.live) == 0)
        continue;
      g.live |= m.marks.puts;
      std::erase_if(g.waiting, [&](const rule_network::edge& e) {
        const bool ends = can_end(e);
        if (ends)
          enliven(e.from);
        return ends;
      });
    }
  }

  bool can_end(const rule_network::edge& leave) const {
    const rule_network::marked& m = net_.marks[leave.what];
    return m.marks.possible(graphs_[m.graph].live);
  }
  void wait(const rule_network::edge& leave) { graphs_[net_.marks[leave.what].graph].waiting.push_back(leave); }

  // What can follow is known now.
  void settle() {
    for (rule_network::marked& m : net_.marks) {
      m.marks.goes_on &= !graphs_[m.graph].again;
      m.marks.open = graphs_[m.graph].live;
    }
  }

private:
  struct graph {
    std::uint64_t live = 0;
    bool again = false; // something can be read as often as one likes
    std::vector<rule_network::edge> waiting;
  };

  rule_network& net_;
  std::vector<graph> graphs_;
  std::vector<std::vector<std::uint32_t>> readers_; // by rule
};

// Why the root has no words, as far as one part is to blame: of the ways through a rule the one that calls the fewest
// rules without words is taken, and of these the first is looked into.
std::string explain_empty(const rule_network& net, const std::vector<std::uint8_t>& has_words,
                          const grammar_builder& builder, compile_budget& budget) {
  constexpr std::uint32_t far = UINT32_MAX;
  std::vector<std::uint8_t> seen(net.rules.size());
  std::vector<std::uint32_t> missing(net.states(), far), first_missing(net.states(), far);
  std::uint32_t rule = net.root;
  while (true) {
    seen[rule] = 1;
    std::deque<std::uint32_t> open{net.rules[rule].start};
    missing[open[0]] = 0;
    while (!open.empty()) {
      const std::uint32_t s = open.front();
      open.pop_front();
      for (const rule_network::edge& e : net.edges_of(s)) {
        budget.work();
        const std::optional<std::uint32_t> called = net.called_by(e);
        const bool dead = called && !has_words[*called];
        if (missing[s] + dead >= missing[e.to])
          continue;
        missing[e.to] = missing[s] + dead;
        first_missing[e.to] = first_missing[s] != far || !dead ? first_missing[s] : *called;
        dead ? open.push_back(e.to) : open.push_front(e.to);
      }
    }
    const std::uint32_t next = first_missing[net.rules[rule].end];
    if (next == far || seen[next])
      break;
    rule = next;
  }
  const std::string &root = net.rules[net.root].name, &place = net.place_of(rule);
  std::string out = "\"" + root + "\" has no finite derivation";
  if (place != root)
    out += ", since \"" + place + "\" has none";
  if (const std::uint32_t source = net.rules[rule].source; source != far && !builder.why_empty({source}).empty())
    out += ": " + builder.why_empty({source});
  return out + builder.remark_if_empty();
}

// Keeps the edges that lie on a way to the end of their rule and whose own rule has words.
void drop_dead_edges(rule_network& net, const grammar_builder& builder, compile_budget& budget) {
  std::vector<std::uint32_t> into(net.edges.size()), into_first(net.states() + 1), pending;
  for (const rule_network::edge& e : net.edges)
    ++into_first[e.to + 1];
  for (std::size_t s = 0; s < net.states(); ++s)
    into_first[s + 1] += into_first[s];
  std::vector<std::uint32_t> at(into_first.begin(), into_first.end() - 1);
  for (std::uint32_t i = 0; i < net.edges.size(); ++i)
    into[at[net.edges[i].to]++] = i;
  std::vector<std::int32_t> rule_starting(net.states(), -1);
  std::vector<std::uint8_t> live(net.states());
  std::vector<std::uint8_t> has_words(net.rules.size());
  std::vector<std::vector<std::uint32_t>> waiting(net.rules.size()); // states before a call
  const auto enliven = [&](std::uint32_t s) {
    if (!live[s]) {
      live[s] = 1;
      pending.push_back(s);
    }
  };
  mark_liveness marks(net);
  for (std::uint32_t r = 0; r < net.rules.size(); ++r)
    rule_starting[net.rules[r].start] = static_cast<std::int32_t>(r);
  for (const rule_network::rule& r : net.rules)
    enliven(r.end);
  while (!pending.empty()) {
    const std::uint32_t s = pending.back();
    pending.pop_back();
    budget.work();
    if (const std::int32_t r = rule_starting[s]; r >= 0) {
      has_words[static_cast<std::size_t>(r)] = 1;
      marks.found(static_cast<std::uint32_t>(r), enliven);
      for (const std::uint32_t w : waiting[static_cast<std::size_t>(r)])
        enliven(w);
    }
    for (std::uint32_t i = into_first[s]; i < into_first[s + 1]; ++i) {
      const rule_network::edge& e = net.edges[into[i]];
      const std::optional<std::uint32_t> called = net.called_by(e);
      if (called && !has_words[*called])
        waiting[*called].push_back(e.from);
      else if (e.kind == edge_kind::leave && !marks.can_end(e))
        marks.wait(e);
      else
        enliven(e.from);
    }
  }
  if (!has_words[net.root])
    fail_compile("so_unsatisfiable",
                 "no text satisfies the constraint: " + explain_empty(net, has_words, builder, budget));
  std::erase_if(net.edges, [&](rule_network::edge& e) {
    if (e.kind == edge_kind::loop && !has_words[net.loops[e.what].body] && net.loops[e.what].min == 0)
      e.kind = edge_kind::free;
    const std::optional<std::uint32_t> called = net.called_by(e);
    return !live[e.from] || !live[e.to] || (called && !has_words[*called]) ||
           (e.kind == edge_kind::leave && !marks.can_end(e));
  });
  marks.settle();
  index_edges(net, static_cast<std::uint32_t>(net.states()));
}

// Free edges that are the only one of their state are jumped over.
void shorten(rule_network& net) {
  const auto behind = [&](std::uint32_t s) {
    for (int hops = 0; hops < 64; ++hops) { // a bound against circles
      const auto out = net.edges_of(s);
      if (out.size() != 1 || out[0].kind != edge_kind::free)
        break;
      s = out[0].to;
    }
    return s;
  };
  for (rule_network::edge& e : net.edges)
    e.to = behind(e.to);
}

void classify_bytes(rule_network& net) {
  std::array<bool, 257> cut{};
  for (const rule_network::edge& e : net.edges)
    if (e.kind == edge_kind::bytes)
      cut[e.low] = cut[std::size_t{e.high} + 1] = true;
  std::uint8_t number = 0;
  net.byte_of_class.assign(1, 0);
  for (unsigned b = 0; b < 256; ++b) {
    if (b > 0 && cut[b]) {
      ++number;
      net.byte_of_class.push_back(static_cast<std::uint8_t>(b));
    }
    net.class_of[b] = number;
  }
}

} // namespace

void index_edges(rule_network& net, std::uint32_t states) {
  net.first.assign(states + 1, 0);
  for (const rule_network::edge& e : net.edges)
    ++net.first[e.from + 1];
  for (std::uint32_t s = 0; s < states; ++s)
    net.first[s + 1] += net.first[s];
  std::vector<rule_network::edge> sorted(net.edges.size());
  std::vector<std::uint32_t> at(net.first.begin(), net.first.end() - 1);
  for (const rule_network::edge& e : net.edges)
    sorted[at[e.from]++] = e;
  net.edges = std::move(sorted);
  net.is_end.assign(states, 0);
  for (const rule_network::rule& r : net.rules)
    net.is_end[r.end] = 1;
}

rule_network make_rule_network(const grammar_builder& builder, grammar_rule root, compile_budget& budget) {
  rule_network net = network_maker(builder, budget).make(root);
  find_openings(net); // before dead edges go: it lowers the minimum of loops whose rounds can be empty
  drop_dead_edges(net, builder, budget);
  find_openings(net);
  remove_left_recursion(net, budget);
  shorten(net);
  find_openings(net);
  rank_rules(net);
  classify_bytes(net);
  find_stand_ins(net, budget);
  budget.memory(net.bytes());
  return net;
}

std::size_t rule_network::bytes() const {
  std::size_t sum = sizeof(*this) + edges.size() * sizeof(edge) + first.size() * 4 + is_end.size() +
                    (stand_in.size() + uncounted_below.size()) * 4 + rules.size() * sizeof(rule) +
                    loops.size() * sizeof(loop) + marks.size() * sizeof(marked);
  for (const rule& r : rules)
    sum += r.opening.size() * 4;
  for (const byte_dfa& d : round_dfas)
    for (const byte_dfa::state& s : d.states)
      sum += sizeof(s) + s.out.size() * sizeof(byte_dfa::edge);
  for (const distinct& d : distincts)
    sum += sizeof(d) + d.values.size() * 4 + d.which.allowed.size() * 8;
  for (const token_list& t : token_lists)
    sum += t.ids.size() * 4;
  return sum;
}

} // namespace troupe
