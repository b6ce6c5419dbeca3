// One request's life on the reader's side: owns the ledgers and the text of its branches, reports their ends. The
// gateway submits the branches in the session's name, so that requests reach an engine in the order of their arrival;
// on another engine (placed) the session submits them itself. Pooled; the reader's callback runs on its thread.
#pragma once
#include "actors/branch.hpp"
#include "actors/ledger_keeper.hpp"
#include "actors/ledger_records.hpp"
#include "actors/live_requests.hpp"
#include "actors/llm.hpp"
#include <chrono>

namespace troupe {

// A request after all checks, on its way to the engines.
struct request_record {
  std::string id;
  req_t req;
  std::vector<std::int32_t> prompt;
  sampling_params params;
  std::vector<std::int32_t> logit_rows;
  bool seed_from_id = false;
  std::int32_t priority = 0, deadline_steps = 0;
  std::string cache_salt;
  std::vector<std::int32_t> chunk_checkpoints{};
  std::function<void(const generation_event&)> on_event;
  std::shared_ptr<live_requests> live;
  std::chrono::steady_clock::time_point accepted{};
};

struct session_setup {
  std::shared_ptr<const request_record> request;
  std::shared_ptr<const tokenizer> vocabulary;
  std::vector<std::int32_t> eos_ids;
  std::uint64_t seed = 0;    // of branch 0
  scheduler_actor scheduler; // of the engine that computes every branch; null: none is there yet
  std::uint32_t rank = 0;    // of that engine
  prompt_place prompt;       // of the engine that computes the prompt of the first branch, if another does
  std::uint64_t joined = 0;  // placed::joined
  std::shared_ptr<message_window> window = std::make_shared<message_window>(); // placed::window
  std::shared_ptr<token_counters> counters;                                    // of that engine
  bool closes_aborted = false; // in the ledger, unless its process is being stopped
  bool replays = false;        // when its engine is lost, another one goes on with the request
  std::uint32_t max_attempts = default_max_attempts;
  std::vector<std::uint64_t> sequences; // [params.n]
  caf::actor gateway;                   // hears done
  ledger_keeper_actor ledger;           // null: what the branches have is in memory alone
  ledger_terms terms;                   // with a ledger
  // Likewise, [params.n]: what earlier processes had. The request is then not submitted before the session is placed.
  std::vector<std::optional<ledger_entry>> recovered;
  std::chrono::milliseconds control_limit{30000};
};

struct session_state {
  session_state() = default;
  static inline const char* name = "session";
  session_setup setup;
  std::vector<branch> branches;
  bool begun = false, prompt_begun = false; // its engine, that of its prompt, compute for it in this attempt
  std::uint32_t unbegun = 0;                // engines that were lost before they did
  std::size_t live = 0;
  // How far the prompt is that setup.prompt's engine computes for this branch: the others begin when there is room.
  enum class handing_stage : std::uint8_t { none, reserving, computing, done };
  handing_stage handing = handing_stage::none;
  std::size_t handed = 0;
  watch_list watched;
  std::vector<req_t> ledger_keys; // [branches] of the ledger: those of the process that admitted them
};

session_actor::behavior_type session(session_actor::stateful_pointer<session_state> self, const session_setup& setup);

// What asks the engine for a branch for the first time.
submit submission(const session_setup& setup, std::size_t index);
// In the name of the session, which the ack goes to.
void send_submission(message_window& through, const session_actor& from, const scheduler_actor& to, submit s);

// LOCAL, one way, to the gateway: the request cannot go on where it is, another place is wanted (placed).
struct place_wanted {
  req_t req;
  bool full = false;      // its engine has no room for it now
  bool undivided = false; // its prompt's cache did not arrive: one engine is to compute everything
  // Of an engine that is lost; null: none is known to be.
  std::uint32_t rank = 0;
  scheduler_actor scheduler;
  std::uint64_t joined = 0; // placed::joined: it may have joined again meanwhile
  std::string why;
};
// Likewise: the engine of its prompt has done its part.
struct prompt_done {
  req_t req;
};

// The ends of all branches of a request that no session ever served.
void end_unserved(const request_record& request, std::uint64_t seed, finish_reason why, const error& failure);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::place_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::prompt_done)
