// A process as a part of its cluster: joins the coordinator, says that it lives, hears every view and passes it on.
// While no coordinator can be reached the process goes on with what it has, for a while, and keeps asking (cluster.md
// §3.9). Detached: connecting blocks.
#pragma once
#include "cluster/cluster_identity.hpp"
#include "cluster/connect.hpp"
#include "cluster/control_messages.hpp"
#include "cluster/cpu_wait.hpp"
#include "cluster/ended_processes.hpp"
#include "cluster/view_change.hpp"
#include <functional>

namespace troupe {

// A process of a cluster, as itself and its configuration know it.
struct process_identity {
  cluster_identity cluster;
  std::string name, node; // "decode.3", "n0"; node is empty for a process that belongs to none
  std::uint64_t incarnation = 0;
  std::chrono::milliseconds beat{200}; // between two words to the coordinator
  // Without a coordinator for headless_limit a worker takes no steps until one is there. Without its node agent too,
  // for orphan_limit, the process has no more part in anything; agent_there null: it belongs to none and never ends so.
  std::chrono::milliseconds headless_limit{60000}, orphan_limit{60000};
  std::function<bool()> agent_there{};
};

// LOCAL: the process has found a coordinator.
struct coordinator_found {
  membership_actor membership;
};

struct member_setup {
  member who;
  std::vector<endpoint> coordinators;                      // asked in this order
  std::function<std::vector<endpoint>()> coordinators_now; // cluster_identity
  std::optional<tls_files> keys;                           // of its node, or a client's; none: nobody has any
  std::function<void(const view&)> on_view;                // on the actor's thread
  // A view that may be the next: who is new in it is expected from now on, and nothing else changes; likewise.
  std::function<void(const view&)> on_prepare;
  // The cluster holds this process for dead, or does not take it: it has no more part in anything.
  std::function<void(const std::string& why)> on_expelled;
  // The cluster is being stopped: this process is to end, a gateway without `now` only to take nothing new.
  std::function<void(bool now)> on_stop;
  std::function<std::uint64_t()> live;               // of a gateway: requests that have not ended
  std::function<std::vector<worker_end>()> given_up; // of a node agent: hb::given_up
  bool comes_back = false;                           // held for dead, it joins anew under another incarnation
  scheduler_actor scheduler;                         // of a worker: its progress is part of what the process says
  engine_source engine;                              // with a scheduler: so is what its verifier knows
  std::function<std::uint64_t()> steps;              // of a worker without a scheduler: that it has taken
  // Of a worker whose steps need others: whether it takes any; told: a coordinator that leads hears it now.
  std::function<bool(bool told)> able;
  std::function<void(const membership_actor&)> on_coordinator; // that has taken this process in; on the actor's thread
  std::function<bool()> agent_there;
  std::function<std::uint64_t()> refused; // frames of older epochs
  std::chrono::milliseconds beat{200}, headless_limit{60000}, orphan_limit{60000}, control_limit{2000};
};
// What the key signs with which a process joins.
std::string words_of(const member& who);

// Of a process that others reach at `at`, port 0 if nobody does; the callbacks are left to the caller.
member_setup member_setup_of(const process_identity& p, member_role role, std::uint32_t rank, const endpoint& at);

struct cluster_member_state { // of the actor
  cluster_member_state() = default;
  static inline const char* name = "member";
  member_setup setup;
  membership_actor coordinator; // null: none is reached
  std::size_t next = 0;         // coordinator to try
  view_member<view> views;
  ended_processes ended;     // as views have told
  std::uint64_t refused = 0; // words of coordinators that did not take it in
  hb progress;
  cpu_wait waits;
  bool joining = false;       // a coordinator was asked to take this process
  bool asked = false;         // for the progress
  std::uint64_t reviewed = 0; // steps of which the verifier was asked
  std::chrono::steady_clock::time_point review_at{};
  bool stopping = false; // the cluster is being stopped
  bool parked = false;   // without a coordinator for too long the engine takes no steps, and keeps what it has
  std::chrono::steady_clock::time_point alone_since{}, orphaned_since{};
  watch_list watched;
};

member_actor::behavior_type cluster_member(member_actor::stateful_pointer<cluster_member_state> self,
                                           const member_setup& setup);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::coordinator_found)
