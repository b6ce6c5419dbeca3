// What the processes of a cluster leave for each other and for people on one host: a folder with a record of every
// running process, and their logs (cluster.md §3.14).
#pragma once
#include "cluster/connect.hpp"
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace troupe {

// A running process. It writes the record once it can be reached, and removes it at its end; of a worker its node agent
// has written one before, without a port, as it started it. A record of a process that is not running any more was left
// by one that was killed.
struct process_record {
  std::string name; // "coordinator.0", "node.n0", "decode.1"
  pid_t pid = 0;
  std::uint64_t ticks = 0; // start_ticks of the process
  std::uint64_t incarnation = 0;
  endpoint at;
  std::string configuration; // digest
};

// That process, not another one that has its number by now.
bool is_running(const process_record& r);

class state_dir {
public:
  explicit state_dir(std::string path) : path_(std::move(path)) {}
  // The folder, 0700, if it is not there: of who puts something there. Throws config_error.
  void make() const;

  const std::string& path() const { return path_; }
  std::string log_file(const std::string& name, std::uint64_t incarnation) const;
  std::string ledger_file(const std::string& gateway) const;
  std::string launch_lock() const;
  std::string configuration_file() const; // the resolved configuration of what was launched last

  void write(const process_record& r) const; // throws config_error
  void remove(const std::string& name) const;
  std::optional<process_record> read(const std::string& name) const; // of a process that is running
  std::vector<process_record> running() const;                       // by name
  void remove_stale() const; // records of processes that are gone, and what they had not written whole

private:
  std::vector<process_record> all() const;
  std::string path_;
};

} // namespace troupe
