// troupe check: what a cluster file stands for, or what is wrong with it.
#include "actors/llm.hpp"
#include "actors/speculation_options.hpp"
#include "cli/engine_settings.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include "cluster/group_memory.hpp"
#include "cluster/layout.hpp"
#include "cluster/toml_values.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>
#include <sstream>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr double gibibyte = 1 << 30;

struct checked_cluster {
  configuration_reading reading;
  cluster_layout layout;
  cluster_model model;
  std::vector<group_memory> memory; // empty if the model is not known
};

// What engines say about their options, which depends on the model.
void check_engines(configuration_reading& r, const model_config& model) {
  std::map<std::string, bool> said;
  for (const worker_group_section& g : r.configuration.worker_group)
    try {
      const engine_options o = options_of(r.configuration, g);
      resolved_yoco(o, model);
      checked_speculation(o, model.num_nextn_predict_layers > 0 ? model.dspark_block_size : 0);
    } catch (const config_error& e) {
      const std::string key = "engine." + e.key, text = std::string("engine.") + e.what();
      if (said.emplace(text, true).second)
        r.faults.emplace_back(r.source_of(key), "", "", text, "");
    }
}

void note_devices(configuration_reading& r) {
  std::vector<std::string> names;
  for (const worker_group_section& g : r.configuration.worker_group)
    if (g.device == "cuda")
      names.push_back(g.name);
  if (!names.empty())
    r.notes.push_back(fmt::format("this build has no device cuda: it checks {} {}, but cannot run {}",
                                  names.size() == 1 ? "group" : "groups", listed(names),
                                  names.size() == 1 ? "it" : "them"));
}

checked_cluster checked(const check_options& o) {
  checked_cluster c{read_configuration({o.file, o.set, process_environment(), default_model_folder()}), {}, {}, {}};
  if (!c.reading.faults.empty())
    return c;
  auto layout = layout_of(c.reading.configuration);
  if (!layout) {
    c.reading.faults.emplace_back(o.file, "", "", layout.failure().message, "");
    return c;
  }
  c.layout = std::move(*layout);
  note_devices(c.reading);
  c.model = cluster_model::find(c.reading);
  if (c.model.config) {
    check_engines(c.reading, *c.model.config);
    c.memory = memory_of_groups(c.reading, *c.model.config);
  }
  return c;
}

// ---- text, as comments behind the TOML

