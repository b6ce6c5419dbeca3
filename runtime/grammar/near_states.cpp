#include "runtime/grammar/near_states.hpp"
#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace troupe {

namespace {

using edge_kind = rule_network::edge_kind;

constexpr std::uint32_t counting_states = 16; // rules with fewer are not worth the comparison

// Moore's refinement, stopped after near_bytes rounds: two states of one class can read the same texts of so many bytes
// and end their rule behind the same ones, since every edge that is compared reads a byte or more.
class near_classes {
public:
  near_classes(const rule_network& net, std::vector<std::uint32_t> states, compile_budget& budget)
      : net_(net), states_(std::move(states)), budget_(budget), place_(net.states(), none) {
    for (std::uint32_t i = 0; i < states_.size(); ++i)
      place_[states_[i]] = i;
    views_.resize(states_.size());
    for (std::uint32_t i = 0; i < states_.size(); ++i)
      look(i);
  }

  // By state of the list: the first one of its class.
  std::vector<std::uint32_t> run() {
    std::vector<std::uint32_t> classes(states_.size()), next(states_.size()), first;
    std::size_t count = 1;
    for (std::uint32_t round = 0; round < near_bytes; ++round) {
      first.clear();
      std::unordered_map<std::uint64_t, std::uint32_t> index; // hash, moved on where two differ: class
      index.reserve(2 * count);
      for (std::uint32_t i = 0; i < states_.size(); ++i) {
        budget_.work(1 + views_[i].edges.size());
        for (std::uint64_t key = hash_of(i, classes);; ++key) {
          const auto [at, fresh] = index.try_emplace(key, static_cast<std::uint32_t>(first.size()));
          if (fresh)
            first.push_back(i);
          else if (!alike(first[at->second], i, classes))
            continue;
          next[i] = at->second;
          break;
        }
      }
      classes.swap(next);
      if (first.size() == count)
        break;
      count = first.size();
    }
    std::vector<std::uint32_t> out(states_.size());
    for (std::uint32_t i = 0; i < states_.size(); ++i)
      out[i] = states_[first[classes[i]]];
    return out;
  }

private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct view {
    std::vector<rule_network::edge> edges; // that read something, behind free ones too; sorted
    bool ends = false;
    bool alone = false; // counts, or can pass a rule without reading: compared with no other
  };

  void look(std::uint32_t i) {
    view& v = views_[i];
    std::vector<std::uint32_t> reached{states_[i]};
    for (std::size_t k = 0; k < reached.size(); ++k) {
      budget_.work(1 + reached.size() / 16);
      v.ends |= net_.is_end[reached[k]] != 0;
      for (const rule_network::edge& e : net_.edges_of(reached[k])) {
        if (e.kind == edge_kind::free) {
          if (std::find(reached.begin(), reached.end(), e.to) == reached.end())
            reached.push_back(e.to);
          continue;
        }
        const bool counts = e.kind == edge_kind::mark && net_.marks[e.what].marks.counts;
        v.alone |= e.kind == edge_kind::loop || e.kind == edge_kind::pick || (e.kind == edge_kind::mark && !counts) ||
                   e.kind == edge_kind::leave || e.kind == edge_kind::tokens ||
                   (e.kind == edge_kind::call && net_.rules[e.what].can_be_empty) || place_[e.to] == none;
        v.edges.push_back(e);
        if (counts) { // compared for small counts only, which allow every reading
          v.edges.back().kind = edge_kind::call;
          v.edges.back().what = net_.marks[e.what].rule;
        }
      }
    }
    std::sort(v.edges.begin(), v.edges.end(), [](const rule_network::edge& a, const rule_network::edge& b) {
      return std::tie(a.kind, a.what, a.low, a.high, a.to) < std::tie(b.kind, b.what, b.low, b.high, b.to);
    });
  }

  std::uint64_t hash_of(std::uint32_t i, const std::vector<std::uint32_t>& classes) const {
    const view& v = views_[i];
    std::uint64_t h = v.alone ? i + 2 : v.ends ? 1 : 0;
    for (const rule_network::edge& e : v.edges) {
      h = (h ^ (std::uint64_t{e.what} << 18 | std::uint64_t{e.low} << 10 | std::uint64_t{e.high} << 2 |
                static_cast<std::uint64_t>(e.kind == edge_kind::call))) *
          0x9E3779B97F4A7C15u;
      h = (h ^ (h >> 29) ^ (v.alone ? 0 : classes[place_[e.to]])) * 0xBF58476D1CE4E5B9u;
    }
    return h ^ (h >> 32);
  }

  bool alike(std::uint32_t a, std::uint32_t b, const std::vector<std::uint32_t>& classes) const {
    const view &va = views_[a], &vb = views_[b];
    return !va.alone && !vb.alone && va.ends == vb.ends &&
           std::equal(va.edges.begin(), va.edges.end(), vb.edges.begin(), vb.edges.end(),
                      [&](const rule_network::edge& x, const rule_network::edge& y) {
                        return x.kind == y.kind && x.what == y.what && x.low == y.low && x.high == y.high &&
                               classes[place_[x.to]] == classes[place_[y.to]];
                      });
  }

  const rule_network& net_;
  std::vector<std::uint32_t> states_;
  compile_budget& budget_;
  std::vector<std::uint32_t> place_; // in the list, by state of the network
  std::vector<view> views_;
};

void find_small_counts(rule_network& net) {
  for (const rule_network::state_range& r : net.text_rules) {
    std::uint64_t least = 0; // room of a reading that counts
    for (std::uint32_t i = net.first[r.begin]; i < net.first[r.end]; ++i)
      if (const rule_network::edge& e = net.edges[i]; e.kind == edge_kind::mark && net.marks[e.what].marks.counts)
        least = least == 0 ? net.marks[e.what].marks.room : std::min(least, net.marks[e.what].marks.room);
    if (least <= near_bytes)
      continue;
    net.uncounted_below.resize(net.states());
    std::fill(net.uncounted_below.begin() + r.begin, net.uncounted_below.begin() + r.end,
              static_cast<std::uint32_t>(std::min<std::uint64_t>(least - near_bytes, UINT32_MAX)));
  }
}

} // namespace

void find_stand_ins(rule_network& net, compile_budget& budget) {
  if (net.text_rules.empty())
    return;
  net.stand_in.assign(net.states(), rule_network::no_text);
  std::vector<std::uint32_t> counting;
  for (const rule_network::state_range& r : net.text_rules)
    for (std::uint32_t s = r.begin; s < r.end; ++s) {
      net.stand_in[s] = s;
      if (r.end - r.begin > counting_states)
        counting.push_back(s);
    }
  budget.memory(4 * net.states());
  find_small_counts(net);
  if (counting.empty())
    return;
  const std::vector<std::uint32_t> first = near_classes(net, counting, budget).run();
  for (std::size_t i = 0; i < counting.size(); ++i)
    net.stand_in[counting[i]] = first[i];
}

} // namespace troupe
