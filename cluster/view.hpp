// Who belongs to the cluster, in which group, since when (cluster.md §3.3, §3.4).
#pragma once
#include "cluster/identity.hpp"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

enum class member_role : std::uint8_t { node_agent, worker, gateway };

enum class member_state : std::uint8_t {
  joining, // known, nothing loaded
  warming, // loads and tests itself
  active,
  draining, // takes nothing new
  left,     // gone as planned
  suspect,  // silent: gets no new work
  dead      // for good: the process may come back under another incarnation only
};

inline constexpr std::uint32_t no_group = 0xffffffff;

// A process as it introduces itself. Ranks number all processes of a cluster; a rank is not given to another member
// within a term.
struct member_info {
  rank_id rank;
  node_id node;
  incarnation_t incarnation = 0;
  member_role role = member_role::worker;
  std::uint32_t group = no_group; // workers: the group whose steps they take together
  std::string host, build_id, device_kind, numerics_id, curve_pub;
  std::uint16_t ctl_port = 0, data_port = 0;
  std::uint32_t proto = 1;
  std::uint64_t mem_bytes = 0;
  bool operator==(const member_info&) const = default;
};

struct view_member {
  member_info info;
  member_state state = member_state::joining;
  bool operator==(const view_member&) const = default;
};

// Steps from `first_step` on are taken by these members together, and the frames of these steps carry `epoch`: the
// mepoch of the view that changed the group last. Groups that a view leaves alone go on undisturbed.
struct view_group {
  std::uint32_t group = no_group;
  std::uint64_t epoch = 0, first_step = 0;
  std::vector<rank_id> members; // ascending
  bool operator==(const view_group&) const = default;
};

struct cluster_view {
  std::uint64_t term = 0, mepoch = 0;
  std::vector<view_member> members; // by rank
  std::vector<view_group> groups;   // by number
  const view_member* member(rank_id rank) const {
    for (const view_member& m : members)
      if (m.info.rank == rank)
        return &m;
    return nullptr;
  }
  const view_group* group(std::uint32_t number) const {
    for (const view_group& g : groups)
      if (g.group == number)
        return &g;
    return nullptr;
  }
  bool operator==(const cluster_view&) const = default;
};
using shared_view = std::shared_ptr<const cluster_view>;

} // namespace troupe
