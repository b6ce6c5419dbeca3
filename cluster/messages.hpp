// Every control message between actors and the typed interface of every actor (cluster.md §3.3). The order in the type
// block is local to a build; names and fields are the wire format. Types marked LOCAL carry pointers: they pass between
// actors of one process and can not be serialised.
#pragma once
#include "cluster/caf.hpp"
#include "cluster/identity.hpp"
#include "cluster/message_window.hpp"
#include "runtime/base/result.hpp"
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include "runtime/kv/handoff.hpp"
#include "runtime/kv/kv_cache.hpp"
#include "runtime/kv/kv_turn.hpp"
#include "runtime/metrics/metrics.hpp"
#include "runtime/metrics/token_counters.hpp"
#include "runtime/request/sampling_params.hpp"
#include "runtime/scheduler/step_group.hpp"
#include "runtime/speculation/calibration.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

// Bytes of a constraint as a request states it; empty for none. Bytes that are no constraint give none.
std::string pack_so_args(const std::optional<structured_output_args>& a);
std::optional<structured_output_args> unpack_so_args(const std::string& bytes);
template <class Inspector> auto inspect(Inspector& f, std::optional<structured_output_args>& a) {
#if TROUPE_CAF_OLD // knows no std::optional
  std::string packed;
  if constexpr (!Inspector::writes_state) {
    packed = pack_so_args(a);
    return f(caf::meta::type_name("so_args"), packed);
  } else {
    auto r = f(caf::meta::type_name("so_args"), packed);
    a = unpack_so_args(packed);
    return r;
  }
#else
  const auto get = [&] { return pack_so_args(a); };
  const auto set = [&](const std::string& packed) {
    a = unpack_so_args(packed);
    return true;
  };
  return f.object(a).fields(f.field("packed", get, set));
#endif
}
// sampling_params as it travels in a job. seq_seed is left out because the job carries the resolved seed.
TROUPE_FIELDS(sampling_params, temperature, top_p, top_k, min_p, max_tokens, min_tokens, ignore_eos, stop,
              stop_token_ids, n, logprobs, top_logprobs, prompt_logprobs, logprobs_mode, golden_token_ids, logit_bias,
              so_args)

// Metrics as they travel in reports.
template <class Inspector, const auto& Bounds> auto inspect(Inspector& f, histogram<Bounds>& h) {
#if TROUPE_CAF_OLD
  return f(caf::meta::type_name("histogram"), h.counts, h.sum);
#else
  return f.object(h).fields(f.field("counts", h.counts), f.field("sum", h.sum));
#endif
}
TROUPE_FIELDS(branch_record, rank, finish_reason, cause, prompt_tokens, output_tokens, max_tokens, first_token,
              last_token, end, gaps)
TROUPE_FIELDS(request_metrics, prompt_tokens, generation_tokens, stop, length, abort, error, abort_causes, error_codes,
              request_prompt_tokens, request_generation_tokens, params_max_tokens, params_n, time_to_first_token,
              inter_token_latency, time_per_output_token, end_to_end, decode_time, held_messages)
TROUPE_FIELDS(draft_counters, drafts, draft_tokens, accepted_tokens, verified_at, accepted_at, verified_drafts,
              not_finite, advised_steps, stale_advice, expected_tokens, emitted_tokens, expected_seconds,
              measured_seconds, steps_by_size)
TROUPE_FIELDS(mask_counters, in_time, late, fill_time)
TROUPE_FIELDS(engine_metrics, prefill_steps, decode_steps, speculation, masks, iteration_tokens, plan_time, run_time,
              queue_time, prefill_time)
TROUPE_FIELDS(timed_size, rows, ms)
TROUPE_FIELDS(step_observation, rows, sequences, kv_tokens, forward_ms, sampler_ms, drafted)
TROUPE_FIELDS(reliability_bin, drafts, accepted, confidence)
TROUPE_FIELDS(reliability, bin)

TROUPE_FIELDS(stamp, term, mepoch, msg_id, from)

