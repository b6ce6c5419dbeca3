// Compiled constraints: what was compiled lately is kept, equal constraints that are wanted at once are compiled once,
// the others in the order of their arrival by a few compilers. Who waits for too long hears so_timeout; a compilation
// that nobody waits for any more is given up. Pooled; nothing here takes long.
#pragma once
#include "actors/grammar_compiler.hpp"
#include "runtime/grammar/constraint_cache.hpp"
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

namespace troupe {

struct grammar_pool_state {
  grammar_pool_state() = default;
  static inline const char* name = "grammar_pool";
  using clock = std::chrono::steady_clock;
  using waiter_key = std::pair<caf::actor_id, std::uint64_t>; // the scheduler and its number
  struct waiter {
    scheduler_actor scheduler;
    std::uint64_t job = 0;
    clock::time_point deadline;
  };
  struct job { // one constraint that is queued or being compiled
    std::string key;
    std::shared_ptr<const constraint> what;
    std::vector<waiter_key> waiters{}; // never empty
    std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);
    bool tried = false; // a compiler ended over it
  };
  struct compiler {
    grammar_compiler_actor actor;
    std::uint64_t job = 0; // that it works on, even if nobody waits for it any more; 0 = none
  };
  grammar_settings settings;
  std::optional<constraint_cache> cache; // always there
  std::map<waiter_key, waiter> waiters;
  std::map<std::uint64_t, job> jobs;                     // by number
  std::unordered_map<std::string, std::uint64_t> by_key; // of jobs
  std::deque<std::uint64_t> queue;                       // jobs that no compiler has; some may be gone
  std::vector<compiler> compilers;
  std::uint64_t last_job = 0;
  grammar_report counts; // what counts up
  bool ticking = false, stopping = false, own_threads = true;
  watch_list watched;
};

// own_threads: of the compilers; tests without threads say false.
grammar_pool_actor::behavior_type grammar_pool(grammar_pool_actor::stateful_pointer<grammar_pool_state> self,
                                               const grammar_settings& settings, bool own_threads);

} // namespace troupe