std::string counted(std::int64_t n, const std::string& what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string port_text(int port) {
  return port == 0 ? "any port" : fmt::format("port {}", port);
}

std::string experts_text(const group_memory& m, const model_config& model) {
  if (m.extra_experts == 0)
    return fmt::format("{} experts of each layer on every rank", m.expert_slots);
  return fmt::format("{} + {} redundant experts of each layer, {} slots a rank", model.n_routed_experts,
                     m.extra_experts, m.expert_slots);
}

std::string group_text(const checked_cluster& c, std::size_t i) {
  const worker_group_section& g = c.reading.configuration.worker_group[i];
  const group_layout& l = c.layout.groups[i];
  std::string text =
      fmt::format("#   {}: {} on {}, {}", g.name, text_of(g.engine), g.device,
                  l.ranks == 1 ? fmt::format("rank {}", l.first_rank)
                               : fmt::format("ranks {} to {}", l.first_rank, l.first_rank + l.ranks - 1));
  text += fmt::format("; {} of {}, {} in step; {} of {}\n", counted(l.engines, "engine"),
                      counted(g.context_parallel, "rank"), l.data_parallel, counted(l.expert_groups, "expert group"),
                      counted(g.expert_parallel, "rank"));
  if (!c.memory.empty())
    text += "#     " + experts_text(c.memory[i], *c.model.config) + "\n";
  return text;
}

std::string node_text(const checked_cluster& c, std::size_t i) {
  const node_section& n = c.reading.configuration.node[i];
  std::string text =
      fmt::format("#   {} ({}): node agent {}", n.name, n.host, port_text(c.layout.node_agents[i].control_port));
  if (const int health = c.layout.node_agents[i].port; health != 0)
    text += fmt::format(", health port {}", health);
  for (const process_place& p : c.layout.coordinators)
    if (p.node == i)
      text += fmt::format("; coordinator {} {}", p.index, port_text(p.control_port));
  for (const process_place& p : c.layout.gateways)
    if (p.node == i)
      text += fmt::format("; gateway {} {}, for clients {}", p.index, port_text(p.control_port), port_text(p.port));
  return text + "\n";
}

std::string rank_text(const checked_cluster& c, const rank_place& r) {
  const cluster_configuration& k = c.reading.configuration;
  const worker_group_section& g = k.worker_group[r.group];
  std::string text = fmt::format("#   rank {}: {} {} on {}", r.rank.value, g.name, r.index, k.node[r.node].name);
  if (r.gpu)
    text += fmt::format(" GPU {}", *r.gpu);
  text += fmt::format(", engine {}", r.engine);
  if (g.context_parallel > 1)
    text += fmt::format(" part {}", r.cp_rank);
  if (g.expert_parallel > 1)
    text += fmt::format(", experts {}", r.ep_rank);
  return text + fmt::format(", control {}, data {}\n", port_text(r.control_port), port_text(r.data_port));
}

std::string memory_text(const checked_cluster& c, std::size_t i) {
  const worker_group_section& g = c.reading.configuration.worker_group[i];
  const group_memory& m = c.memory[i];
  const memory_plan& p = m.rank;
  const auto line = [](const std::string& what, std::int64_t bytes) {
    return fmt::format("#   {:<62} {:>9.3f} GiB\n", what, static_cast<double>(bytes) / gibibyte);
  };
  const int kv_blocks = options_of(c.reading.configuration, g).kv_blocks;
  std::string text = fmt::format("# memory of a rank of {}\n", g.name);
  text += line("backbone", p.backbone);
  text += line(fmt::format("routed experts, {} slots in each layer", m.expert_slots), p.experts);
  text += line("drafter", p.drafter);
  text += line(fmt::format("rotary tables, {} positions", p.max_model_len), p.rotary_tables);
  text += line("buffers of a step", p.step_buffers);
  text += line(counted(p.state_slots, "state slot"), p.state_slots * p.slot_bytes);
  text += line("newest tokens and drafts", p.decode_state);
  if (kv_blocks > 0)
    text += line(fmt::format("{} KV blocks of {} bytes", kv_blocks, p.block_bytes), m.kv_bytes(kv_blocks));
  text += line(kv_blocks > 0 ? "together" : fmt::format("together, without KV blocks of {} bytes", p.block_bytes),
               p.fixed() + m.kv_bytes(kv_blocks));
  if (p.kv_blocks)
    text += fmt::format("#   {} KV blocks fit into a GPU beside this\n", *p.kv_blocks);
  return text;
}

std::string layout_text(const checked_cluster& c) {
  std::string text = "# hash " + configuration_hash(c.reading.configuration) + "\n# worker groups\n";
  for (std::size_t i = 0; i < c.layout.groups.size(); ++i)
    text += group_text(c, i);
  text += "# nodes\n";
  for (std::size_t i = 0; i < c.layout.node_agents.size(); ++i)
    text += node_text(c, i);
  text += "# ranks\n";
  for (const rank_place& r : c.layout.ranks)
    text += rank_text(c, r);
  for (std::size_t i = 0; i < c.memory.size(); ++i)
    text += memory_text(c, i);
  if (!c.memory.empty())
    text += fmt::format("# memory of a host, shared by its ranks\n#   {:<62} {:>9.3f} GiB\n", "Engram tables",
                        static_cast<double>(c.memory.front().rank.engram_tables) / gibibyte);
  for (const std::string& note : c.reading.notes)
    text += "# note: " + note + "\n";
  return text;
}

// ---- JSON

json group_json(const checked_cluster& c, std::size_t i) {
  const worker_group_section& g = c.reading.configuration.worker_group[i];
  const group_layout& l = c.layout.groups[i];
  json group{{"name", g.name},
             {"engine", text_of(g.engine)},
             {"first_rank", l.first_rank},
             {"ranks", l.ranks},
             {"engines", l.engines},
             {"data_parallel", l.data_parallel},
             {"device", g.device},
             {"expert_groups", l.expert_groups}};
  if (c.memory.empty())
    return group;
  const group_memory& m = c.memory[i];
  const memory_plan& p = m.rank;
  group["extra_experts"] = m.extra_experts;
  group["expert_slots"] = m.expert_slots;
  group["rank_memory"] = {{"backbone", p.backbone},
                          {"experts", p.experts},
                          {"drafter", p.drafter},
                          {"rotary_tables", p.rotary_tables},
                          {"step_buffers", p.step_buffers},
                          {"state_slots", p.state_slots},
                          {"slot_bytes", p.slot_bytes},
                          {"decode_state", p.decode_state},
                          {"fixed", p.fixed()},
                          {"block_bytes", p.block_bytes},
                          {"kv_blocks_that_fit", p.kv_blocks ? json(*p.kv_blocks) : json(nullptr)},
                          {"host_engram_tables", p.engram_tables}};
  return group;
}

json places_json(const std::vector<process_place>& places, const cluster_configuration& k, const char* port) {
  json all = json::array();
  for (const process_place& p : places) {
    json one{{"index", p.index}, {"node", k.node[p.node].name}, {"control_port", p.control_port}};
    if (port != nullptr)
      one[port] = p.port;
    all.push_back(std::move(one));
  }
  return all;
}

json ranks_json(const checked_cluster& c) {
  const cluster_configuration& k = c.reading.configuration;
  json all = json::array();
  for (const rank_place& r : c.layout.ranks)
    all.push_back({{"rank", r.rank.value},
                   {"group", k.worker_group[r.group].name},
                   {"node", k.node[r.node].name},
                   {"gpu", r.gpu ? json(*r.gpu) : json(nullptr)},
                   {"engine", r.engine},
                   {"cp_rank", r.cp_rank},
                   {"dp_group", r.dp_group},
                   {"dp_rank", r.dp_rank},
                   {"ep_group", r.ep_group},
                   {"ep_rank", r.ep_rank},
                   {"control_port", r.control_port},
                   {"data_port", r.data_port}});
  return all;
}

json report(const checked_cluster& c, const std::string& toml_text) {
  std::ostringstream configuration;
  configuration << toml::json_formatter(toml::parse(toml_text));
  json groups = json::array();
  for (std::size_t i = 0; i < c.layout.groups.size(); ++i)
    groups.push_back(group_json(c, i));
  const cluster_configuration& k = c.reading.configuration;
  return {{"hash", configuration_hash(k)},
          {"configuration", json::parse(configuration.str())},
          {"groups", groups},
          {"node_agents", places_json(c.layout.node_agents, k, "health_port")},
          {"coordinators", places_json(c.layout.coordinators, k, nullptr)},
          {"gateways", places_json(c.layout.gateways, k, "port")},
          {"ranks", ranks_json(c)},
          {"notes", c.reading.notes}};
}

json faults_json(const std::vector<config_error>& faults) {
  json all = json::array();
  for (const config_error& e : faults)
    all.push_back({{"file", e.file}, {"key", e.key}, {"value", e.value}, {"message", e.what()}});
  return {{"faults", all}};
}

} // namespace

int run_check(const check_options& o) {
  const checked_cluster c = checked(o);
  const bool correct = c.reading.faults.empty();
  for (const config_error& e : c.reading.faults)
    spdlog::error("{}", e.what());
  std::string text;
  if (correct) {
    const std::string toml_text = to_toml(c.reading.configuration);
    text = o.json ? report(c, toml_text).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                  : toml_text + "\n" + layout_text(c);
  } else if (o.json)
    text = faults_json(c.reading.faults).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  line_writer out(open_output("-"));
  if (!text.empty() && !succeeded(out.write_text(text)))
    return exit_request_failed;
  return correct ? exit_ok : exit_usage;
}

} // namespace troupe
