// One engine's scheduler: turns messages into calls of scheduler_core and its answers into messages. For each step one
// turn of the KV manager, then the plan to the executor; while a step runs the next one is planned and queued behind
// it. What kind of step comes next it decides alone, or a group_sync for all engines of a group. A job with a
// constraint waits for the grammar pool before the core hears of it. Pooled.
#pragma once
#include "actors/handoff_endpoint.hpp"
#include "cluster/messages.hpp"
#include "runtime/scheduler/group_part.hpp"
#include "runtime/scheduler/scheduler_core.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace troupe {

struct scheduler_setup {
  std::uint32_t rank = 0;
  std::uint32_t group_rank = 0; // among the engines that share its verifier
  bool alone = false;           // there are no others
  scheduler_limits limits;
  std::vector<timed_size> step_curve;      // of decode steps; empty: every draft at hand is verified
  drafting_time drafting;                  // beside it
  std::vector<std::int32_t> untimed_sizes; // without a curve: of the steps that teach one; empty = none ever does
  kv_manager_actor kv;
  executor_actor executor;
  spec_verifier_actor verifier;
  std::shared_ptr<handoff_endpoint> handoffs;   // null: it computes whole requests only
  int mask_threads = 0;                         // beside its own
  std::chrono::milliseconds step_limit{600000}; // one answer of the KV manager or the executor
};

struct scheduler_state {
  scheduler_state() = default;
  static inline const char* name = "scheduler";
  struct route { // where the tokens of a sequence go
    session_actor reader;
    req_t req;
    std::uint32_t branch = 0, attempt = 1;
    std::int32_t prompt_tokens = 0;
    handoff_ticket handoff;
    std::chrono::steady_clock::time_point arrived{}, started{}; // started: its first step was sent; zero before
    std::vector<std::string> warnings{};                        // of its constraint, until they are sent
  };
  struct constrained_job { // waits for its compiled constraint
    submit request;
    session_actor reader;
  };
  struct round_trip { // of one step; untouched while it is out
    std::shared_ptr<step_plan> plan;
    std::shared_ptr<step_result> result;
  };
  scheduler_setup setup;
  std::optional<scheduler_core> core; // always there
  std::vector<sequence_event> events;
  std::shared_ptr<kv_want> want = std::make_shared<kv_want>(); // untouched while the turn is out, like got
  std::shared_ptr<kv_got> got = std::make_shared<kv_got>();
  std::array<round_trip, most_steps_out> trips; // used in turn
  std::size_t next_trip = 0;
  std::uint64_t turn = 0, answers = 0;             // turns asked; answers of the KV manager and the executor
  std::unordered_map<std::uint64_t, route> routes; // by sequence
  // Sessions that are watched, of whatever process, and the sequences that each has submitted so far.
  std::map<caf::actor_addr, std::vector<std::uint64_t>> readers;
  std::unordered_map<std::uint64_t, std::uint64_t> handoffs;  // sequences by the handoffs that they wait for
  grammar_pool_actor grammars;                                // null: requests with constraints are refused
  std::map<std::uint64_t, constrained_job> constrained;       // by the number that the pool knows them under
  std::unordered_map<std::uint64_t, std::uint64_t> compiling; // these numbers, by sequence
  std::uint64_t last_constrained = 0;
  group_sync_actor group_sync;    // with part
  std::optional<group_part> part; // in the steps of a group
  engine_metrics metrics;
  double planning = 0;                            // seconds, of the turn under way
  spec_load outcome;                              // what the verifier has not heard yet of steps that ended
  draft_advice advice;                            // the verifier's newest
  std::size_t steps_sent = 0, steps_answered = 0; // to and by the executor, also of those that were given up
  bool turn_out = false;                          // the KV manager has a turn
  bool back = false;                              // lost no more, as soon as nothing of before is out
  bool held = false;                              // no step is planned
  bool draining = false;
  bool checking = false; // a step_check is under way
  watch_list watched;
  std::optional<error> lost; // set once the engine cannot compute any more
};

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         const scheduler_setup& setup);

} // namespace troupe
