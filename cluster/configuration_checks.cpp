#include "cluster/configuration_checks.hpp"
#include "cluster/certificates.hpp"
#include "cluster/layout.hpp"
#include "cluster/name_pattern.hpp"
#include "cluster/toml_values.hpp"
#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <sys/stat.h>

namespace troupe {

namespace {

// Of a cluster, and of a node or group: they are parts of the names of shared memory and of sockets.
constexpr std::size_t longest_name = 32, longest_part = 64;
constexpr std::string_view plain_characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

bool is_plain(std::string_view name, std::string_view more = "") {
  const std::string legal = std::string(plain_characters).append(more);
  return !name.empty() && name.find_first_not_of(legal) == name.npos;
}

bool is_wildcard(std::string_view address) {
  return address == "0.0.0.0" || address == "::";
}

// Keys that are read, checked and printed, and that nothing acts on yet. Of the sections of their own, all.
constexpr std::array sections_without_effect{std::string_view("elastic."), std::string_view("fault.")};
constexpr std::array keys_without_effect{std::string_view("control.health_port"),
                                         std::string_view("data.gpu"),
                                         std::string_view("eplb.backup"),
                                         std::string_view("eplb.interval"),
                                         std::string_view("eplb.load_period_steps"),
                                         std::string_view("eplb.max_moves"),
                                         std::string_view("eplb.min_gain"),
                                         std::string_view("eplb.min_replicas"),
                                         std::string_view("eplb.policy"),
                                         std::string_view("eplb.spread")};

bool is_without_effect(std::string_view key) {
  return std::ranges::find(keys_without_effect, key) != keys_without_effect.end() ||
         std::ranges::any_of(sections_without_effect, [&](std::string_view s) { return key.starts_with(s); });
}

// Values as they are written, by key: "eplb.policy". Not of nodes and groups.
std::map<std::string, std::string> values_of(const cluster_configuration& c) {
  std::map<std::string, std::string> values;
  std::istringstream text(to_toml(c));
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('['))
      section = line.substr(1, line.find(']') - 1);
    else if (const auto equals = line.find(" = "); equals != line.npos)
      values[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

class checker {
public:
  explicit checker(configuration_reading& reading) : r_(reading), c_(reading.configuration) {}

  void check() {
    check_cluster();
    check_nodes();
    check_groups();
    check_security();
    check_addresses();
    check_files();
    check_balancing();
    check_times();
    check_elastic();
    check_faults();
    if (names_known_)
      check_places();
    note_without_effect();
  }

private:
  void fault(const std::string& key, const std::string& value, const std::string& why, const std::string& remedy) {
    r_.faults.emplace_back(r_.source_of(key), key, value, why, remedy);
  }
  void fault(const std::string& key, std::int64_t value, const std::string& why, const std::string& remedy) {
    fault(key, std::to_string(value), why, remedy);
  }
  void note(std::string text) { r_.notes.push_back(std::move(text)); }
  static std::string key_of(const worker_group_section& g, const char* key) {
    return "worker_group." + g.name + "." + key;
  }

  // ---- cluster, nodes

  void check_cluster() {
    if (!is_plain(c_.cluster.name) || c_.cluster.name.size() > longest_name)
      fault("cluster.name", c_.cluster.name, "names of files and shared memory are made of this",
            fmt::format("give 1 to {} letters, digits, - and _", longest_name));
    if (!c_.cluster.state_dir.starts_with('/'))
      fault("cluster.state_dir", c_.cluster.state_dir, "processes start in different folders", "give an absolute path");
    if (c_.cluster.restart_backoff_ms > c_.cluster.restart_backoff_max_ms)
      fault("cluster.restart_backoff_ms", c_.cluster.restart_backoff_ms,
            fmt::format("it is above restart_backoff_max_ms = {}", c_.cluster.restart_backoff_max_ms), "give less");
    check_node_names("cluster.coordinators", c_.cluster.coordinators);
  }

  std::vector<std::string> node_names() const {
    std::vector<std::string> names;
    for (const node_section& n : c_.node)
      names.push_back(n.name);
    return names;
  }

  // The names of a key that lists nodes.
  void check_node_names(const std::string& key, const std::vector<std::string>& names) {
    const std::vector<std::string> known = node_names();
    std::set<std::string> seen;
    for (const std::string& name : names) {
      if (std::ranges::find(known, name) == known.end()) {
        names_known_ = false;
        fault(key, name, "there is no node of this name",
              known.size() <= 8 ? suggestion(name, known)
                                : fmt::format("there are {} to {}", known.front(), known.back()));
      } else if (!seen.insert(name).second && r_.origins.contains(key))
        fault(key, name, "the node is named twice", "leave one of them out");
    }
  }

  void check_nodes() {
    if (c_.node.empty()) {
      names_known_ = false;
      r_.faults.emplace_back(r_.file, "node", "", "there is no node", "add [[node]] with name and host");
    }
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < c_.node.size(); ++i) {
      const node_section& n = c_.node[i];
      const std::string place = r_.source_of(fmt::format("node[{}]", i));
      if (n.name.empty())
        r_.faults.emplace_back(place, fmt::format("node[{}].name", i), "", "the node has no name", "give one");
      else if (!is_plain(n.name, "."))
        fault("node." + n.name + ".name", n.name, "names of files are made of this",
              "give letters, digits, -, _ and dots");
      else if (n.name.size() > longest_part)
        fault("node." + n.name + ".name", n.name, "names of shared memory and of files are made of this",
              fmt::format("give at most {} characters", longest_part));
      else if (const auto [first, is_new] = seen.emplace(n.name, i); !is_new)
        r_.faults.emplace_back(place, "node." + n.name, "",
                               "there is a node of this name at " +
                                   r_.source_of(fmt::format("node[{}]", first->second)),
                               "give each node a name of its own");
    }
  }

  // ---- groups

  void check_groups() {
    if (c_.worker_group.empty())
      r_.faults.emplace_back(r_.file, "worker_group", "", "there is no worker group",
                             "add [[worker_group]] with name, engine and count");
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < c_.worker_group.size(); ++i) {
      const worker_group_section& g = c_.worker_group[i];
      const std::string index = fmt::format("worker_group[{}]", i), place = r_.source_of(index);
      if (!is_plain(g.name))
        r_.faults.emplace_back(place, index + ".name", g.name, "a group needs a name of letters, digits, - and _",
                               "give one");
      else if (g.name.size() > longest_part)
        fault("worker_group." + g.name + ".name", g.name, "names of shared memory and of files are made of this",
              fmt::format("give at most {} characters", longest_part));
      else if (const auto [first, is_new] = seen.emplace(g.name, i); !is_new)
        r_.faults.emplace_back(place, "worker_group." + g.name, "",
                               "there is a group of this name at " +
                                   r_.source_of(fmt::format("worker_group[{}]", first->second)),
                               "give each group a name of its own");
      check_node_names(key_of(g, "node"), g.node);
      check_shape(g);
    }
    check_roles();
  }