struct ack {
  std::uint64_t msg_id = 0;
  ack_code code = ack_code::ok;
  std::string note; // for a refusal: its error code, a colon, its text
};
TROUPE_FIELDS(ack, msg_id, code, note)

TROUPE_FIELDS(req_t, origin, number)

// ---- scheduler

// A prompt that one engine computes and another one goes on behind (cluster.md §3.7): what each of them knows of it.
struct handoff_ticket {
  std::uint64_t id = 0;          // never used again; 0 = none, the engine computes everything
  bool prompt = false;           // this engine computes the prompt; else it goes on
  std::uint32_t peer = 0;        // rank of the other one
  std::string node, endpoint;    // of the one that goes on: its node, and where it takes bulk bytes from other nodes
  std::uint64_t incarnation = 0; // likewise
  std::string key{};             // likewise: its public CURVE key; empty unless security is mutual
};
TROUPE_FIELDS(handoff_ticket, id, prompt, peer, node, endpoint, incarnation, key)

// One branch of a request to compute.
struct job {
  req_t req;
  std::uint32_t branch = 0, attempt = 1;
  std::uint64_t sequence = 0;        // unique among the live branches of the engine
  std::string request_id;            // for messages to people
  std::vector<std::int32_t> tokens;  // of the prompt
  std::vector<std::int32_t> emitted; // output that its reader already has: computed again, not sent again
  sampling_params params;
  std::uint64_t seed = 0; // of this branch
  std::vector<std::int32_t> eos_ids, logit_rows;
  std::int32_t priority = 0;                   // lower is served first
  std::int32_t deadline_steps = 0;             // 0 = none
  std::string cache_salt;                      // cached prompt starts are shared only between jobs of an equal salt
  std::vector<std::int32_t> chunk_checkpoints; // prompt positions that others are likely to share; ascending
  std::uint64_t fork_of = 0; // sequence of an earlier branch of the same request on the same engine; 0 = none
  handoff_ticket handoff;
};
TROUPE_FIELDS(job, req, branch, attempt, sequence, request_id, tokens, emitted, params, seed, eos_ids, logit_rows,
              priority, deadline_steps, cache_salt, chunk_checkpoints, fork_of, handoff)

struct submit { // -> ack; tokens go to the sender
  stamp head;
  job work;
};
TROUPE_FIELDS(submit, head, work)

struct cancel { // -> ack, unknown if there is no such sequence
  stamp head;
  req_t req;
  std::uint32_t attempt = 1;
  std::uint64_t sequence = 0; // of one branch; the gateway takes the whole request and ignores it
  std::string reason;
};
TROUPE_FIELDS(cancel, head, req, attempt, sequence, reason)

// An engine lost a part of itself that cannot be replaced in place.
struct rank_lost {
  std::uint32_t rank = 0;
  std::string why;
};
TROUPE_FIELDS(rank_lost, rank, why)
// To the scheduler of an engine that was lost for the want of other processes: they are there again.
struct rank_back {};
TROUPE_FIELDS(rank_back)
// To a scheduler: its sequences keep what they have, and no step is planned until it is told otherwise.
struct hold_steps {
  bool held = true;
};
TROUPE_FIELDS(hold_steps, held)

struct drain {}; // accept nothing new, finish what runs
TROUPE_FIELDS(drain)
struct stop {}; // end now
TROUPE_FIELDS(stop)
struct give_up { // to a gateway or a session: live requests end with this error, new ones are refused with it
  std::string code, text;
};
TROUPE_FIELDS(give_up, code, text)

// From the threads that make masks: some are made that are not needed for a step that is being planned.
struct masks_made {};
TROUPE_FIELDS(masks_made)

// LOCAL, one way, from the threads that carry handoffs to the scheduler.
struct handoff_note {
  enum class news : std::uint8_t { arrived, sent, flows_again, failed };
  std::uint64_t id = 0;
  news what = news::failed;
  std::shared_ptr<const image_bytes> image; // with arrived
  std::int32_t cached = 0;                  // likewise
  error failure;                            // with failed
};

