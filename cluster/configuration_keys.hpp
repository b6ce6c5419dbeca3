// Every key of a cluster file, once: name, meaning, legal values, member. Reading, writing, the hash and the list of
// keys all walk over this (cluster.md §3.11, §3.13).
#pragma once
#include "cluster/configuration.hpp"
#include <span>
#include <type_traits>

namespace troupe {

struct configuration_key {
  const char* name;
  const char* help;
  double low = 0, high = 0;                    // of a number
  std::span<const std::string_view> allowed{}; // of a text; empty = any
  enum class content : std::uint8_t { plain, node_names, path } holds = content::plain;
};

inline constexpr double largest = 1e9;
inline constexpr std::array<std::string_view, 5> policy_names{"deepinfer", "eplb_global", "eplb_hier", "static",
                                                              "fault_aware"};
inline constexpr std::array<std::string_view, 4> device_names{"cpu", "reference", "cuda", "cuda-reference"};

template <class S, class T>
concept section = std::is_same_v<std::remove_const_t<S>, T>;

constexpr configuration_key numbered(const char* name, double low, double high, const char* help) {
  return {name, help, low, high};
}
constexpr configuration_key path_key(const char* name, const char* help) {
  return {name, help, 0, 0, {}, configuration_key::content::path};
}
constexpr configuration_key nodes_key(const char* name, const char* help) {
  return {name, help, 0, 0, {}, configuration_key::content::node_names};
}

template <section<cluster_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"name", "names the cluster's shared memory, logs and state; one cluster of a name on a host"}, s.name);
  v(path_key("state_dir", "folder for logs, leases and process files on every host"), s.state_dir);
  v({"launcher", "what starts the processes"}, s.launcher);
  v({"profile", "production refuses fault injection"}, s.profile);
  v(nodes_key("coordinators", "nodes with a coordinator; the others stand by (default: the first node)"),
    s.coordinators);
  v({"adopt", "workers outlive their node agent, and a restarted one takes them over"}, s.adopt);
  v(numbered("orphan_exit_s", 1, 86400, "a worker or gateway without node agent and coordinator ends"),
    s.orphan_exit_s);
  v(numbered("join_timeout_s", 1, 86400, "a request waits for an engine"), s.join_timeout_s);
  v(numbered("max_restarts", 0, 1000, "of a worker within the window"), s.max_restarts);
  v(numbered("restart_window_s", 1, 86400, "in which restarts are counted"), s.restart_window_s);
  v(numbered("restart_backoff_ms", 0, 600000, "before the first restart; doubles with each"), s.restart_backoff_ms);
  v(numbered("restart_backoff_max_ms", 0, 600000, "before a restart at most"), s.restart_backoff_max_ms);
}

template <section<security_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"mode", "loopback: this machine only; mutual: TLS and CURVE with keys on both sides"}, s.mode);
  v(path_key("ca", "certificate of the cluster's own authority"), s.ca);
  v(path_key("cert", "certificate of a node; {node} stands for its name"), s.cert);
  v(path_key("key", "its private key, readable by its owner only"), s.key);
  v(path_key("curve_dir", "folder of the CURVE keys"), s.curve_dir);
}

template <section<control_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"bind", "address of control messages, or {ip:INTERFACE}"}, s.bind);
  v(numbered("port", 0, 65535, "first port: node agents, coordinators, gateways, workers; 0 = any"), s.port);
  v(numbered("health_port", 0, 65535, "first port of /livez and /readyz, one for each node agent; 0 = none"),
    s.health_port);
  v(numbered("heartbeat_ms", 10, 60000, "between two signs of life on an idle connection"), s.heartbeat_ms);
  v(numbered("connection_timeout_ms", 20, 600000, "of silence that close a connection"), s.connection_timeout_ms);
  v(numbered("unacked_messages", 1, 1 << 20, "to one peer, before senders wait"), s.unacked_messages);
}

template <section<data_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"bind", "address of bulk bytes, or {ip:INTERFACE}"}, s.bind);
  v(numbered("port", 0, 65535, "first port, one for each worker; 0 = any"), s.port);
  v({"intra_host", "carrier between processes of a host"}, s.intra_host);
  v({"gpu", "carrier between GPUs of a group"}, s.gpu);
  v({"encrypt", "CURVE for bulk bytes between hosts; false only on a fabric of one's own"}, s.encrypt);
  v(numbered("waves", 1, 16, "parts of a layer's expert work, whose transfers overlap"), s.waves);
  v(numbered("kv_credit_mib", 1, 1 << 16, "of a KV stream on its way"), s.kv_credit_mib);
}

template <section<model_section> S, class V> void visit_keys(S& s, V&& v) {
  v(path_key("path", "folder of the released layout (default: the embedded model)"), s.path);
  v(path_key("config", "folder whose config.json stands for the model's where path is not there"), s.config);
  v({"seed", "makes the seeds of requests a function of their ids (default: drawn)"}, s.seed);
  v(numbered("max_model_len", 0, 1 << 24, "tokens of prompt and output; 0 = as the model allows"), s.max_model_len);
}