  void check_shape(const worker_group_section& g) {
    const int cp = g.context_parallel, dp = data_parallel_of(g), ep = g.expert_parallel, world = cp * dp;
    if (g.engine == engine_kind::completion && cp != 1)
      fault(key_of(g, "context_parallel"), cp, "an engine that computes no prompts has nothing to share", "give 1");
    if (world % ep != 0) {
      divisible_ = false;
      fault(key_of(g, "expert_parallel"), ep,
            fmt::format("it does not divide context_parallel x data_parallel = {} x {}", cp, dp),
            "give a divisor of it, or another data_parallel");
    }
    if (g.count % world != 0) {
      divisible_ = false;
      fault(key_of(g, "count"), g.count,
            fmt::format("it is no multiple of context_parallel x data_parallel = {} x {}", cp, dp),
            fmt::format("give {}", g.count < world ? world : g.count - g.count % world));
    }
  }

  void check_roles() {
    const auto first_of = [this](engine_kind e) {
      return std::ranges::find(c_.worker_group, e, &worker_group_section::engine);
    };
    const auto none = c_.worker_group.end();
    const auto prompt = first_of(engine_kind::prompt), completion = first_of(engine_kind::completion);
    if (prompt != none && completion == none)
      fault(key_of(*prompt, "engine"), "prompt", "no group takes over its prompts",
            "add a group with engine completion, or use normal");
    if (completion != none && prompt == none)
      fault(key_of(*completion, "engine"), "completion", "no group computes prompts for it",
            "add a group with engine prompt, or use normal");
    for (const worker_group_section& g : c_.worker_group)
      if (const auto first = first_of(g.engine); (g.device == "cuda") != (first->device == "cuda"))
        fault(
            key_of(g, "device"), g.device,
            fmt::format("group {} does the same work on {}, whose results have other bits", first->name, first->device),
            "use one of them for both");
  }