struct scheduler_query {};
TROUPE_FIELDS(scheduler_query)
TROUPE_FIELDS(handoff_counters, sending, receiving, sent, received, failed, expired, sent_bytes, received_bytes,
              tail_bytes_max, tail_ms_sum, tail_ms_max)
struct scheduler_report {
  std::uint64_t waiting = 0, running = 0, live = 0, steps = 0, preemptions = 0;
  std::int32_t free_blocks = 0;
  engine_metrics metrics{};
  handoff_counters handoffs;
  bool able = true;                    // false: its engine takes no steps
  std::int64_t outstanding_tokens = 0; // still to be computed, of all live sequences
  std::uint64_t paused = 0;            // running ones that wait for their readers
  std::string waits_for{};             // what those that wait lack: places, blocks or slots; empty = nothing
};
TROUPE_FIELDS(scheduler_report, waiting, running, live, steps, preemptions, free_blocks, metrics, handoffs, able,
              outstanding_tokens, paused, waits_for)

// ---- kv_manager

// LOCAL, one way; answered by kv_turn_done to the sender, who leaves both objects alone until then.
struct kv_turn {
  std::uint64_t number = 0;
  std::shared_ptr<const kv_want> want;
  std::shared_ptr<kv_got> got; // filled by the KV manager
};
struct kv_turn_done {
  std::uint64_t number = 0;
};
TROUPE_FIELDS(kv_turn_done, number)

TROUPE_FIELDS(kv_statistics, turns, admitted, lookups, hits, queried_tokens, hit_tokens, forks, deferred,
              published_blocks, duplicate_blocks, evicted_blocks, snapshots_kept, snapshots_refused, snapshots_dropped,
              snapshots_evicted, cached_blocks, cached_idle_blocks, cached_snapshots, used_blocks, used_slots)

struct kv_query {
  bool audit = false; // slow: also recount every reference
};
TROUPE_FIELDS(kv_query, audit)
struct kv_report {
  std::int32_t blocks = 0, slots = 0; // of the pools, with the dummies 0
  std::uint64_t sequences = 0;
  bool conserved = true; // false: an audit found a lost or doubled reference
  kv_statistics statistics;
};
TROUPE_FIELDS(kv_report, blocks, slots, sequences, conserved, statistics)

// ---- executor

// LOCAL, one way; answered by step_done to the sender, in the order of the steps. Two may be out at once, each with
// objects of its own, which the sender leaves alone until the answer.
struct step {
  std::uint64_t number = 0;
  std::shared_ptr<const step_plan> plan;
  std::shared_ptr<step_result> result; // filled by the executor
};
struct step_done {
  std::uint64_t number = 0;
};
TROUPE_FIELDS(step_done, number)
// An executor's reminder to itself: has the device finished a step?
struct device_check {};
TROUPE_FIELDS(device_check)
// A scheduler's reminder to itself: has anything that is out come back?
struct step_check {
  std::uint64_t answers = 0; // of the KV manager and the executor, when it was set
};
TROUPE_FIELDS(step_check, answers)

// ---- spec_verifier

// One way, to the verifier: what a rank's decode step of this round is made of, and what came of those that have ended
// since the last load. Answered by spec_plan where it has drafts.
struct spec_load {
  std::uint64_t round = 0; // of the sender
  std::uint32_t rank = 0;
  std::int32_t sequences = 0; // R; 0: it says only what came of steps, none follows them
  std::int64_t kv_tokens = 0; // cached positions of all of them
  std::string survivals;      // packed fp32, descending, round N-2: of every draft that could be verified
  std::vector<step_observation> ended{};
  std::string verified;         // a byte for each sequence that verified drafts in one of them: how many
  std::string accepted;         // likewise: leading ones that were right
  std::string confidences;      // packed fp32, of these drafts one sequence after the other
  std::uint64_t not_finite = 0; // confidences that came since the last load and were no finite numbers
};
TROUPE_FIELDS(spec_load, round, rank, sequences, kv_tokens, survivals, ended, verified, accepted, confidences,
              not_finite)

