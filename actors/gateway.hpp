// The engine's front: admits requests, resolves their seeds, sends each to the engine with the fewest outstanding
// tokens, one session per request. All branches of a request run on one engine, which computes their prompt once.
// Pooled.
#pragma once
#include "actors/session.hpp"
#include "cluster/control_messages.hpp"
#include "runtime/scheduler/engine_choice.hpp"
#include "runtime/scheduler/limits.hpp"
#include <map>
#include <optional>
#include <set>

namespace troupe {

struct open_request { // LOCAL, one way: everything is reported through the record's callback
  std::shared_ptr<const request_record> request;
};

// One way: a request that was refused before it came here; for the metrics.
struct request_refused {
  std::string code;
  std::int32_t branches = 1;
};
TROUPE_FIELDS(request_refused, code, branches)

// LOCAL, one way: an engine takes requests, for the first time or in the place of the one that was lost.
struct engine_joined {
  engine_info engine;
};

// LOCAL, one way: there is no engine, and none will come; empty: some may.
struct engines_given_up {
  std::string why;
};

struct forget_recovered {}; // LOCAL, a reminder to itself
struct still_homeless {     // likewise: of a request that waits for an engine
  std::uint64_t number = 0, turn = 0;
};

struct gateway_query {};
TROUPE_FIELDS(gateway_query)
struct gateway_report {
  std::uint64_t live = 0, served = 0;
  std::vector<std::int64_t> outstanding; // [engines] tokens, as far as it knows (engine_load)
  std::vector<request_metrics> metrics;  // [engines]
};
TROUPE_FIELDS(gateway_report, live, served, outstanding, metrics)

using gateway_actor =
    caf::typed_actor<answers<open_request>, answers<cancel, ack>, answers<request_refused>, answers<done>,
                     answers<scheduler_report>, answers<rank_lost>, answers<engine_joined>, answers<engines_given_up>,
                     answers<place_wanted>, answers<prompt_done>, answers<ledger_failed>, answers<tick>,
                     answers<forget_recovered>, answers<still_homeless>, answers<gateway_query, gateway_report>,
                     answers<drain>, answers<give_up>, answers<stop>>;

struct gateway_setup {
  std::vector<scheduler_actor> schedulers; // [engines] that are there from the start
  bool replays = false; // engines come and go (engine_joined, rank_lost): requests wait for one, and move when theirs
                        // is lost
  std::chrono::milliseconds engine_wait{300000}; // with replays: so long a request waits for an engine, then it ends
  std::uint32_t max_attempts = default_max_attempts; // likewise: engines that may be lost to a request, and one
  std::size_t unacked_messages = 256;                // likewise: to one engine
  // Many clients come and go while it lives: branches that they give up are closed in the ledger, and what nobody asks
  // for within forget_after is no more kept.
  bool serves_others = false;
  std::chrono::milliseconds forget_after{600000};
  scheduler_limits limits; // of each engine; with replays those of the first that joins
  kv_cache_settings kv;    // likewise
  std::shared_ptr<const tokenizer> vocabulary;
  std::string texts; // with replays: as model_identity
  std::vector<std::int32_t> eos_ids;
  std::optional<std::uint64_t> seed;          // of the run
  std::function<std::uint64_t()> random_bits; // 64 random bits of the system
  std::chrono::milliseconds control_limit{30000};
  ledger_keeper_actor ledger;          // of what its requests have; null: memory alone holds it
  std::vector<ledger_entry> recovered; // with a ledger: what earlier processes left in it
};

struct gateway_state {
  gateway_state() = default;
  static inline const char* name = "gateway";
  struct entry {
    session_actor session;
    std::shared_ptr<const request_record> request;
    std::size_t rank = no_engine;                       // of its engine; none while it waits for one
    std::size_t prompt_rank = no_engine;                // of the one that computes its prompt, until that is done
    std::vector<std::uint64_t> sequences;               // [branches]
    std::int64_t cost = 0;                              // tokens: the prompt, and the longest output of each branch
    bool undivided = false;                             // one engine is to compute everything
    bool homeless = false;                              // no engine is there for it
    std::uint64_t turn = 0;                             // how often that has ended
    std::uint32_t losses = 0;                           // of engines that had it
    std::chrono::steady_clock::time_point not_before{}; // while it is homeless: it goes to no engine before
  };
  struct engine {
    scheduler_actor scheduler;
    std::uint64_t joined = 0;                   // how often: what is said of it before it joined again counts no more
    std::optional<std::string> lost;            // why it takes no more requests
    bool asked = false;                         // for its room and its work
    bool ask_again = false;                     // once it has answered: something has changed since
    std::int64_t since_asked = 0;               // tokens that it was given since
    bool in_doubt = false;                      // lost by a session's word alone: it is asked now and then
    request_metrics metrics{};                  // without tokens
    std::shared_ptr<token_counters> counters{}; // null until it is given a request
    handoff_place at;                           // where caches of prompts arrive
    std::shared_ptr<message_window> window = std::make_shared<message_window>(); // of this joining
  };
  gateway_setup setup;
  std::vector<engine> engines;
  std::vector<engine_load> loads; // [engines]
  engine_chooser chooser;
  std::map<std::uint64_t, entry> live; // by req_t::number
  std::vector<std::uint64_t> homeless; // numbers, in the order in which they wait for an engine
  std::set<std::uint64_t> crowded;     // numbers of those that wait for room, which is a matter of time
  bool looking = false;                // for room, some time later
  std::uint64_t next_sequence = 0, next_handoff = 0, served = 0;
  bool stopping = false;
  recovered_branches recovered;
  std::optional<error> closed;  // nothing new is taken
  std::string engines_given_up; // as the message
  watch_list watched;
};

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self, const gateway_setup& setup);

// Seed of a request (exactness.md §6): its own, else from the run's seed and its id, else 53 random bits.
std::uint64_t resolve_seed(const request_record& r, std::optional<std::uint64_t> run_seed,
                           const std::function<std::uint64_t()>& random_bits);

std::uint64_t random_bits_of_system();

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::open_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::engine_joined)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::engines_given_up)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::forget_recovered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::still_homeless)
