// The supervisor of a process: starts every actor of its engines, watches them, tells the others when one is lost, ends
// them in order. Pooled.
#pragma once
#include "actors/context_leader.hpp"
#include "actors/expert_executor.hpp"
#include "actors/expert_part.hpp"
#include "actors/gateway.hpp"
#include "actors/grammar_compiler.hpp"
#include "actors/group_sync.hpp"
#include "actors/scheduler.hpp"
#include "cluster/control_messages.hpp"
#include "runtime/model/runner.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include "runtime/speculation/group_planner.hpp"

namespace troupe {

// The ranks of one engine besides rank 0, whose engine in process_setup::engines is a context_leader.
struct context_ranks {
  std::vector<std::shared_ptr<step_engine>> engines; // ranks 1, 2, ...
  std::vector<int> cores;                            // likewise, as engine_cores
  std::shared_ptr<context_team> team;                // followers are filled here
};

// Everything a process runs, made before the actors are: devices, weights, vocabulary.
struct process_setup {
  std::shared_ptr<expert_part> part; // of a group of processes that share experts; null: there is none
  model_identity model;
  scheduler_limits limits;
  kv_cache_settings kv;                                 // of each engine
  std::vector<std::shared_ptr<step_engine>> engines;    // [engines]
  std::vector<int> engine_cores;                        // [engines] core of the executor's thread, -1 or absent = any
  std::vector<context_ranks> context;                   // [engines], empty without context parallelism
  std::vector<std::shared_ptr<expert_compute>> experts; // [ep], empty when engines compute their own experts
  std::shared_ptr<expert_group> exchange;               // filled here; the engines' exchanges hold it too
  std::int32_t layers = 0, routed_experts = 1;          // of the statistics
  gateway_setup front;                                  // without schedulers; without a vocabulary there is none
  group_settings speculation;                           // of each verifier; its ranks are counted here
  std::shared_ptr<live_requests> live;                  // of that gateway
  std::optional<step_group_settings> group_sync;        // the engines take their steps together
  grammar_settings grammars;
  std::uint32_t rank = 0; // of the process in its cluster
  engine_kind kind = engine_kind::normal;
  cache_sizes caches;                         // of the engines
  std::shared_ptr<handoff_endpoint> handoffs; // null: it computes whole requests only
  handoff_place handoffs_at;
  int mask_threads = 0; // of each engine, beside its scheduler
  std::chrono::milliseconds step_limit{600000};
  std::function<void(const std::string& why)> on_engine_lost; // an engine can compute no more; null: nobody replaces it
  bool own_threads = true; // executors on threads of their own; tests without threads say false
};

struct start {}; // -> started
TROUPE_FIELDS(start)
struct engine_handles {
  scheduler_actor scheduler;
  kv_manager_actor kv;
  executor_actor executor;
  spec_verifier_actor verifier;          // shared by the engines that share experts
  std::vector<executor_actor> followers; // context-parallel ranks 1, 2, ...
};
struct started {       // LOCAL
  gateway_actor front; // null if requests come from other processes
  placement_actor placement;
  group_sync_actor group_sync; // null if engines decide alone
  grammar_pool_actor grammars; // null if constraints are refused
  std::vector<engine_handles> engines;
  std::vector<expert_executor_actor> experts;
};

// LOCAL, one way: the engine follows the plans of this verifier, which is in another process; null: of its own.
struct group_verifier {
  spec_verifier_actor verifier;
};

using worker_root_actor = caf::typed_actor<answers<start, started>, answers<engine_query, engine_info>,
                                           answers<group_verifier>, answers<stop>>;

struct worker_root_state {
  worker_root_state() = default;
  static inline const char* name = "worker_root";
  std::shared_ptr<const process_setup> setup;
  started parts;
  spec_verifier_actor elsewhere; // group_verifier
  watch_list watched;
  int group_sync_starts = 0, grammar_pool_starts = 0;
  // The end goes in this order, each group once the one before is gone: the others would miss what they still use.
  enum group : std::size_t { front, schedulers, workers, followers, experts, groups };
  std::size_t left[groups] = {};
  std::size_t told = 0;               // groups that were told to stop; 0 = not stopping
  std::vector<int> verifier_restarts; // [engines] by the first engine of the verifier's group
};

worker_root_actor::behavior_type worker_root(worker_root_actor::stateful_pointer<worker_root_state> self,
                                             std::shared_ptr<const process_setup> setup);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::started)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::group_verifier)