// One way, advisory: one decision for all ranks. Older than two rounds of the receiver, or for another number of
// sequences: its local rule counts.
struct spec_plan {
  std::uint64_t round = 0;           // of the receiver's last load
  std::int32_t sequences = 0;        // likewise
  std::vector<std::int64_t> total_q; // [ranks] rows of the step
};
TROUPE_FIELDS(spec_plan, round, sequences, total_q)

struct spec_query {}; // -> spec_report
TROUPE_FIELDS(spec_query)
struct spec_rank_report {
  std::uint64_t round = 0; // of its last load; 0 = none came
  std::int32_t sequences = 0;
  std::int64_t total_q = 0; // last budget
  double slope_ms = 0, sampler_ms = 0, kv_ms = 0;
  std::vector<timed_size> times; // as they are now, for these sequences
};
TROUPE_FIELDS(spec_rank_report, round, sequences, total_q, slope_ms, sampler_ms, kv_ms, times)
struct spec_report {
  std::uint64_t decisions = 0, late = 0; // budgets for the group; ranks that were missing in one
  std::uint64_t drafts = 0, accepted = 0, not_finite = 0;
  double tokens_per_step = 1;          // tau
  std::vector<reliability> positions;  // [longest block]
  std::vector<double> temperatures;    // [longest block] that would calibrate the confidences
  bool useless = false;                // of the newest verified drafts none was right
  std::vector<spec_rank_report> ranks; // [engines of the group]
};
TROUPE_FIELDS(spec_report, decisions, late, drafts, accepted, not_finite, tokens_per_step, positions, temperatures,
              useless, ranks)

// ---- group_sync (its decisions and the intents of its members: step_group.hpp)

template <class Inspector, class Tag, class Rep> auto inspect(Inspector& f, strong_id<Tag, Rep>& id) {
#if TROUPE_CAF_OLD
  return f(caf::meta::type_name("id"), id.value);
#else
  return f.object(id).fields(f.field("value", id.value));
#endif
}
TROUPE_FIELDS(step_intent, prefill, decode, kv_low, held_tokens, oldest_wait, steps_since_prefill)
TROUPE_FIELDS(rank_intent, rank, epoch, step, revision, wishes, decode_steps)
TROUPE_FIELDS(step_decision, epoch, first, steps, kind)
TROUPE_FIELDS(group_view::culprit, rank, silent)
TROUPE_FIELDS(group_view, epoch, first, members, left, culprits)

struct join_group { // one way: views and decisions come to the sender
  std::uint32_t rank = 0;
};
TROUPE_FIELDS(join_group, rank)
struct group_ping {}; // -> group_alive
TROUPE_FIELDS(group_ping)
struct group_alive {
  std::uint32_t rank = 0, epoch = 0;
};
TROUPE_FIELDS(group_alive, rank, epoch)
// A group_sync's reminder to itself: has anybody been silent for too long?
struct group_tick {};
TROUPE_FIELDS(group_tick)

// ---- grammar_pool and its grammar_compilers

// LOCAL, one way: answered by grammar_done to the sender, at once if the pool has it.
struct grammar_wanted {
  std::uint64_t number = 0; // unique among what the sender waits for
  std::shared_ptr<const constraint> what;
  std::string salt; // tenants do not find out what others have compiled
};
struct grammar_unwanted { // one way: the sender waits no longer
  std::uint64_t number = 0;
};
TROUPE_FIELDS(grammar_unwanted, number)
struct grammar_done { // LOCAL
  std::uint64_t number = 0;
  std::shared_ptr<const compiled_grammar> grammar; // null: failure says why
  error failure;
  double seconds = 0; // of processor time, from a compiler
};
// LOCAL, one way, to a compiler; answered by grammar_done to the sender.
struct grammar_job {
  std::uint64_t number = 0;
  std::shared_ptr<const constraint> what;
  std::shared_ptr<const std::atomic<bool>> given_up; // nobody waits any more: the work ends soon
};
// The pool's reminder to itself: has anybody waited for too long?
struct grammar_tick {};
TROUPE_FIELDS(grammar_tick)

