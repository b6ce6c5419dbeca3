#include "runtime/grammar/left_recursion.hpp"
#include "runtime/base/check.hpp"
#include <algorithm>

namespace troupe {

namespace {

using edge = rule_network::edge;
using edge_kind = rule_network::edge_kind;

// Rules that can begin a rule, by rule.
std::vector<std::vector<std::uint32_t>> beginnings(const rule_network& net) {
  std::vector<std::vector<std::uint32_t>> out(net.rules.size());
  for (std::uint32_t r = 0; r < net.rules.size(); ++r) {
    for (const std::uint32_t s : net.rules[r].opening)
      for (const edge& e : net.edges_of(s))
        if (e.kind == edge_kind::call)
          out[r].push_back(e.what);
        else if (e.kind == edge_kind::loop)
          out[r].push_back(net.loops[e.what].body);
        else if (e.kind == edge_kind::pick)
          out[r].insert(out[r].end(), net.distincts[e.what].values.begin(), net.distincts[e.what].values.end());
        else if (e.kind == edge_kind::mark)
          out[r].push_back(net.marks[e.what].rule);
    std::sort(out[r].begin(), out[r].end());
    out[r].erase(std::unique(out[r].begin(), out[r].end()), out[r].end());
  }
  return out;
}

// Tarjan's strongly connected components without recursion. A component gets its number after all that it leads to.
struct components {
  std::vector<std::uint32_t> of; // number of the component, by rule
  std::uint32_t count = 0;

  explicit components(const std::vector<std::vector<std::uint32_t>>& next) : of(next.size(), unset) {
    const auto n = static_cast<std::uint32_t>(next.size());
    std::vector<std::uint32_t> order(n, unset), low(n), stack, at(n);
    std::vector<std::uint32_t> path;
    std::uint32_t time = 0;
    for (std::uint32_t root = 0; root < n; ++root) {
      if (order[root] != unset)
        continue;
      path.push_back(root);
      while (!path.empty()) {
        const std::uint32_t v = path.back();
        if (order[v] == unset) {
          order[v] = low[v] = time++;
          stack.push_back(v);
        }
        bool descended = false;
        for (; at[v] < next[v].size(); ++at[v]) {
          const std::uint32_t w = next[v][at[v]];
          if (order[w] == unset) {
            path.push_back(w);
            descended = true;
            break;
          }
          if (of[w] == unset)
            low[v] = std::min(low[v], low[w]);
        }
        if (descended)
          continue;
        path.pop_back();
        if (!path.empty())
          low[path.back()] = std::min(low[path.back()], low[v]);
        if (low[v] != order[v])
          continue;
        for (std::uint32_t w = unset; w != v;) {
          w = stack.back();
          stack.pop_back();
          of[w] = count;
        }
        ++count;
      }
    }
  }
  static constexpr std::uint32_t unset = UINT32_MAX;
};

// The left-corner transform of one group of rules that begin with each other. A word of rule A starts with something
// that belongs to no rule of the group, inside some rule X of it; where X ends, every rule Y of the group that can
// begin with X goes on behind that X; and where A ends, the word may end. So A's new automaton is a copy of all
// automata of the group, entered behind their first readings, and with free edges from each end of X to behind X in
// each Y.
class group_rewriter {
public:
  group_rewriter(rule_network& net, std::vector<std::uint32_t> group, compile_budget& budget)
      : net_(net), group_(std::move(group)), budget_(budget) {}

  void run(std::vector<edge>& added, std::uint32_t& states) {
    added_ = &added;
    states_ = &states;
    collect();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> borders; // new start and end, by rule
    for (const std::uint32_t goal : group_)
      borders.push_back(copy_for(goal));
    for (std::size_t i = 0; i < group_.size(); ++i) {
      net_.rules[group_[i]].start = borders[i].first;
      net_.rules[group_[i]].end = borders[i].second;
    }
  }

private:
  struct behind { // what can follow a rule of the group that begins another one
    std::uint32_t first_rule, state;
  };

  bool in_group(std::uint32_t rule) const { return std::binary_search(group_.begin(), group_.end(), rule); }
  std::uint32_t add_state() {
    budget_.states(1);
    budget_.memory(sizeof(edge) + 16);
    return (*states_)++;
  }