template <section<eplb_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"policy", "places the experts", 0, 0, policy_names}, s.policy);
  v(numbered("min_extra", 0, 1 << 20, "redundant experts of a layer at least"), s.min_extra);
  v(numbered("window", 1, 1 << 20, "steps whose load counts"), s.window);
  v(numbered("interval", 0, 1 << 30, "steps between two plans; 0 = never on its own"), s.interval);
  v(numbered("load_period_steps", 1, 1 << 20, "steps between two load reports of a rank"), s.load_period_steps);
  v(numbered("min_gain", 0, 1, "of predicted balancedness, below which nothing moves"), s.min_gain);
  v(numbered("max_moves", 0, largest, "of one plan; 0 = as many as it has"), s.max_moves);
  v(numbered("min_replicas", 1, 2, "of every expert, for policy fault_aware"), s.min_replicas);
  v({"spread", "two copies of an expert never share a rank, or a node"}, s.spread);
  v({"backup", "experts that a host keeps in memory for its neighbour"}, s.backup);
  v(numbered("publish_interval_ms", 0, 60000, "between two placement versions"), s.publish_interval_ms);
  v(numbered("copies_per_rank", 1, 64, "at once"), s.copies_per_rank);
  v(numbered("migration_bandwidth_mb_s", 1, largest, "of experts that are copied to a rank"),
    s.migration_bandwidth_mb_s);
  v(numbered("step_growth", 0, 10, "of the step time, above which copies back off"), s.step_growth);
}

template <section<ledger_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"mode", "disk: requests survive their gateway"}, s.mode);
  v({"fsync", "none, each, or the time between two, like 10ms"}, s.fsync);
}

template <section<node_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"name", "name, or a pattern like gpu[001-017]"}, s.name);
  v({"host", "host name or address (default: the name)"}, s.host);
  v(numbered("gpus", 0, 1024, "that the cluster may use"), s.gpus);
  v(numbered("gpu_memory_gib", 0, 1 << 20, "of one GPU, for checks; 0 = not said"), s.gpu_memory_gib);
  v(numbered("memory_gib", 0, 1 << 20, "of the host, for checks; 0 = not said"), s.memory_gib);
}

// Besides these, a group takes the engine options of group_option_names.
template <section<worker_group_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"name", "name of the group"}, s.name);
  v({"engine", "normal: prompts and outputs; prompt or completion: one of them"}, s.engine);
  v(nodes_key("node", "nodes that carry its ranks, names or patterns (default: all)"), s.node);
  v(numbered("count", 1, 8192, "ranks, one process each"), s.count);
  v({"device", "of its ranks; GPUs of a node are given out in the order of ranks", 0, 0, device_names}, s.device);
  v(numbered("context_parallel", 1, 64, "ranks that compute one prompt together"), s.context_parallel);
  v(numbered("expert_parallel", 1, 8192, "ranks that share the experts"), s.expert_parallel);
  v(numbered("data_parallel", 0, 8192, "engines in step; 0 = expert_parallel / context_parallel"), s.data_parallel);
  v(numbered("gpu_memory_utilization", 0.01, 1, "share of a GPU's memory that is used"), s.gpu_memory_utilization);
}

template <section<elastic_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"auto", "nodes are added and drained by load"}, s.automatic);
  v(numbered("min_decode_nodes", 0, 8192, "0 = as launched"), s.min_decode_nodes);
  v(numbered("max_decode_nodes", 0, 8192, "0 = as launched"), s.max_decode_nodes);
  v(numbered("min_prefill_nodes", 0, 8192, "0 = as launched"), s.min_prefill_nodes);
  v(numbered("max_prefill_nodes", 0, 8192, "0 = as launched"), s.max_prefill_nodes);
  v(numbered("up_kv_use", 0, 1, "use of the KV cache above which a node is added"), s.up_kv_use);
  v(numbered("down_kv_use", 0, 1, "use of the KV cache below which one is drained"), s.down_kv_use);
  v(numbered("up_queue", 1, largest, "waiting requests that add a decode node"), s.up_queue);
  v(numbered("up_prefill_tokens", 1, largest, "waiting prompt tokens that add a prefill node"), s.up_prefill_tokens);
  v(numbered("up_s", 1, 86400, "so long before a node is added"), s.up_s);
  v(numbered("down_s", 1, 86400, "so long before one is drained"), s.down_s);
  v(numbered("cooldown_s", 0, 86400, "between two changes"), s.cooldown_s);
}