  // ---- who may talk

  bool several_hosts() const {
    return std::ranges::any_of(c_.node, [this](const node_section& n) { return n.host != c_.node.front().host; });
  }
  bool some_node_here() const {
    return std::ranges::any_of(c_.node, [](const node_section& n) { return is_this_machine(n.host); });
  }

  void check_security() {
    const security_section& s = c_.security;
    if (s.mode == security_mode::loopback) {
      for (const node_section& n : c_.node)
        if (!is_loopback(n.host)) {
          fault("node." + n.name + ".host", n.host, "with security.mode loopback processes listen on this machine only",
                "use 127.0.0.1, or security.mode = \"mutual\"");
          break; // the others are of the same kind
        }
      return;
    }
    for (const auto& [key, value] : {std::pair("security.ca", s.ca), std::pair("security.cert", s.cert),
                                     std::pair("security.key", s.key), std::pair("security.curve_dir", s.curve_dir)})
      if (value.empty())
        fault(key, "", "security.mode mutual needs it", "give a path; troupe keygen DIR makes the files");
    for (const node_section& n : c_.node)
      if (role_of(n.name) != key_role::node)
        fault("node." + n.name + ".name", n.name, "keys of this name are those of a role, which is no node's",
              "give the node another name");
    if (c_.cluster.launcher == launcher_kind::local)
      for (const node_section& n : c_.node)
        if (!is_this_machine(n.host)) {
          fault("node." + n.name + ".host", n.host, "launcher local starts processes on this machine only",
                "use launcher ssh, slurm, k8s or manual");
          break;
        }
  }

  void check_addresses() {
    for (const auto& [key, bind] : {std::pair("control.bind", c_.control.bind), std::pair("data.bind", c_.data.bind),
                                    std::pair("gateway.bind", c_.gateway.bind)})
      check_address(key, bind);
  }

  void check_address(const char* key, const std::string& bind) {
    const bool late = !interface_of(bind).empty(), loopback = c_.security.mode == security_mode::loopback;
    if (!late && !is_address(bind))
      return fault(key, bind, "this is no address",
                   "give an IPv4 or IPv6 address, or {ip:eth0} for that of an interface");
    if (late && !loopback && !some_node_here())
      return;
    const result<std::string> address = resolved_address(bind);
    if (!address)
      return fault(key, bind, address.failure().message, "name an interface of every host, or give an address");
    if (loopback && !is_loopback(*address))
      return fault(key, bind, "with security.mode loopback other machines must not reach it",
                   "use 127.0.0.1, or security.mode = \"mutual\" with keys");
    if (!loopback && is_loopback(*address) && several_hosts())
      fault(key, bind, "the other hosts cannot reach it", "give an address of the network, or {ip:eth0}");
  }