struct grammar_query {}; // -> grammar_report
TROUPE_FIELDS(grammar_query)
TROUPE_FIELDS(grammar_report, waiting, queued, running, compiled, refused, hits, given_up, lost, kept, kept_bytes,
              compile_time)

// ---- placement

struct load { // one way: rows routed to each expert
  std::uint32_t rank = 0, steps = 0;
  std::string counts; // little-endian u32 [steps, layers, experts] (packed: CAF 0.17 writes integers one by one)
};
TROUPE_FIELDS(load, rank, steps, counts)

struct slots {}; // -> slot_table
TROUPE_FIELDS(slots)
struct slot_table {
  std::uint64_t pver = 0;
  std::int32_t ranks = 0, layers = 0, experts = 0, slots_per_rank = 0;
  std::vector<std::int32_t> expert_of; // [layers, slots], -1 = empty
  std::uint64_t steps_seen = 0;
  std::vector<std::uint64_t> rows; // [layers, experts] in the window
  double balancedness = 1;
};
TROUPE_FIELDS(slot_table, pver, ranks, layers, experts, slots_per_rank, expert_of, steps_seen, rows, balancedness)

// ---- session

// What a step gave one branch: the only way a token becomes visible, and the branch's end.
struct tokens { // -> tok_ack
  req_t req;
  std::uint32_t branch = 0, attempt = 1;
  std::int64_t first_pos = 0; // position in prompt + output of ids[0]
  std::vector<std::int32_t> ids;
  std::string logprobs;                // packed fp32 [ids]
  std::string top;                     // packed lists [ids] of top log-probabilities
  std::string prompt_logprobs, logits; // packed fp32, pieces in order of position
  std::uint8_t end = 0;                // a finish_reason; not 0: nothing follows
  std::int32_t stop_id = -1;           // EOS or stop id that ended the branch, -1 = none
  std::string error_code, error_text;
  std::int64_t steps = 0, preemptions = 0; // that the branch took part in, that it suffered
  std::int64_t drafted = 0, accepted = 0;  // drafts of it that were verified, and taken
  std::int32_t cached_tokens = 0;          // of the prompt, found in the prefix cache at first admission
  std::vector<std::string> warnings;       // of its constraint, with the first news of an attempt
};
TROUPE_FIELDS(tokens, req, branch, attempt, first_pos, ids, logprobs, top, prompt_logprobs, logits, end, stop_id,
              error_code, error_text, steps, preemptions, drafted, accepted, cached_tokens, warnings)

struct tok_ack {
  std::uint64_t sequence = 0;
  std::int64_t next_pos = 0;
  std::uint32_t attempt = 1;
};
TROUPE_FIELDS(tok_ack, sequence, next_pos, attempt)

// One way, to the session, ahead of the first step that has the branch in it: what ends the engine from now on may be
// this request.
struct begun {
  std::uint32_t branch = 0, attempt = 1;
};
TROUPE_FIELDS(begun, branch, attempt)

// One way, to the session, from the engine that goes on behind a prompt: there is room for its cache, and the prompt
// may be computed; then, its cache has arrived.
struct reserved {
  std::uint32_t branch = 0, attempt = 1;
};
TROUPE_FIELDS(reserved, branch, attempt)
struct moved {
  std::uint32_t branch = 0, attempt = 1;
};
TROUPE_FIELDS(moved, branch, attempt)
// Likewise from either engine: the prompt's cache will not arrive.
struct handoff_lost {
  std::uint32_t branch = 0, attempt = 1;
  std::string code, text;
};
TROUPE_FIELDS(handoff_lost, branch, attempt, code, text)

struct done { // one way, to the gateway: all branches of a request have ended
  req_t req;
  std::vector<branch_record> branches;
};
TROUPE_FIELDS(done, req, branches)

// Round trip of every serialisable message through CAF's serializer; a start-up check against a field that lost its
// way. Empty, or the name of the first message that came back different.
std::string check_messages(caf::actor_system& system);

