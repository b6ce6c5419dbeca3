// What the processes of a cluster say to one another besides the requests themselves (messages.hpp): who is there, and
// what a worker offers (cluster.md §3.3, §3.4). All of it travels over CAF; nothing here is large.
#pragma once
#include "cluster/expert_messages.hpp"
#include "cluster/member_state.hpp"
#include "cluster/messages.hpp"
#include "runtime/scheduler/limits.hpp"
#include "runtime/scheduler/routing.hpp"

namespace troupe {

inline constexpr std::uint32_t protocol_version = 6; // of all messages between processes

TROUPE_FIELDS(scheduler_limits, max_num_seqs, max_num_batched_tokens, chunked_prefill, max_model_len, kv_blocks,
              history, nextn, varlen, rejection, backtracking, decode_steps_between, async, prefill_fill_tokens,
              ttft_bound_steps, ageing_steps, lookahead_tokens, prefix_cache, cache_output_blocks, snapshot_interval,
              yoco, yoco_keep)

// ---- worker

// Where the caches of prompts arrive that an engine goes on behind.
struct handoff_place {
  std::string node, endpoint; // the latter for processes that do not share memory with it
  std::uint64_t incarnation = 0;
  std::string key{}; // as member::key
};
TROUPE_FIELDS(handoff_place, node, endpoint, incarnation, key)

// What tokens are made of: equal in all processes of a cluster that have it, empty in the others.
struct model_identity {
  std::string texts;    // digest of configuration and vocabulary
  std::string weights;  // of a worker: a digest, too
  std::string numerics; // of a worker: how it computes, for people, too
  // Of a worker whose steps need no others: a digest of what came out of some. Equal where the rest is, unless a device
  // is broken.
  std::string self_test;
};
TROUPE_FIELDS(model_identity, texts, weights, numerics, self_test)
inline std::string id_of(const model_identity& m) {
  return "texts " + m.texts + ", weights " + m.weights + ", numerics " + m.numerics;
}

struct engine_query {}; // -> engine_info
TROUPE_FIELDS(engine_query)
struct engine_info {
  std::uint32_t rank = 0;
  scheduler_actor scheduler;
  kv_manager_actor kv;
  spec_verifier_actor verifier;
  scheduler_limits limits;
  std::string numerics_id;
  model_identity model; // requests move only between engines of equal ones
  engine_kind kind = engine_kind::normal;
  handoff_place handoffs;
};
TROUPE_FIELDS(engine_info, rank, scheduler, kv, verifier, limits, numerics_id, model, kind, handoffs)

// ---- membership

// Of a rank of an engine whose ranks run on several nodes: what the others have to know of it.
struct context_entry {
  std::uint64_t group = 0;      // the incarnation of the engine's rank 0; 0: this is no such rank
  std::string shape;            // of rank 0: what the others load by
  std::string meets_at;         // where it meets the others, over ZeroMQ
  std::string steps_host;       // of the first rank of a node without rank 0: where the steps of that node go,
  std::uint16_t steps_port = 0; // and the token that a step link wants to see
  std::string token;
};
TROUPE_FIELDS(context_entry, group, shape, meets_at, steps_host, steps_port, token)

// One process. A process that was started again is another one: its incarnation differs.
struct member {
  member_role role = member_role::worker;
  std::string name, node; // unique in the cluster: "decode.3"; where it runs
  std::uint32_t rank = 0; // of a worker
  std::uint64_t incarnation = 0;
  std::string host; // where others reach it
  std::uint16_t port = 0;
  std::uint32_t protocol = protocol_version;
  std::string build, configuration; // digests that must be equal in all processes
  std::vector<std::string> links{}; // of a worker: where ranks that share no memory with it reach its experts
  std::string key{};                // of a worker: its public CURVE key; empty unless security is mutual
  context_entry context{};          // of a worker
  model_identity model{};           // of a worker or gateway
};
TROUPE_FIELDS(member, role, name, node, rank, incarnation, host, port, protocol, build, configuration, links, key,
              context, model)
// Asks for requests from outside the cluster, and is not in its configuration.
inline bool is_client(const member& who) {
  return who.role == member_role::gateway && who.node.empty();
}

struct member_entry {
  member who;
  member_state state = member_state::joining;
  std::uint64_t since = 0; // epoch of the first view that named this process, whoever led
};
TROUPE_FIELDS(member_entry, who, state, since)

// As view_change.hpp numbers them; mepoch 0: there is none yet. To a member: work by it, it need not be prepared.
struct view {
  std::uint64_t term = 0, mepoch = 0;
  std::vector<member_entry> members;
};
TROUPE_FIELDS(view, term, mepoch, members)

// To a member, from its coordinator: a view that will be as soon as all that work together have prepared it; that it is
// now; that it will not be.
struct prep_view { // -> ack
  view next;
};
TROUPE_FIELDS(prep_view, next)
struct cmit_view { // one way
  std::uint64_t mepoch = 0;
};
TROUPE_FIELDS(cmit_view, mepoch)
struct abrt_view { // one way
  std::uint64_t mepoch = 0;
};
TROUPE_FIELDS(abrt_view, mepoch)

struct join { // -> joined; the sender hears of every view that names it
  member who;
  bool able = true; // as in hb
  // With security mutual: of its node, or of a client (certificates.hpp).
  std::string certificate{}, signature{};
  std::uint64_t since = 0; // as member_entry, if a view has named it
  // What a new leader cannot know: processes that were alive in the last view, and the newest ones that are over.
  std::vector<std::uint64_t> there{}, over{};
};
TROUPE_FIELDS(join, who, able, certificate, signature, since, there, over)
struct joined {
  ack_code code = ack_code::ok; // wrong_state: this coordinator does not lead, another may; else refused for good
  std::string why;
  std::uint64_t term = 0; // if ok
};
TROUPE_FIELDS(joined, code, why, term)
struct stand_by {}; // one way, to a member: the coordinator that took it in leads no more, or does not know it any more
TROUPE_FIELDS(stand_by)
struct leave { // one way: this process goes, of its own will
  std::uint64_t incarnation = 0;
};
TROUPE_FIELDS(leave, incarnation)
// A reminder to itself, of actors that do something now and then.
struct tick {};
TROUPE_FIELDS(tick)
struct status_query {}; // -> cluster_status
TROUPE_FIELDS(status_query)
struct configuration_query {}; // -> configuration_text
TROUPE_FIELDS(configuration_query)
struct configuration_text { // the resolved configuration of the cluster
  std::string toml, digest;
};
TROUPE_FIELDS(configuration_text, toml, digest)
// To a coordinator -> ack: it has gateways end what they were asked for, unless it is to be `now`; then all processes
// end, and itself. Refusal: unknown.
struct stop_cluster {
  bool now = false;
  std::string certificate{}, signature{}; // with security mutual, an administrator's (orders.hpp)
};
TROUPE_FIELDS(stop_cluster, now, certificate, signature)
// One way, from the coordinator to a process: end; to a gateway without `now`: take nothing new, and say when nothing
// runs any more (hb::drained).
struct shut_down {
  bool now = false;
};
TROUPE_FIELDS(shut_down, now)
struct worker_end { // of one that its node agent starts no more
  std::string name;
  std::string how; // its exit, and the last that it said
};
TROUPE_FIELDS(worker_end, name, how)
struct hb { // one way, every hb_ms
  std::uint64_t incarnation = 0;
  std::uint64_t steps = 0;
  std::uint64_t starved_ms = 0; // of a worker, since it began: what it could not compute for want of a CPU (cpu_wait)
  std::uint64_t running = 0, waiting = 0;
  std::uint64_t paused = 0; // running ones that wait until a gateway has taken their tokens
  std::int32_t free_blocks = 0;
  std::string waits_for; // as in scheduler_report
  handoff_counters handoffs;
  bool able = true;     // false: a worker that takes no steps now, because it waits for others; it is warming then
  bool drained = false; // a gateway that was told to end, and of whose requests none is left
  std::vector<worker_end> given_up{}; // of a node agent
  spec_report speculation{};          // of a worker: of its verifier, without step times
  // Of the view that it works under; of one that it was asked to prepare, 0 = none.
  std::uint64_t mepoch = 0, prepared = 0;
  std::uint64_t refused = 0; // messages and frames of former leaders, older epochs and processes that are over
};
TROUPE_FIELDS(hb, incarnation, steps, starved_ms, running, waiting, paused, free_blocks, waits_for, handoffs, able,
              drained, given_up, speculation, mepoch, prepared, refused)
struct member_report {
  member_entry known;
  hb progress;
  std::uint64_t silent_ms = 0; // since it was last heard
};
TROUPE_FIELDS(member_report, known, progress, silent_ms)
struct cluster_status {
  bool leads = false; // else the coordinator that says this stands by, and knows of no members
  std::string leader; // its name
  std::uint64_t term = 0, mepoch = 0, uptime_ms = 0;
  std::string configuration; // digest
  bool stopping = false;
  std::vector<member_report> members;      // by name
  std::vector<expert_group_report> groups; // whose ranks share experts
  std::uint64_t refused = 0; // messages to the coordinator of processes that are over, or that it does not know
};
TROUPE_FIELDS(cluster_status, leads, leader, term, mepoch, uptime_ms, configuration, stopping, members, groups, refused)

struct expert_group_query { // -> expert_group_info
  std::uint32_t rank = 0;   // one of the group's
};
TROUPE_FIELDS(expert_group_query, rank)
struct expert_group_info {
  expert_group_actor group; // null: this coordinator does not lead, or the rank shares no experts
};
TROUPE_FIELDS(expert_group_info, group)

// ---- leadership (lease.hpp): coordinators ask, node agents answer

struct lease_ask { // -> lease_answer
  std::uint64_t term = 0, round = 0;
  std::uint32_t node = 0; // of the candidate
  std::uint64_t incarnation = 0;
  std::int64_t lease_ms = 0;
  std::uint64_t mepoch = 0; // of the leader's newest view
  std::string configuration;
};
TROUPE_FIELDS(lease_ask, term, round, node, incarnation, lease_ms, mepoch, configuration)
struct lease_answer {
  bool granted = false;
  std::uint64_t term = 0, round = 0;
  std::uint32_t voter = 0; // node
  std::int64_t remaining_ms = 0;
  std::uint64_t mepoch = 0;
  std::string configuration;
};
TROUPE_FIELDS(lease_answer, granted, term, round, voter, remaining_ms, mepoch, configuration)
// What a coordinator is by the votes: it leads this term until then, unless it is told so again; term 0: it stands by.
struct lease_held {
  std::uint64_t term = 0, mepoch = 0; // mepoch: the highest that voters know of
  std::int64_t until_ms = 0;          // steady clock of the process
};
TROUPE_FIELDS(lease_held, term, mepoch, until_ms)
struct lease_end {}; // one way: the leader needs its lease no more
TROUPE_FIELDS(lease_end)
struct epoch_note { // one way: of the leader's newest view
  std::uint64_t mepoch = 0;
};
TROUPE_FIELDS(epoch_note, mepoch)

} // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe_control, caf::id_block::troupe_experts::end)
CAF_ADD_TYPE_ID(troupe_control, (troupe::engine_query))
CAF_ADD_TYPE_ID(troupe_control, (troupe::engine_info))
CAF_ADD_TYPE_ID(troupe_control, (troupe::view))
CAF_ADD_TYPE_ID(troupe_control, (troupe::join))
CAF_ADD_TYPE_ID(troupe_control, (troupe::leave))
CAF_ADD_TYPE_ID(troupe_control, (troupe::tick))
CAF_ADD_TYPE_ID(troupe_control, (troupe::hb))
CAF_ADD_TYPE_ID(troupe_control, (troupe::status_query))
CAF_ADD_TYPE_ID(troupe_control, (troupe::cluster_status))
CAF_ADD_TYPE_ID(troupe_control, (troupe::configuration_query))
CAF_ADD_TYPE_ID(troupe_control, (troupe::configuration_text))
CAF_ADD_TYPE_ID(troupe_control, (troupe::stop_cluster))
CAF_ADD_TYPE_ID(troupe_control, (troupe::shut_down))
CAF_ADD_TYPE_ID(troupe_control, (troupe::joined))
CAF_ADD_TYPE_ID(troupe_control, (troupe::expert_group_query))
CAF_ADD_TYPE_ID(troupe_control, (troupe::expert_group_info))
CAF_ADD_TYPE_ID(troupe_control, (troupe::stand_by))
CAF_ADD_TYPE_ID(troupe_control, (troupe::lease_ask))
CAF_ADD_TYPE_ID(troupe_control, (troupe::lease_answer))
CAF_ADD_TYPE_ID(troupe_control, (troupe::lease_held))
CAF_ADD_TYPE_ID(troupe_control, (troupe::lease_end))
CAF_ADD_TYPE_ID(troupe_control, (troupe::epoch_note))
CAF_ADD_TYPE_ID(troupe_control, (troupe::prep_view))
CAF_ADD_TYPE_ID(troupe_control, (troupe::cmit_view))
CAF_ADD_TYPE_ID(troupe_control, (troupe::abrt_view))
CAF_END_TYPE_ID_BLOCK(troupe_control)

namespace troupe {

// Of a worker, however often its parts are replaced.
using engine_source = caf::typed_actor<answers<engine_query, engine_info>>;
using membership_actor =
    caf::typed_actor<answers<join, joined>, answers<leave>, answers<hb>, answers<lease_held>,
                     answers<status_query, cluster_status>, answers<configuration_query, configuration_text>,
                     answers<expert_group_query, expert_group_info>, answers<expert_group_report>,
                     answers<stop_cluster, ack>, answers<tick>, answers<stop>>;
// Of a process: it is told every view, and to stop when the cluster does.
using member_actor = caf::typed_actor<answers<view>, answers<prep_view, ack>, answers<cmit_view>, answers<abrt_view>,
                                      answers<stand_by>, answers<shut_down>, answers<tick>, answers<stop>>;
using voter_actor = caf::typed_actor<answers<lease_ask, lease_answer>, answers<stop>>;
using leadership_actor = caf::typed_actor<answers<epoch_note>, answers<lease_end>, answers<tick>, answers<stop>>;

} // namespace troupe
