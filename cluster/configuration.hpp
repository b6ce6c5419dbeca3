// One cluster as its configuration file describes it (cluster.md §3.13): plain values, one struct for each table of the
// file, one member for each key and under the key's name. configuration_keys.hpp says what each key means and may be;
// read_configuration fills it. Times end in their unit.
#pragma once
#include "cluster/security_mode.hpp"
#include "runtime/base/engine_options.hpp"
#include "runtime/experts/redundancy.hpp"
#include "runtime/experts/spread.hpp"
#include "runtime/scheduler/routing.hpp"
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// Choices. The texts of the file stand in the order of the enumerators.
enum class launcher_kind : std::uint8_t { local, ssh, slurm, k8s, manual };
enum class cluster_profile : std::uint8_t { development, production };
enum class host_carrier : std::uint8_t { shm, tcp };  // bulk bytes between processes of a host
enum class gpu_carrier : std::uint8_t { nccl, host }; // bulk bytes between GPUs
enum class expert_backup : std::uint8_t { none, peer_host };
enum class ledger_mode : std::uint8_t { memory, disk };

template <class E> struct choice_texts;
template <> struct choice_texts<launcher_kind> {
  static constexpr std::array<std::string_view, 5> of{"local", "ssh", "slurm", "k8s", "manual"};
};
template <> struct choice_texts<cluster_profile> {
  static constexpr std::array<std::string_view, 2> of{"development", "production"};
};
template <> struct choice_texts<security_mode> {
  static constexpr std::array<std::string_view, 2> of{"loopback", "mutual"};
};
template <> struct choice_texts<host_carrier> { static constexpr std::array<std::string_view, 2> of{"shm", "tcp"}; };
template <> struct choice_texts<gpu_carrier> { static constexpr std::array<std::string_view, 2> of{"nccl", "host"}; };
template <> struct choice_texts<replica_spread> {
  static constexpr std::array<std::string_view, 3> of{"none", "rank", "node"};
};
template <> struct choice_texts<expert_backup> {
  static constexpr std::array<std::string_view, 2> of{"none", "peer_host"};
};
template <> struct choice_texts<ledger_mode> { static constexpr std::array<std::string_view, 2> of{"memory", "disk"}; };
template <> struct choice_texts<engine_kind> {
  static constexpr std::array<std::string_view, 3> of{"normal", "prompt", "completion"};
};
template <class E> constexpr std::string_view text_of(E choice) {
  return choice_texts<E>::of[static_cast<std::size_t>(choice)];
}

// A span of time that may also be without end. Texts: "none", "250ms", "5s", "2min", and for a ledger "each" (0 ms).
struct limit_of_time {
  std::optional<std::int64_t> ms;
  bool operator==(const limit_of_time&) const = default;
};

struct cluster_section {
  std::string name = "troupe";
  std::string state_dir = "/var/tmp/troupe";
  launcher_kind launcher = launcher_kind::local;
  cluster_profile profile = cluster_profile::development;
  std::vector<std::string> coordinators; // nodes, the first leads first; filled with the first node if none is named
  bool adopt = true;                     // workers outlive their node agent, and a restarted one takes them over
  int orphan_exit_s = 60, join_timeout_s = 300;
  int max_restarts = 3, restart_window_s = 600, restart_backoff_ms = 1000, restart_backoff_max_ms = 30000;
  bool operator==(const cluster_section&) const = default;
};

struct security_section {
  security_mode mode = security_mode::loopback;
  std::string ca, cert, key, curve_dir; // paths; "{node}" stands for the node's name
  bool operator==(const security_section&) const = default;
};

struct control_section {
  std::string bind = "127.0.0.1"; // address or "{ip:INTERFACE}"
  int port = 47000;               // node agents, coordinators, gateways and workers count up from it; 0 = any
  int health_port = 0;            // node agents count up from it; 0 = none
  int heartbeat_ms = 500, connection_timeout_ms = 2000;
  int unacked_messages = 256; // to one peer
  bool operator==(const control_section&) const = default;
};

struct data_section {
  std::string bind = "127.0.0.1";
  int port = 48000; // workers count up from it; 0 = any
  host_carrier intra_host = host_carrier::shm;
  gpu_carrier gpu = gpu_carrier::nccl;
  bool encrypt = true;
  int waves = 2;          // parts of a layer's expert work, so that its transfers overlap with it
  int kv_credit_mib = 64; // of prompts' caches on their way
  bool operator==(const data_section&) const = default;
};

struct model_section {
  std::string path;                  // folder of the released layout; empty = the embedded model
  std::string config;                // folder whose config.json is used where `path` is not there
  std::optional<std::uint64_t> seed; // exactness.md §6
  int max_model_len = 0;             // 0 = the checkpoint's max_position_embeddings
  bool operator==(const model_section&) const = default;
};

struct eplb_section {
  std::string policy = "deepinfer";
  int min_extra = default_min_extra_experts; // redundant experts of a layer; rounded up to equal slots on every rank
  int window = 100, interval = 1000;         // steps; interval 0 = never on its own
  int load_period_steps = 32;                // between two reports of a rank
  double min_gain = 0.03;                    // of the predicted balancedness, below which nothing moves
  int max_moves = 0;                         // of one plan; 0 = as many as it has
  int min_replicas = 1;                      // of an expert, for policy fault_aware
  replica_spread spread = replica_spread::rank;
  expert_backup backup = expert_backup::none;
  int publish_interval_ms = 50;        // between two placement versions
  int copies_per_rank = 2;             // at once
  int migration_bandwidth_mb_s = 2000; // copied to a rank
  double step_growth = 0.1;            // of the step time, above which copies back off
  bool operator==(const eplb_section&) const = default;
};