// Little-endian bytes of 32-bit values, and back (a length that is no multiple of four gives nothing).
std::string pack_u32(const std::vector<std::uint32_t>& values);
std::vector<std::uint32_t> unpack_u32(const std::string& bytes);

// fp32 bit by bit: CAF 0.17 loses the sign of -0 and writes vectors element by element.
std::string pack_f32(const std::vector<float>& values);
void append_f32(const std::string& bytes, std::vector<float>& out);
// Lists of (id, log-probability): per list its length, then its pairs.
std::string pack_top(const std::vector<token_logprob>& list);
void append_top(const std::string& bytes, std::vector<std::vector<token_logprob>>& out);

// A refusal in a note, and back.
std::string note_of(const error& e);
error error_of(const ack& a);

} // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(troupe, (troupe::stamp))
CAF_ADD_TYPE_ID(troupe, (troupe::ack))
CAF_ADD_TYPE_ID(troupe, (troupe::req_t))
CAF_ADD_TYPE_ID(troupe, (troupe::submit))
CAF_ADD_TYPE_ID(troupe, (troupe::cancel))
CAF_ADD_TYPE_ID(troupe, (troupe::rank_lost))
CAF_ADD_TYPE_ID(troupe, (troupe::rank_back))
CAF_ADD_TYPE_ID(troupe, (troupe::hold_steps))
CAF_ADD_TYPE_ID(troupe, (troupe::drain))
CAF_ADD_TYPE_ID(troupe, (troupe::stop))
CAF_ADD_TYPE_ID(troupe, (troupe::masks_made))
CAF_ADD_TYPE_ID(troupe, (troupe::scheduler_query))
CAF_ADD_TYPE_ID(troupe, (troupe::scheduler_report))
CAF_ADD_TYPE_ID(troupe, (troupe::kv_turn_done))
CAF_ADD_TYPE_ID(troupe, (troupe::kv_query))
CAF_ADD_TYPE_ID(troupe, (troupe::kv_report))
CAF_ADD_TYPE_ID(troupe, (troupe::step_done))
CAF_ADD_TYPE_ID(troupe, (troupe::device_check))
CAF_ADD_TYPE_ID(troupe, (troupe::spec_load))
CAF_ADD_TYPE_ID(troupe, (troupe::spec_plan))
CAF_ADD_TYPE_ID(troupe, (troupe::spec_query))
CAF_ADD_TYPE_ID(troupe, (troupe::spec_report))
CAF_ADD_TYPE_ID(troupe, (troupe::rank_intent))
CAF_ADD_TYPE_ID(troupe, (troupe::step_decision))
CAF_ADD_TYPE_ID(troupe, (troupe::group_view))
CAF_ADD_TYPE_ID(troupe, (troupe::join_group))
CAF_ADD_TYPE_ID(troupe, (troupe::group_ping))
CAF_ADD_TYPE_ID(troupe, (troupe::group_alive))
CAF_ADD_TYPE_ID(troupe, (troupe::group_tick))
CAF_ADD_TYPE_ID(troupe, (troupe::grammar_unwanted))
CAF_ADD_TYPE_ID(troupe, (troupe::grammar_tick))
CAF_ADD_TYPE_ID(troupe, (troupe::grammar_query))
CAF_ADD_TYPE_ID(troupe, (troupe::grammar_report))
CAF_ADD_TYPE_ID(troupe, (troupe::load))
CAF_ADD_TYPE_ID(troupe, (troupe::slots))
CAF_ADD_TYPE_ID(troupe, (troupe::slot_table))
CAF_ADD_TYPE_ID(troupe, (troupe::tokens))
CAF_ADD_TYPE_ID(troupe, (troupe::tok_ack))
CAF_ADD_TYPE_ID(troupe, (troupe::begun))
CAF_ADD_TYPE_ID(troupe, (troupe::reserved))
CAF_ADD_TYPE_ID(troupe, (troupe::moved))
CAF_ADD_TYPE_ID(troupe, (troupe::handoff_lost))
CAF_ADD_TYPE_ID(troupe, (troupe::done))
CAF_ADD_TYPE_ID(troupe, (troupe::give_up))
CAF_END_TYPE_ID_BLOCK(troupe)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::kv_turn)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::handoff_note)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::grammar_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::grammar_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::grammar_job)

