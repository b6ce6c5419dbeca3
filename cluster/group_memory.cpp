#include "cluster/group_memory.hpp"
#include "cluster/layout.hpp"
#include "cluster/name_pattern.hpp"
#include "runtime/experts/redundancy.hpp"
#include "runtime/model/check_checkpoint.hpp"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

namespace troupe {

namespace {

constexpr double gibibyte = 1 << 30;

class memory_checker {
public:
  memory_checker(configuration_reading& reading, const model_config& model)
      : r_(reading), c_(reading.configuration), model_(model) {}

  std::vector<group_memory> groups() {
    if (c_.model.max_model_len > model_.max_position_embeddings)
      fault("model.max_model_len", c_.model.max_model_len,
            fmt::format("the model has {} positions", model_.max_position_embeddings), "give less, or 0");
    std::vector<group_memory> all;
    for (const worker_group_section& g : c_.worker_group)
      all.push_back(of_group(g));
    return all;
  }

private:
  void fault(const std::string& key, std::int64_t value, const std::string& why, const std::string& remedy) {
    r_.faults.emplace_back(r_.source_of(key), key, std::to_string(value), why, remedy);
  }

  group_memory of_group(const worker_group_section& g) {
    group_memory m;
    const int experts = model_.n_routed_experts;
    const std::string key = "worker_group." + g.name + ".";
    if (g.expert_parallel > experts) {
      fault(key + "expert_parallel", g.expert_parallel, fmt::format("the model has {} routed experts", experts),
            "give fewer ranks");
      return m;
    }
    m.extra_experts = g.expert_parallel == 1 ? 0 : extra_experts(experts, c_.eplb.min_extra, g.expert_parallel);
    m.expert_slots = (experts + m.extra_experts) / g.expert_parallel;
    const engine_options o = options_of(c_, g);
    memory_question q;
    q.ep = g.expert_parallel;
    q.expert_slots = m.expert_slots;
    q.max_num_seqs = o.max_num_seqs;
    q.max_num_batched_tokens = o.max_num_batched_tokens;
    q.max_model_len = std::min(o.max_model_len, model_.max_position_embeddings);
    q.rejection = o.verify == "rejection";
    q.defers_drafter = g.device == "cpu" && o.nextn.value_or(1) > 0 && o.varlen.value_or(true);
    if (const double gib = device_memory(g); gib > 0)
      q.device_bytes = static_cast<std::int64_t>(gib * gibibyte * g.gpu_memory_utilization);
    m.rank = plan_memory(model_, q);
    check(g, o, m);
    return m;
  }

  // GiB of the smallest GPU of the group's nodes; 0 if one of them does not say.
  double device_memory(const worker_group_section& g) const {
    double least = 0;
    for (const node_section& n : c_.node)
      if (takes_gpus(g) && std::ranges::find(g.node, n.name) != g.node.end()) {
        if (n.gpu_memory_gib == 0)
          return 0;
        least = least == 0 ? n.gpu_memory_gib : std::min(least, n.gpu_memory_gib);
      }
    return least;
  }

  void check(const worker_group_section& g, const engine_options& o, const group_memory& m) {
    const std::string key = "worker_group." + g.name + ".";
    if (o.kv_blocks > 0 && o.kv_blocks < m.rank.blocks_of_a_request())
      fault(key + "kv_blocks", o.kv_blocks,
            fmt::format("a request of {} tokens takes {}", m.rank.max_model_len, m.rank.blocks_of_a_request()),
            "give so many, 0, or a smaller model.max_model_len");
    if (!m.rank.kv_blocks)
      return;
    const std::int64_t fit = *m.rank.kv_blocks;
    if (fit < 0)
      fault(key + "count", g.count,
            fmt::format("a rank takes {:.3f} GiB before its first KV block, {:.3f} GiB more than its GPU gives",
                        static_cast<double>(m.rank.fixed()) / gibibyte, static_cast<double>(-fit) / gibibyte),
            "share the experts among more ranks, or give fewer max_num_seqs");
    else if (fit < std::max<std::int64_t>(o.kv_blocks, m.rank.blocks_of_a_request()))
      fault(key + "kv_blocks", o.kv_blocks, fmt::format("{} blocks fit into a GPU beside the rest", fit),
            "give fewer, a smaller model.max_model_len or fewer max_num_seqs");
  }

  configuration_reading& r_;
  const cluster_configuration& c_;
  const model_config& model_;
};

} // namespace

cluster_model cluster_model::find(configuration_reading& reading) {
  const model_section& m = reading.configuration.model;
  cluster_model found;
  try {
    if (std::filesystem::exists(m.path + "/config.json")) {
      found.folder = m.path;
      const checkpoint_check check = check_checkpoint({m.path, true}, [](std::int64_t, std::int64_t) { return true; });
      found.config = check.config;
      if (check.fault_count() > 0)
        reading.faults.emplace_back(reading.source_of("model.path"), "model.path", m.path,
                                    fmt::format("the checkpoint has {} faults, first: {}: {}", check.fault_count(),
                                                check.faults.front().names.front(), check.faults.front().kind),
                                    "troupe check-model --index-only lists them");
      return found;
    }
    const auto& nodes = reading.configuration.node;
    const auto here = std::ranges::find_if(nodes, [](const node_section& n) { return is_this_machine(n.host); });
    if (here != nodes.end())
      throw config_error(reading.source_of("model.path"), "model.path", m.path,
                         "it has no config.json on this machine, which is node " + here->name,
                         "give the folder of a checkpoint, or leave it out for the embedded model");
    if (!m.config.empty()) {
      found.folder = m.config;
      found.config = load_config(m.config);
      reading.notes.push_back("the checkpoint is not checked: " + m.path + " is not on this machine; " + m.config +
                              " says what model it is");
      return found;
    }
    reading.notes.push_back("redundant experts and memory are not derived: the model " + m.path +
                            " is not on this machine, and model.config names no other folder with its config.json");
  } catch (const config_error& e) {
    reading.faults.push_back(e);
  }
  return found;
}

std::vector<group_memory> memory_of_groups(configuration_reading& reading, const model_config& model) {
  return memory_checker(reading, model).groups();
}

} // namespace troupe