  void collect() {
    for (const std::uint32_t x : group_) {
      // all states of x, by search from the start
      std::vector<std::uint32_t> found{net_.rules[x].start};
      std::vector<std::uint32_t> seen_list = found;
      if (seen_.size() < net_.states())
        seen_.resize(net_.states());
      seen_[found[0]] = 1;
      while (!found.empty()) {
        const std::uint32_t s = found.back();
        found.pop_back();
        for (const edge& e : net_.edges_of(s)) {
          inner_.push_back(e);
          if (!seen_[e.to]) {
            seen_[e.to] = 1;
            found.push_back(e.to);
            seen_list.push_back(e.to);
          }
        }
      }
      members_.insert(members_.end(), seen_list.begin(), seen_list.end());
      for (const std::uint32_t s : net_.rules[x].opening)
        for (const edge& e : net_.edges_of(s))
          open(e);
    }
  }

  // An edge that can be the first reading of a word of its rule.
  void open(const edge& e) {
    switch (e.kind) {
    case edge_kind::free:
    case edge_kind::leave:
      return;
    case edge_kind::mark:
      TROUPE_CHECK(!in_group(net_.marks[e.what].rule), "a member begins with the list that it belongs to");
      first_.push_back(e);
      return;
    case edge_kind::pick:
      for (const std::uint32_t value : net_.distincts[e.what].values)
        TROUPE_CHECK(!in_group(value), "a value begins with the list that it is one of");
      [[fallthrough]];
    case edge_kind::bytes:
    case edge_kind::tokens:
      first_.push_back(e);
      return;
    case edge_kind::call:
      begin_with(e.what, e.to);
      return;
    case edge_kind::loop: { // its first round, then the rest
      const rule_network::loop l = net_.loops[e.what];
      std::uint32_t rest = e.to;
      if (l.max > 1) {
        rest = add_state();
        members_.push_back(rest);
        inner_.push_back({rest, e.to, static_cast<std::uint32_t>(net_.loops.size()), 0, 0, edge_kind::loop});
        net_.loops.push_back({l.body, l.min > 0 ? l.min - 1 : 0, l.max == unbounded ? unbounded : l.max - 1, l.table});
      }
      begin_with(l.body, rest);
      return;
    }
    }
  }

  void begin_with(std::uint32_t rule, std::uint32_t then) {
    if (in_group(rule))
      behind_.push_back({rule, then});
    else
      first_.push_back({0, then, rule, 0, 0, edge_kind::call, true}); // its empty word was stepped over before
  }

  std::pair<std::uint32_t, std::uint32_t> copy_for(std::uint32_t goal) {
    const std::uint32_t start = add_state(), end = add_state();
    if (copy_.size() < *states_)
      copy_.resize(*states_);
    for (const std::uint32_t s : members_)
      copy_[s] = add_state();
    for (edge e : inner_) {
      budget_.work();
      e.from = copy_[e.from];
      e.to = copy_[e.to];
      added_->push_back(e);
    }
    for (edge e : first_) {
      e.from = start;
      e.to = copy_[e.to];
      added_->push_back(e);
    }
    for (const behind& b : behind_)
      added_->push_back({copy_[net_.rules[b.first_rule].end], copy_[b.state]});
    added_->push_back({copy_[net_.rules[goal].end], end});
    return {start, end};
  }

  rule_network& net_;
  std::vector<std::uint32_t> group_; // sorted
  compile_budget& budget_;
  std::vector<edge>* added_ = nullptr;
  std::uint32_t* states_ = nullptr;
  std::vector<std::uint32_t> members_, copy_;
  std::vector<std::uint8_t> seen_;
  std::vector<edge> inner_, first_;
  std::vector<behind> behind_;
};

} // namespace

void remove_left_recursion(rule_network& net, compile_budget& budget) {
  const auto next = beginnings(net);
  const components groups(next);
  std::vector<std::vector<std::uint32_t>> members(groups.count);
  for (std::uint32_t r = 0; r < net.rules.size(); ++r)
    members[groups.of[r]].push_back(r);
  std::vector<edge> added;
  auto states = static_cast<std::uint32_t>(net.states());
  for (auto& group : members) {
    const std::uint32_t r = group[0];
    if (group.size() > 1 || std::binary_search(next[r].begin(), next[r].end(), r))
      group_rewriter(net, std::move(group), budget).run(added, states);
  }
  if (added.empty())
    return;
  net.edges.insert(net.edges.end(), added.begin(), added.end());
  index_edges(net, states);
}

void rank_rules(rule_network& net) {
  const auto next = beginnings(net);
  const components groups(next);
  TROUPE_CHECK(groups.count == net.rules.size(), "a rule still begins with itself");
  for (std::uint32_t r = 0; r < net.rules.size(); ++r)
    net.rules[r].rank = groups.count - 1 - groups.of[r];
}

} // namespace troupe
