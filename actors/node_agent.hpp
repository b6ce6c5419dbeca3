// Starts the workers of one host and its gateways, which are workers to it, starts those anew that end, ends those that
// the cluster holds for dead, and ends all of them when the cluster stops. It writes the record of each at once: a
// worker that still loads can be found too. Workers that a former agent of this host has left running are taken over.
// Pooled; nothing here takes long.
#pragma once
#include "cluster/child_process.hpp"
#include "cluster/control_messages.hpp"
#include "cluster/state_dir.hpp"
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

namespace troupe {

// When a worker that has ended is started again.
struct restart_policy {
  int most = 3; // within the window; then the worker is given up
  std::chrono::milliseconds window{600000};
  std::chrono::milliseconds pause{1000}, longest_pause{30000}; // doubles with every start in the window
};

struct node_agent_setup {
  struct worker {
    std::string name;
    std::vector<std::string> arguments; // the program first; --incarnation N is added
  };
  std::vector<worker> workers;
  std::shared_ptr<const state_dir> state;
  std::string configuration; // digest, for the records of workers
  restart_policy restarts;
  bool workers_die_too = false;                // they do not outlive this process
  std::chrono::milliseconds stop_limit{10000}; // until workers that were told to end are killed
  std::chrono::milliseconds grace{2000};       // until one that is held for dead, and should end by itself, is killed
  std::shared_ptr<std::atomic<bool>> done;     // set once all have ended after a stop
  std::function<void(const worker_end&)> on_given_up;
};

using node_agent_actor = caf::typed_actor<answers<view>, answers<tick>, answers<stop>>;

struct node_agent_state {
  node_agent_state() = default;
  static inline const char* name = "node_agent";
  using clock = std::chrono::steady_clock;
  struct worker {
    std::optional<child_process> process;
    std::uint64_t incarnation = 0;              // of the process
    std::optional<clock::time_point> condemned; // the process is killed then
    std::deque<clock::time_point> starts;       // in the window
    clock::time_point not_before{};
    bool given_up = false;
  };
  node_agent_setup setup;
  std::vector<worker> workers;              // as setup.workers
  std::optional<clock::time_point> kill_at; // stopping
};

node_agent_actor::behavior_type node_agent(node_agent_actor::stateful_pointer<node_agent_state> self,
                                           const node_agent_setup& setup);

} // namespace troupe
