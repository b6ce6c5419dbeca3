// Who belongs to the cluster: takes processes in, hears that they live, tells everybody of every change, which counts
// once all that work together have prepared it (view_change.hpp). It does so while it leads; what it knows is soft:
// under the next leader every process says again who it is. Pooled.
#pragma once
#include "cluster/control_messages.hpp"
#include "cluster/ended_processes.hpp"
#include "cluster/liveness.hpp"
#include "cluster/view_change.hpp"
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <optional>

namespace troupe {

struct membership_setup {
  std::string name;                 // of this coordinator
  std::uint64_t term = 0;           // nobody else can lead: this term is for good; 0: lease_held tells
  std::string build, configuration; // what every process must have; the latter as a digest
  std::string toml;                 // that configuration
  std::string authority;            // file: whose certificates all must have; empty: nobody has any
  liveness_limits limits;
  std::vector<std::int64_t> stuck_ms; // [ranks] in place of limits.stuck_ms; ranks behind its end have that
  view_limits views;
  std::int64_t collect_ms = 2000; // how long a new leader waits for the processes that others have told it of
  std::chrono::milliseconds tick{200};
  std::optional<std::chrono::milliseconds> drain_limit; // of what gateways run when the cluster is stopped; none: as
                                                        // long as that takes
  std::chrono::milliseconds stop_limit{10000};          // of all processes, once they were told to end
  std::function<void()> on_shut_down;                   // all have ended, but for clients, or the limit is over
  struct expert_group {                                 // ranks of the cluster that share experts
    std::uint32_t first = 0, ranks = 0;
    expert_group_actor coordinator;
  };
  std::vector<expert_group> groups;
};

struct membership_state {
  membership_state() = default;
  static inline const char* name = "membership";
  using clock = std::chrono::steady_clock;
  struct entry {
    member_entry known;
    member_actor process; // hears views
    liveness alive{0};
    hb progress;
  };
  membership_setup setup;
  std::map<std::string, entry> members; // by name
  ended_processes ended;                // of all terms
  std::uint64_t term = 0;               // of this leader; 0: it stands by
  view_leader<view> views;
  std::uint64_t told = 0;            // epoch that all have been told to work under
  std::set<std::uint64_t> awaited;   // incarnations that a new leader has heard of, and not yet from,
  std::int64_t collect_until_ms = 0; // until then
  std::uint64_t refused = 0;         // cluster_status
  std::int64_t leads_until_ms = 0;
  leadership_actor leadership;             // null with a term for good
  std::vector<expert_group_report> groups; // as setup.groups, what they said last
  clock::time_point began{};
  std::optional<clock::time_point> drain_since, stop_at; // the cluster is being stopped; its processes end until then
  watch_list watched;
};

membership_actor::behavior_type membership(membership_actor::stateful_pointer<membership_state> self,
                                           const membership_setup& setup);

} // namespace troupe