  // Key files lie on the hosts: only those of nodes on this machine can be looked at.
  void check_files() {
    if (c_.security.mode != security_mode::mutual)
      return;
    for (const std::string_view role : role_names) // need not be on every host
      if (const std::string key = with_node(c_.security.key, role); key != c_.security.key)
        if (struct stat info{}; ::stat(key.c_str(), &info) == 0)
          check_file("security.key", key, true);
    if (!some_node_here())
      return note("key files are not checked: none of the nodes is this machine");
    std::set<std::string> seen;
    for (const node_section& n : c_.node)
      if (is_this_machine(n.host))
        for (const auto& [key, path, secret] :
             {std::tuple("security.ca", c_.security.ca, false), std::tuple("security.cert", c_.security.cert, false),
              std::tuple("security.key", c_.security.key, true),
              std::tuple("security.curve_dir", c_.security.curve_dir, false)})
          if (const std::string file = with_node(path, n.name); !file.empty() && seen.insert(file).second)
            check_file(key, file, secret);
  }

  void check_file(const char* key, const std::string& file, bool secret) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0)
      fault(key, file, "there is no such file on this machine", "make it with troupe keygen, or correct the path");
    else if (secret && (info.st_mode & 077) != 0)
      fault(key, file, "others than its owner may use the private key", "chmod 600 " + file);
  }

  // Of the keys that were given another value than they have anyway.
  void note_without_effect() {
    const auto given = values_of(c_), usual = values_of({});
    std::string keys;
    for (const auto& [key, value] : given)
      if (const auto at = usual.find(key); is_without_effect(key) && (at == usual.end() || at->second != value))
        keys += (keys.empty() ? "" : ", ") + key;
    if (!keys.empty())
      note("nothing acts on these keys in this version: " + keys);
  }

  // ---- numbers that belong together

  void check_balancing() {
    const eplb_section& e = c_.eplb;
    if (e.interval != 0 && e.window > e.interval)
      fault("eplb.window", e.window,
            fmt::format("more steps than lie between two plans (eplb.interval = {})", e.interval),
            "give a window of at most the interval");
    const bool moves = e.interval != 0 && e.policy != "static";
    for (const worker_group_section& g : c_.worker_group) {
      if (g.expert_parallel == 1)
        continue;
      if (moves && e.min_extra == 0)
        return fault("eplb.min_extra", 0, "without a redundant expert no expert can move",
                     "give 1 or more, or eplb.policy = \"static\"");
      if (e.spread == replica_spread::node && g.node.size() == 1)
        note(fmt::format("group {} lies on one node: eplb.spread node keeps copies on different ranks there", g.name));
    }
    if (e.backup == expert_backup::peer_host && !c_.node.empty() && !several_hosts())
      note("eplb.backup peer_host has one host: lost experts come from the checkpoint");
  }

  struct timed {
    const char* key;
    std::int64_t ms;
  };
  // low < high, or low <= high; both are keys in ms.
  void check_order(timed low, timed high, bool strict, const std::string& why) {
    if (strict ? low.ms < high.ms : low.ms <= high.ms)
      return;
    const timed& named = r_.origins.contains(high.key) || !r_.origins.contains(low.key) ? high : low;
    const timed& other = named.key == high.key ? low : high;
    const bool raise = named.key == high.key;
    fault(named.key, named.ms, fmt::format("{} = {}: {}", other.key, other.ms, why),
          fmt::format("give {} {}", raise ? (strict ? "more than" : "at least") : (strict ? "less than" : "at most"),
                      other.ms));
  }

  void check_times() {
    const timeouts_section& t = c_.timeouts;
    check_order({"timeouts.hb_ms", t.hb_ms}, {"timeouts.suspect_ms", t.suspect_ms}, true,
                "a worker would be suspected between two heartbeats");
    check_order({"timeouts.suspect_ms", t.suspect_ms}, {"timeouts.dead_ms", t.dead_ms}, true,
                "a worker would be dead before it is suspected");
    check_order({"control.heartbeat_ms", c_.control.heartbeat_ms},
                {"control.connection_timeout_ms", c_.control.connection_timeout_ms}, true,
                "connections would be closed between two heartbeats");
    check_order({"control.connection_timeout_ms", c_.control.connection_timeout_ms}, {"timeouts.dead_ms", t.dead_ms},
                false, "a lost connection would be seen after its worker is dead");
    if (t.lease_renew_ms + t.lease_margin_ms >= t.lease_ms)
      fault("timeouts.lease_ms", t.lease_ms,
            fmt::format(
                "a leader stops lease_margin_ms = {} before its lease ends and renews it every lease_renew_ms = {}",
                t.lease_margin_ms, t.lease_renew_ms),
            fmt::format("give more than {}", t.lease_renew_ms + t.lease_margin_ms));
    check_order({"timeouts.suspect_ms", t.suspect_ms}, {"timeouts.prepare_ms", t.prepare_ms}, true,
                "a process would be dead for a view that it has not prepared before it is suspected");
    check_order({"timeouts.kv_renew_ms", t.kv_renew_ms}, {"timeouts.kv_lease_ms", t.kv_lease_ms}, true,
                "reservations would end before they are renewed");
  }

  void check_elastic() {
    const elastic_section& e = c_.elastic;
    if (e.down_kv_use >= e.up_kv_use)
      fault("elastic.down_kv_use", fmt::format("{}", e.down_kv_use),
            fmt::format("it is not below up_kv_use = {}: nodes would come and go", e.up_kv_use), "give less");
    check_bounds("decode", e.min_decode_nodes, e.max_decode_nodes, engine_kind::completion);
    check_bounds("prefill", e.min_prefill_nodes, e.max_prefill_nodes, engine_kind::prompt);
  }

  void check_bounds(const char* what, int low, int high, engine_kind role) {
    const std::string low_key = fmt::format("elastic.min_{}_nodes", what),
                      high_key = fmt::format("elastic.max_{}_nodes", what);
    std::set<std::string> nodes;
    for (const worker_group_section& g : c_.worker_group)
      if (g.engine == role || g.engine == engine_kind::normal)
        nodes.insert(g.node.begin(), g.node.end());
    const int most = static_cast<int>(nodes.size());
    if (high != 0 && low > high)
      fault(low_key, low, fmt::format("it is above {} = {}", high_key, high), "give less");
    for (const auto& [key, n] : {std::pair(low_key, low), std::pair(high_key, high)})
      if (n > most)
        fault(key, n, fmt::format("the groups that it is about name {} nodes", most),
              "give fewer, or add nodes to their group");
  }

  void check_faults() {
    if (!c_.fault.enabled)
      return;
    if (c_.cluster.profile == cluster_profile::production)
      fault("fault.enabled", "true", "a production cluster injects no faults",
            "set it to false, or cluster.profile = \"development\"");
    if (!c_.fault.schedule.empty() && !std::filesystem::exists(c_.fault.schedule))
      fault("fault.schedule", c_.fault.schedule, "there is no such file", "correct the path, or leave it out");
  }

  // ---- places and ports

  void check_places() {
    check_node_names("gateway.node", c_.gateway.node);
    if (!names_known_ || !divisible_)
      return;
    bool fit = true;
    std::map<std::string, int> taken;
    for (const worker_group_section& g : c_.worker_group)
      fit = check_gpus(g, taken) && fit;
    if (!fit)
      return;
    if (const auto layout = layout_of(c_))
      check_ports(*layout);
  }

  bool check_gpus(const worker_group_section& g, std::map<std::string, int>& taken) {
    if (!takes_gpus(g))
      return true;
    int left = g.count;
    for (const std::string& name : g.node) {
      const int here = std::min(left, std::ranges::find(c_.node, name, &node_section::name)->gpus - taken[name]);
      taken[name] += here;
      left -= here;
    }
    if (left > 0)
      fault(key_of(g, "count"), g.count,
            fmt::format("its {} have {} GPUs left for it", g.node.size() == 1 ? "node" : "nodes", g.count - left),
            "give fewer ranks, more nodes, or the node's gpus");
    return left == 0;
  }

  struct port_user {
    const char* key; // of the first port
    int first;
    std::string bind, name;
  };

  void check_ports(const cluster_layout& layout) {
    std::map<std::pair<std::string, int>, port_user> users;
    std::set<std::string> said; // one fault for each pair of keys, and each key beyond the last port
    const auto use = [&](std::size_t node, int port, const port_user& user) {
      if (port == 0)
        return;
      if (port > 65535) {
        if (said.insert(user.key).second)
          fault(user.key, user.first, fmt::format("{} would have port {}", user.name, port), "give a smaller one");
        return;
      }
      const auto [other, is_new] = users.try_emplace({c_.node[node].host, port}, user);
      const port_user& o = other->second;
      const bool same = o.bind == user.bind || is_wildcard(o.bind) || is_wildcard(user.bind);
      if (!is_new && same && said.insert(std::string(o.key) + user.key).second)
        fault(user.key, user.first,
              fmt::format("port {} of {} is also that of {} ({} = {})", port, user.name, o.name, o.key, o.first),
              "move one of them");
    };
    const auto control = [&](std::string name) {
      return port_user{"control.port", c_.control.port, c_.control.bind, std::move(name)};
    };
    for (const process_place& p : layout.node_agents)
      use(p.node, p.control_port, control("node " + c_.node[p.node].name));
    for (const process_place& p : layout.coordinators)
      use(p.node, p.control_port, control(fmt::format("coordinator {}", p.index)));
    for (const process_place& p : layout.gateways)
      use(p.node, p.control_port, control(fmt::format("gateway {}", p.index)));
    for (const rank_place& r : layout.ranks)
      use(r.node, r.control_port, control(fmt::format("rank {}", r.rank.value)));
    for (const rank_place& r : layout.ranks)
      use(r.node, r.data_port, {"data.port", c_.data.port, c_.data.bind, fmt::format("rank {}", r.rank.value)});
    for (const process_place& p : layout.gateways)
      use(p.node, p.port, {"gateway.port", c_.gateway.port, c_.gateway.bind, fmt::format("gateway {}", p.index)});
    for (const process_place& p : layout.node_agents)
      use(p.node, p.port,
          {"control.health_port", c_.control.health_port, c_.control.bind, "node " + c_.node[p.node].name});
  }

  configuration_reading& r_;
  const cluster_configuration& c_;
  bool names_known_ = true, divisible_ = true;
};

} // namespace