struct ledger_section {
  ledger_mode mode = ledger_mode::memory;
  limit_of_time fsync{10};
  bool operator==(const ledger_section&) const = default;
};

struct node_section {
  std::string name, host;
  int gpus = 0;
  double gpu_memory_gib = 0, memory_gib = 0; // for checks; 0 = not said
  bool operator==(const node_section&) const = default;
};

struct worker_group_section {
  std::string name;
  engine_kind engine = engine_kind::normal;
  std::vector<std::string> node; // names; filled with all nodes if none is named
  int count = 1;                 // ranks, one process each
  std::string device = "cpu";    // cpu, reference, cuda, cuda-reference
  int context_parallel = 1, expert_parallel = 1;
  int data_parallel = 0; // engines in step; 0 (before reading) = expert_parallel / context_parallel, at least 1
  double gpu_memory_utilization = 0.9;
  std::map<std::string, std::string> options; // engine options of this group by name, over those of [engine]
  bool operator==(const worker_group_section&) const = default;
};

struct elastic_section {
  bool automatic = false;                         // key "auto"
  int min_decode_nodes = 0, max_decode_nodes = 0; // 0 = as launched
  int min_prefill_nodes = 0, max_prefill_nodes = 0;
  double up_kv_use = 0.85, down_kv_use = 0.4;
  int up_queue = 64, up_prefill_tokens = 65536; // waiting requests; waiting prompt tokens
  int up_s = 30, down_s = 300, cooldown_s = 120;
  bool operator==(const elastic_section&) const = default;
};

struct gateway_section {
  int count = 0;                 // processes; 0 = every client is its own gateway
  std::vector<std::string> node; // names; gateway i runs on node i mod n; filled with the coordinators if none is named
  std::string bind = "127.0.0.1";
  int port = 47800;                                   // gateways count up from it; 0 = any
  int queue_requests = 4096;                          // of a gateway: admitted, and not yet taken back by their clients
  std::int64_t queue_tokens = std::int64_t{64} << 20; // of these: prompts and max_tokens
  int max_attempts = 8;                               // of a request
  double kv_watermark = 0.9; // use of a completion worker's cache above which no prefill begins for it
  int unacked_tokens = 64;   // of a branch, that a worker may be ahead of its gateway
  bool operator==(const gateway_section&) const = default;
};

struct timeouts_section {
  int hb_ms = 200, suspect_ms = 1000, dead_ms = 3000;
  int request_ms = 2000, request_tries = 3;
  int lease_ms = 3000, lease_renew_ms = 1000, lease_margin_ms = 600;
  int prepare_ms = 5000, collect_ms = 2000;
  int step_decode_ms = 2000, step_prefill_ms = 30000;
  int kv_lease_ms = 30000, kv_renew_ms = 10000, handoff_ms = 60000;
  int migration_copy_ms = 60000, migration_sources = 3;
  int headless_max_s = 60;
  limit_of_time drain{};
  int stop_ms = 10000;
  bool operator==(const timeouts_section&) const = default;
};

struct fault_section {
  bool enabled = false;
  std::uint64_t seed = 0;
  std::string schedule; // TOML file
  bool operator==(const fault_section&) const = default;
};

// Every value is there: what the sources leave out has its default, name patterns are written out, and `engine` holds
// every engine option that has a value of its own (engine_option_text). Addresses keep "{ip:eth0}" and paths "{node}":
// they differ between hosts and are resolved there (name_pattern.hpp).
struct cluster_configuration {
  cluster_section cluster;
  security_section security;
  control_section control;
  data_section data;
  model_section model;
  std::map<std::string, std::string> engine; // by name, as text that set_engine_option takes
  eplb_section eplb;
  ledger_section ledger;
  std::vector<node_section> node; // a node's index is its place here
  std::vector<worker_group_section> worker_group;
  elastic_section elastic;
  gateway_section gateway;
  timeouts_section timeouts;
  fault_section fault;
  bool operator==(const cluster_configuration&) const = default;
};

// What an engine of this group is started with: [engine], the group's own options, the group's device and context
// parallelism, the model's path, seed and length.
engine_options options_of(const cluster_configuration& configuration, const worker_group_section& group);

// The configuration as TOML with every key; reading it gives an equal configuration.
std::string to_toml(const cluster_configuration& configuration);

// SHA-256, in hex, of that text without the keys whose values may differ between the hosts of one cluster (paths).
// Processes whose hashes differ do not work together.
std::string configuration_hash(const cluster_configuration& configuration);

struct configuration_sources {
  std::string file;              // or what messages call the text
  std::vector<std::string> set;  // "a.b=c", over the file
  environment_map environment{}; // TROUPE_A__B and the variables of the original engine, over these
  // Folder for an absent model.path, <root>/models/NAME; relative paths that are neither beside the working directory
  // nor beside the file are looked up under this root.
  std::string default_model{};
  std::optional<std::string> text{}; // in place of what the file holds
};

// What was read. `faults` has one entry for each thing to correct; with any of them `configuration` is not to be used.
struct configuration_reading {
  std::string file;
  cluster_configuration configuration;
  std::vector<config_error> faults;           // in the order in which they were found
  std::vector<std::string> notes;             // what could not be checked here, or acts otherwise than one may think
  std::map<std::string, std::string> origins; // of keys that a source gave ("worker_group.decode.count"): "FILE:LINE"
  std::string source_of(const std::string& key) const; // the file for a key that none gave
};

// Reads everything and checks it as far as that goes without the model. Throws nothing: a file that cannot be read is a
// fault too.
configuration_reading read_configuration(const configuration_sources& sources);

} // namespace troupe
