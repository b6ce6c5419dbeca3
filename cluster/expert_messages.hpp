// What an expert group's coordinator and its ranks say to one another while experts move (cluster.md §3.3, §3.6), all
// one way and over CAF: orders may come twice, answers too. Tables are packed (CAF 0.17 writes integers one by one).
#pragma once
#include "cluster/messages.hpp"
#include "runtime/experts/expert_slots.hpp"
#include <optional>

namespace troupe {

// ---- orders to a rank

struct rank_slots_query {}; // -> rank_slots
TROUPE_FIELDS(rank_slots_query)

struct packed_placement { // expert_placement
  std::uint64_t version = 0;
  std::int32_t ranks = 1, layers = 0, experts = 0, slots_per_rank = 0;
  std::string expert_of; // u32 [layers, slots]
};
TROUPE_FIELDS(packed_placement, version, ranks, layers, experts, slots_per_rank, expert_of)
packed_placement pack(const expert_placement& p);
expert_placement unpack(const packed_placement& p);

struct publish_slots { // -> slots_published
  packed_placement placement;
  std::vector<std::uint64_t> incarnations; // [ranks] of the processes that it names
};
TROUPE_FIELDS(publish_slots, placement, incarnations)

struct copy_slot { // -> slot_copied, once it is there or cannot be had
  std::uint64_t mig = 0;
  std::int32_t layer = 0, slot = 0, expert = 0, source = -1; // copy_order
  std::uint64_t floor = 0;
  std::string digest; // of the right bytes; empty = unknown to the coordinator
};
TROUPE_FIELDS(copy_slot, mig, layer, slot, expert, source, floor, digest)

struct settle_slots { // -> slots_settled
  std::uint64_t floor = 0, as_of = 0, migs_below = 0;
};
TROUPE_FIELDS(settle_slots, floor, as_of, migs_below)

struct refuse_rank { // what it holds is not what the others hold: it is no part of the group
  std::string why;
};
TROUPE_FIELDS(refuse_rank, why)

// ---- answers, each with the rank in the group and the incarnation of its process

struct rank_slots { // also unasked: a rank that has found the coordinator
  std::int32_t rank = 0;
  std::uint64_t incarnation = 0, quiesced = 0;
  packed_placement placement; // newest version
  std::string states;         // a slot_state for each slot [layers, slots_per_rank]
  std::string experts;        // u32, likewise
  std::vector<std::uint64_t> migs, versions;
  std::string digests; // 32 bytes, likewise
};
TROUPE_FIELDS(rank_slots, rank, incarnation, quiesced, placement, states, experts, migs, versions, digests)
rank_slots pack(const slot_report& r, std::uint64_t incarnation);
// Empty if its sizes do not agree.
std::optional<slot_report> unpack(const rank_slots& r);

struct slots_published {
  std::int32_t rank = 0;
  std::uint64_t incarnation = 0, version = 0, quiesced = 0;
};
TROUPE_FIELDS(slots_published, rank, incarnation, version, quiesced)
struct slots_quiesced {
  std::int32_t rank = 0;
  std::uint64_t incarnation = 0, version = 0;
};
TROUPE_FIELDS(slots_quiesced, rank, incarnation, version)
struct slot_copied {
  std::int32_t rank = 0;
  std::uint64_t incarnation = 0, mig = 0;
  std::string failure; // empty: the bytes are there and their digest is right
};
TROUPE_FIELDS(slot_copied, rank, incarnation, mig, failure)
struct slots_settled {
  std::int32_t rank = 0;
  std::uint64_t incarnation = 0, as_of = 0;
};
TROUPE_FIELDS(slots_settled, rank, incarnation, as_of)

// ---- to the group's coordinator

struct group_members {                     // from membership, whenever something changes
  std::vector<std::uint64_t> incarnations; // [ranks] of the processes that live, 0 = none
};
TROUPE_FIELDS(group_members, incarnations)

// A copy of an expert to a slot while steps run -> ack, once every rank routes by it. Refusals: unknown, busy,
// wrong_state, no_space; their notes say why.
struct migrate {
  std::int32_t layer = 0, expert = 0;
  std::uint32_t rank = 0;                 // in the cluster
  std::int32_t slot = -1;                 // of that rank; -1 = the one that is missed least
  std::string certificate{}, signature{}; // with security mutual, an administrator's (orders.hpp)
};
TROUPE_FIELDS(migrate, layer, expert, rank, slot, certificate, signature)
// Its reminder to itself.
struct group_clock {};
TROUPE_FIELDS(group_clock)

// For `troupe status`.
struct expert_group_report {
  std::string name;        // "decode.0"
  std::uint32_t first = 0; // ranks of the cluster from here on
  std::int32_t ranks = 0, layers = 0, experts = 0, slots_per_rank = 0;
  std::uint64_t pver = 0, versions = 0, moved = 0, failed = 0, recovered = 0;
  std::uint64_t steps_seen = 0;
  double balancedness = 1;
  std::string state; // "serving", "moving", or what it waits for
};
TROUPE_FIELDS(expert_group_report, name, first, ranks, layers, experts, slots_per_rank, pver, versions, moved, failed,
              recovered, steps_seen, balancedness, state)

} // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe_experts, caf::id_block::troupe::end)
CAF_ADD_TYPE_ID(troupe_experts, (troupe::rank_slots_query))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::publish_slots))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::copy_slot))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::settle_slots))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::refuse_rank))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::rank_slots))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::slots_published))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::slots_quiesced))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::slot_copied))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::slots_settled))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::group_members))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::migrate))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::group_clock))
CAF_ADD_TYPE_ID(troupe_experts, (troupe::expert_group_report))
CAF_END_TYPE_ID_BLOCK(troupe_experts)

namespace troupe {

// As its coordinator knows a rank.
using expert_rank_actor = caf::typed_actor<answers<rank_slots_query>, answers<publish_slots>, answers<copy_slot>,
                                           answers<settle_slots>, answers<refuse_rank>>;
// The coordinator of one expert group.
using expert_group_actor =
    caf::typed_actor<answers<rank_slots>, answers<slots_published>, answers<slots_quiesced>, answers<slot_copied>,
                     answers<slots_settled>, answers<load>, answers<group_members>, answers<migrate, ack>,
                     answers<slots, slot_table>, answers<group_clock>, answers<stop>>;

} // namespace troupe