namespace troupe {

using kv_manager_actor = caf::typed_actor<answers<kv_turn, kv_turn_done>, answers<kv_query, kv_report>, answers<stop>>;
using executor_actor = caf::typed_actor<answers<step, step_done>, answers<device_check>, answers<stop>>;
using spec_verifier_actor = caf::typed_actor<answers<spec_load>, answers<spec_query, spec_report>, answers<stop>>;
// LOCAL, one way, to the schedulers of a group: its verifier ended and this one took its place.
struct new_verifier {
  spec_verifier_actor verifier;
};
using group_sync_actor = caf::typed_actor<answers<join_group>, answers<rank_intent>, answers<group_alive>,
                                          answers<rank_lost>, answers<group_tick>, answers<stop>>;
// LOCAL, one way, from the supervisor: the steps of this scheduler are decided by this coordinator from now on, by none
// if it is null. Its epochs begin behind `epoch`.
struct enter_group {
  group_sync_actor group;
  std::uint32_t epoch = 0;
};
using grammar_pool_actor =
    caf::typed_actor<answers<grammar_wanted>, answers<grammar_unwanted>, answers<grammar_done>, answers<grammar_tick>,
                     answers<grammar_query, grammar_report>, answers<stop>>;
using grammar_compiler_actor = caf::typed_actor<answers<grammar_job, grammar_done>, answers<stop>>;
// LOCAL, one way, from the supervisor to the schedulers: what compiled constraints has ended and this one took its
// place; null: none will.
struct new_grammar_pool {
  grammar_pool_actor pool;
};
// LOCAL, one way: whatever is loaded here is passed on.
struct load_reader {
  std::function<void(const load&)> take;
};
using placement_actor =
    caf::typed_actor<answers<load>, answers<load_reader>, answers<slots, slot_table>, answers<stop>>;
using scheduler_actor =
    caf::typed_actor<answers<submit, ack>, answers<cancel, ack>, answers<grammar_done>, answers<new_grammar_pool>,
                     answers<handoff_note>, answers<kv_turn_done>, answers<step_done>, answers<step_check>,
                     answers<masks_made>, answers<tok_ack>, answers<spec_plan>, answers<new_verifier>,
                     answers<enter_group>, answers<group_view>, answers<step_decision>,
                     answers<group_ping, group_alive>, answers<scheduler_query, scheduler_report>, answers<rank_lost>,
                     answers<rank_back>, answers<hold_steps>, answers<drain>, answers<stop>>;
// Of a request whose prompt another engine computes.
struct prompt_place {
  scheduler_actor scheduler; // null: the engine that goes on computes it itself
  std::uint32_t rank = 0;
  std::uint64_t joined = 0;                 // placed::joined, of that engine
  std::shared_ptr<message_window> window{}; // what it is sent goes through this
  handoff_ticket ticket;                    // of the engine that computes the prompt
};
// LOCAL, one way, from the gateway to a session: this engine computes its request from now on.
struct placed {
  std::uint32_t rank = 0;
  scheduler_actor scheduler;
  prompt_place prompt;
  std::uint64_t joined = 0;                 // how often the engine had joined by then
  std::shared_ptr<message_window> window{}; // what it is sent goes through this
  std::shared_ptr<token_counters> counters{};
};
using session_actor = caf::typed_actor<answers<tokens, tok_ack>, answers<ack>, answers<cancel, ack>, answers<placed>,
                                       answers<begun>, answers<reserved>, answers<moved>, answers<handoff_lost>,
                                       answers<rank_lost>, answers<give_up>, answers<stop>>;

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::load_reader)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::new_verifier)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::enter_group)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::new_grammar_pool)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::placed)