template <section<gateway_section> S, class V> void visit_keys(S& s, V&& v) {
  v(numbered("count", 0, 256, "gateway processes; 0 = every client is its own"), s.count);
  v(nodes_key("node", "nodes that carry them in turn (default: those of the coordinators)"), s.node);
  v({"bind", "address for clients, or {ip:INTERFACE}"}, s.bind);
  v(numbered("port", 0, 65535, "first port, one for each gateway; 0 = any"), s.port);
  v(numbered("queue_requests", 1, largest, "of one gateway, before more are refused (overloaded)"), s.queue_requests);
  v(numbered("queue_tokens", 1, 1e15, "of these requests, prompts and max_tokens"), s.queue_tokens);
  v(numbered("max_attempts", 1, 1000, "of a request, before it fails"), s.max_attempts);
  v(numbered("kv_watermark", 0.01, 1, "use of a completion worker's cache above which no prefill begins for it"),
    s.kv_watermark);
  v(numbered("unacked_tokens", 6, 1 << 20, "of a branch, that a worker may be ahead of its gateway"), s.unacked_tokens);
}

template <section<timeouts_section> S, class V> void visit_keys(S& s, V&& v) {
  const auto ms = [&](const char* name, auto& field, const char* help) { v(numbered(name, 1, 86400000, help), field); };
  ms("hb_ms", s.hb_ms, "between two heartbeats of a worker");
  ms("suspect_ms", s.suspect_ms, "without one: no new work");
  ms("dead_ms", s.dead_ms, "without one: dead");
  ms("request_ms", s.request_ms, "a control request may take");
  v(numbered("request_tries", 1, 100, "of a control request"), s.request_tries);
  ms("lease_ms", s.lease_ms, "a leader's lease");
  ms("lease_renew_ms", s.lease_renew_ms, "between two renewals of it");
  ms("lease_margin_ms", s.lease_margin_ms, "before its end a leader stops acting");
  ms("prepare_ms", s.prepare_ms, "all may take to prepare a view of the members; who has not then is dead");
  ms("collect_ms", s.collect_ms, "a new leader waits for the processes that others know of");
  ms("step_decode_ms", s.step_decode_ms, "a decode step may take");
  ms("step_prefill_ms", s.step_prefill_ms, "a prefill step may take");
  ms("kv_lease_ms", s.kv_lease_ms, "a reservation of cache blocks holds");
  ms("kv_renew_ms", s.kv_renew_ms, "between two renewals of it");
  ms("handoff_ms", s.handoff_ms, "a prompt's hand-over may take");
  ms("migration_copy_ms", s.migration_copy_ms, "a copy of an expert may take");
  v(numbered("migration_sources", 1, 100, "that are tried for it"), s.migration_sources);
  v(numbered("headless_max_s", 1, 86400, "without a coordinator, then workers take no steps until one is back"),
    s.headless_max_s);
  v({"drain", "none, or how long a drain waits before it moves requests, and a stop before it ends them, like 10min"},
    s.drain);
  ms("stop_ms", s.stop_ms, "a process may take to stop, before it is killed");
}

template <section<fault_section> S, class V> void visit_keys(S& s, V&& v) {
  v({"enabled", "faults may be injected"}, s.enabled);
  v(numbered("seed", 0, 0, "of the random ones"), s.seed);
  v(path_key("schedule", "TOML file of faults, beside this file"), s.schedule);
}

// Sections by name in the order of the file, without the lists node and worker_group and the table engine.
template <section<cluster_configuration> C, class F> void visit_sections(C& c, F&& f) {
  f("cluster", c.cluster);
  f("security", c.security);
  f("control", c.control);
  f("data", c.data);
  f("model", c.model);
  f("eplb", c.eplb);
  f("ledger", c.ledger);
  f("elastic", c.elastic);
  f("gateway", c.gateway);
  f("timeouts", c.timeouts);
  f("fault", c.fault);
}

// Engine options that a group may have for itself: none of them changes a token.
inline constexpr std::array<std::string_view, 14> group_option_names{"threads",
                                                                     "max-num-seqs",
                                                                     "max-num-batched-tokens",
                                                                     "chunked-prefill",
                                                                     "async",
                                                                     "spec-curve",
                                                                     "prefix-cache",
                                                                     "prefix-snapshots",
                                                                     "snapshot-interval",
                                                                     "kv-blocks",
                                                                     "decode-steps-between",
                                                                     "prefill-fill-tokens",
                                                                     "ttft-bound-steps",
                                                                     "ageing-steps"};

// Engine options that a cluster file has elsewhere: option, and the key that stands for it.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 8> options_elsewhere{{
    {"model", "model.path"},
    {"seed", "model.seed"},
    {"max-model-len", "model.max_model_len"},
    {"device", "worker_group.device"},
    {"engines", "worker_group.data_parallel"},
    {"ep", "worker_group.expert_parallel"},
    {"cp", "worker_group.context_parallel"},
    {"group-sync", "worker_group.data_parallel"},
}};

} // namespace troupe
