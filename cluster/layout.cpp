#include "cluster/layout.hpp"
#include <algorithm>
#include <fmt/format.h>

namespace troupe {

namespace {

class layout_maker {
public:
  explicit layout_maker(const cluster_configuration& c) : c_(c), gpus_used_(c.node.size(), 0) {}

  result<cluster_layout> make() {
    place_processes();
    for (std::size_t g = 0; g < c_.worker_group.size() && fault_.message.empty(); ++g)
      place_group(g);
    if (!fault_.message.empty())
      return fault_;
    number_ports();
    return std::move(out_);
  }

private:
  std::size_t node_of(const std::string& name) {
    const auto found = std::ranges::find(c_.node, name, &node_section::name);
    if (found == c_.node.end() && fault_.message.empty())
      fault_ = {"unknown_node", "there is no node " + name};
    return found == c_.node.end() ? 0 : static_cast<std::size_t>(found - c_.node.begin());
  }

  void place_processes() {
    for (std::size_t i = 0; i < c_.node.size(); ++i)
      out_.node_agents.push_back(
          {i, i, 0, c_.control.health_port == 0 ? 0 : c_.control.health_port + static_cast<int>(i)});
    for (std::size_t i = 0; i < c_.cluster.coordinators.size(); ++i)
      out_.coordinators.push_back({i, node_of(c_.cluster.coordinators[i]), 0, 0});
    for (std::size_t i = 0; i < static_cast<std::size_t>(c_.gateway.count) && !c_.gateway.node.empty(); ++i)
      out_.gateways.push_back({i, node_of(c_.gateway.node[i % c_.gateway.node.size()]), 0,
                               c_.gateway.port == 0 ? 0 : c_.gateway.port + static_cast<int>(i)});
  }

  // The node of each rank of a group, in the order of ranks.
  std::vector<std::size_t> nodes_of_ranks(const worker_group_section& g) {
    std::vector<std::size_t> nodes;
    const int n = static_cast<int>(g.node.size());
    for (int i = 0; i < n; ++i) {
      const std::size_t node = node_of(g.node[static_cast<std::size_t>(i)]);
      const int left = g.count - static_cast<int>(nodes.size());
      const int share = takes_gpus(g) ? std::min(left, c_.node[node].gpus - gpus_used_[node])
                                      : g.count / n + (i < g.count % n ? 1 : 0);
      nodes.insert(nodes.end(), static_cast<std::size_t>(std::max(0, share)), node);
    }
    return nodes;
  }

  void place_group(std::size_t index) {
    const worker_group_section& g = c_.worker_group[index];
    const std::vector<std::size_t> nodes = nodes_of_ranks(g);
    if (!fault_.message.empty())
      return;
    if (nodes.size() < static_cast<std::size_t>(g.count)) {
      fault_ = {"too_few_gpus", fmt::format("{} ranks of {} find {} GPUs on its nodes", g.count, g.name, nodes.size())};
      return;
    }
    const int dp = data_parallel_of(g);
    out_.groups.push_back(
        {out_.ranks.size(), nodes.size(), g.count / g.context_parallel, dp, g.count / g.expert_parallel});
    for (int i = 0; i < g.count; ++i) {
      rank_place r;
      r.rank = rank_id(static_cast<std::uint32_t>(out_.ranks.size()));
      r.group = index;
      r.node = nodes[static_cast<std::size_t>(i)];
      if (takes_gpus(g))
        r.gpu = gpus_used_[r.node]++;
      r.index = i;
      r.engine = i / g.context_parallel;
      r.cp_rank = i % g.context_parallel;
      r.dp_group = r.engine / dp;
      r.dp_rank = r.engine % dp;
      r.ep_group = i / g.expert_parallel;
      r.ep_rank = i % g.expert_parallel;
      out_.ranks.push_back(r);
    }
  }

  void number_ports() {
    int control = c_.control.port, data = c_.data.port;
    const auto next = [](int& port) { return port == 0 ? 0 : port++; };
    for (auto* kind : {&out_.node_agents, &out_.coordinators, &out_.gateways})
      for (process_place& p : *kind)
        p.control_port = next(control);
    for (rank_place& r : out_.ranks) {
      r.control_port = next(control);
      r.data_port = next(data);
    }
  }

  const cluster_configuration& c_;
  std::vector<int> gpus_used_; // of each node
  cluster_layout out_;
  error fault_;
};

} // namespace

int data_parallel_of(const worker_group_section& group) {
  return group.data_parallel > 0 ? group.data_parallel : std::max(1, group.expert_parallel / group.context_parallel);
}

bool takes_gpus(const worker_group_section& group) {
  return group.device == "cuda" || group.device == "cuda-reference";
}

result<cluster_layout> layout_of(const cluster_configuration& configuration) {
  return layout_maker(configuration).make();
}

} // namespace troupe
