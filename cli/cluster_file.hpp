// A cluster's configuration file for the verbs that start, reach or stop processes of the cluster.
#pragma once
#include "actors/cluster_system.hpp"
#include "cli/options.hpp"
#include "cluster/certificates.hpp"
#include <memory>

namespace troupe {

struct loaded_cluster {
  cluster_file file; // as other processes of this host can read it, if they can
  configuration_reading reading;
  cluster_configuration configuration;
  cluster_layout layout;
  std::shared_ptr<const state_dir> state;
};

// The file "-" stands for a configuration that troupe remote sends on standard input, which stays open as long as that
// process holds on to this one. Throws config_error with the first fault; every further one is logged before.
loaded_cluster load_cluster(const cluster_file& file);
// Likewise, of a process that leaves something in the cluster's state_dir.
loaded_cluster enter_cluster(const cluster_file& file);
// Of a cluster that runs: its file, or ADDRESS:PORT of a coordinator, which then tells the configuration.
loaded_cluster load_running(const cluster_file& where);

// The workers of each engine that gives out tokens, by name. Ranks that share experts or compute prompts together give
// out none without one another.
std::vector<std::vector<std::string>> engine_workers_of(const loaded_cluster& c);

// The name of a key that is on this machine and good for that: of the least such role, or of a node. Throws
// config_error if there is none. Without keys (security.mode loopback) the name says nothing.
std::string key_name_for(const cluster_configuration& c, key_role least);

// What troupe remote sends.
std::string sent_configuration(const std::string& toml);

// The record of this process for as long as the object lives.
class own_record {
public:
  // Throws config_error if a process of that name runs already.
  own_record(std::shared_ptr<const state_dir> state, std::string name, std::uint64_t incarnation, const endpoint& at,
             const std::string& configuration);
  // What the constructor would throw, before anything is begun that a second process must not begin.
  static void check_free(const state_dir& state, const std::string& name);
  ~own_record();
  own_record(const own_record&) = delete;
  own_record& operator=(const own_record&) = delete;

private:
  std::shared_ptr<const state_dir> state_;
  std::string name_;
};

// Actors for one question to the coordinators, or to the one of them that leads.
class coordinator_client {
public:
  explicit coordinator_client(const cluster_identity& cluster);
  ~coordinator_client();
  result<cluster_status> status();
  result<configuration_text> configuration();
  // Told, not done; now: what runs is not waited for. Code not_allowed: it is not for who has this key.
  troupe::status stop(bool now);
  result<ack> migrate(troupe::migrate what);

private:
  std::vector<std::pair<membership_actor, cluster_status>> reach(error& why);
  cluster_identity cluster_;
  cluster_system_config config_;
  bounded_system system_{config_};
};

// This binary.
std::string own_path();

} // namespace troupe