void check_configuration(configuration_reading& reading) {
  checker(reading).check();
}

std::optional<config_error> launch_fault(const configuration_reading& r) {
  const cluster_configuration& c = r.configuration;
  const auto fault = [&](const std::string& key, const std::string& value, const char* why, const char* remedy) {
    return config_error(r.source_of(key), key, value, why, remedy);
  };
  const launcher_kind by = c.cluster.launcher;
  if (by == launcher_kind::slurm || by == launcher_kind::k8s)
    return fault("cluster.launcher", std::string(text_of(by)), "is not built yet",
                 "use launcher = \"local\", \"ssh\" or \"manual\"");
  if (by != launcher_kind::local && c.control.port == 0)
    return fault("control.port", "0", "other hosts cannot know which ports are free here",
                 "give the first of the ports");
  const bool one_host = std::ranges::all_of(c.node, [&](const node_section& n) { return n.host == c.node[0].host; });
  for (const worker_group_section& g : c.worker_group) {
    const std::string group = "worker_group." + g.name;
    const auto [key, value] = g.expert_parallel > 1 ? std::pair(".expert_parallel", std::to_string(g.expert_parallel))
                              : g.context_parallel > 1
                                  ? std::pair(".context_parallel", std::to_string(g.context_parallel))
                                  : std::pair(".engine", std::string(text_of(g.engine)));
    if (!one_host && c.security.mode != security_mode::mutual &&
        (g.engine != engine_kind::normal || g.expert_parallel > 1 || g.context_parallel > 1))
      return fault(group + key, value, "caches and rows would travel between hosts unencrypted",
                   "use security.mode = \"mutual\" (troupe keygen makes the keys), or put all nodes on one host");
  }
  if (c.security.mode == security_mode::mutual && !c.data.encrypt)
    return fault("data.encrypt", "false", "bulk bytes between hosts are always encrypted in this version",
                 "leave it out");
  return std::nullopt;
}

} // namespace troupe
