#include "runtime/experts/eplb_policy.hpp"
#include <algorithm>
#include <numeric>
#include <string>

namespace troupe {

namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

struct packing {
  std::vector<std::int32_t> pack, position; // of each item
};

// Equally many items to each pack, the heaviest first, each to the lightest pack with room.
packing pack(const std::vector<float>& weight, std::int32_t packs) {
  const auto items = static_cast<std::int32_t>(weight.size());
  const std::int32_t each = items / packs;
  packing out{std::vector<std::int32_t>(weight.size()), std::vector<std::int32_t>(weight.size())};
  if (each == 1) {
    std::iota(out.pack.begin(), out.pack.end(), 0);
    return out;
  }
  std::vector<std::int32_t> order(weight.size()), filled(index(packs));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weight[index(a)] > weight[index(b)]; });
  std::vector<float> sum(index(packs));
  for (const std::int32_t item : order) {
    std::int32_t best = -1;
    for (std::int32_t p = 0; p < packs; ++p)
      if (filled[index(p)] < each && (best < 0 || sum[index(p)] < sum[index(best)]))
        best = p;
    out.pack[index(item)] = best;
    out.position[index(item)] = filled[index(best)]++;
    sum[index(best)] += weight[index(item)];
  }
  return out;
}

struct replicas {
  std::vector<std::int32_t> item, rank, count; // of each slot: what, the how-many-th; of each item: how many
};

replicas replicate(const std::vector<float>& weight, std::int32_t slots) {
  replicas out;
  out.count.assign(weight.size(), 1);
  for (std::int32_t i = 0; i < slots; ++i) {
    if (i < static_cast<std::int32_t>(weight.size())) {
      out.item.push_back(i);
      out.rank.push_back(0);
      continue;
    }
    std::size_t best = 0;
    for (std::size_t e = 1; e < weight.size(); ++e)
      if (weight[e] / static_cast<float>(out.count[e]) > weight[best] / static_cast<float>(out.count[best]))
        best = e;
    out.item.push_back(static_cast<std::int32_t>(best));
    out.rank.push_back(out.count[best]++);
  }
  return out;
}

std::string unsuitable(std::int32_t experts, const eplb_shape& s) {
  const auto divides = [](std::int32_t a, std::int32_t b) { return a >= 1 && b % a == 0; };
  if (!divides(s.groups, experts))
    return std::to_string(experts) + " experts are not divisible by " + std::to_string(s.groups) + " groups";
  if (!divides(s.nodes, s.groups))
    return std::to_string(s.groups) + " groups are not divisible by " + std::to_string(s.nodes) + " nodes";
  if (!divides(s.nodes, s.ranks))
    return std::to_string(s.ranks) + " ranks are not divisible by " + std::to_string(s.nodes) + " nodes";
  if (s.ranks * s.slots_per_rank < experts)
    return std::to_string(s.ranks * s.slots_per_rank) + " slots do not hold " + std::to_string(experts) + " experts";
  return {};
}

// Experts node by node: entry i is the expert that stands at place i.
std::vector<std::int32_t> by_node(std::span<const float> weights, const eplb_shape& shape) {
  const auto experts = static_cast<std::int32_t>(weights.size());
  const std::int32_t group = experts / shape.groups, groups_per_node = shape.groups / shape.nodes;
  std::vector<float> sums(index(shape.groups));
  for (std::int32_t e = 0; e < experts; ++e)
    sums[index(e / group)] += weights[index(e)];
  const packing nodes = pack(sums, shape.nodes);
  std::vector<std::int32_t> out(weights.size());
  for (std::int32_t e = 0; e < experts; ++e) {
    const std::int32_t g = e / group;
    out[index((nodes.pack[index(g)] * groups_per_node + nodes.position[index(g)]) * group + e % group)] = e;
  }
  return out;
}

} // namespace

result<layer_layout> place_eplb(std::span<const float> weights, const eplb_shape& shape) {
  const auto experts = static_cast<std::int32_t>(weights.size());
  if (const std::string why = unsuitable(experts, shape); !why.empty())
    return error{"policy_unsuitable", "eplb: " + why + "; choose eplb_global or deepinfer"};
  const std::vector<std::int32_t> order = by_node(weights, shape);
  const std::int32_t ranks = shape.ranks / shape.nodes, slots = ranks * shape.slots_per_rank;
  const std::int32_t node_experts = experts / shape.nodes;
  layer_layout out;
  out.expert_of.resize(index(slots * shape.nodes));
  out.replicas.resize(weights.size());
  for (std::int32_t node = 0; node < shape.nodes; ++node) {
    const std::int32_t* at = order.data() + index(node * node_experts);
    std::vector<float> w;
    for (std::int32_t i = 0; i < node_experts; ++i)
      w.push_back(weights[index(at[i])]);
    const replicas r = replicate(w, slots);
    std::vector<float> share;
    for (const std::int32_t i : r.item)
      share.push_back(w[index(i)] / static_cast<float>(r.count[index(i)]));
    const packing p = pack(share, ranks);
    for (std::int32_t i = 0; i < slots; ++i) {
      const std::int32_t e = at[r.item[index(i)]];
      const std::int32_t slot = node * slots + p.pack[index(i)] * shape.slots_per_rank + p.position[index(i)];
      out.expert_of[index(slot)] = e;
      out.replicas[index(e)].push_back(slot); // made in order of their rank
    }
  }
  return out;
}

} // namespace troupe
