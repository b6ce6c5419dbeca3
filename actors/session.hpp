// One request's life on the reader's side: owns the ledgers and the text of its branches, reports their ends. The
// gateway submits the branches in the session's name, so that requests reach an engine in the order of their arrival;
// a session whose output is constrained submits them itself, once its constraint is compiled. Pooled; the reader's
// callback runs on its thread.
#pragma once
#include "actors/branch.hpp"
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
  std::function<void(const generation_event&)> on_event;
  std::shared_ptr<live_requests> live;
  std::chrono::steady_clock::time_point accepted{};
};

struct session_setup {
  std::shared_ptr<const request_record> request;
  std::shared_ptr<const tokenizer> vocabulary;
  std::vector<std::int32_t> eos_ids;
  std::uint64_t seed = 0;               // of branch 0
  scheduler_actor scheduler;            // of the engine that computes every branch
  std::uint32_t rank = 0;               // of that engine
  std::vector<std::uint64_t> sequences; // [params.n]
  caf::actor gateway;                   // hears done
  grammar_pool_actor grammars;          // null: none is there any more
  std::chrono::milliseconds control_limit{30000};
};

struct session_state {
  session_state() = default;
  static inline const char* name = "session";
  session_setup setup;
  std::vector<branch> branches;
  std::size_t live = 0;
  bool waits_for_grammar = false; // then nothing was submitted yet
  watch_list watched;
};

session_actor::behavior_type session(session_actor::stateful_pointer<session_state> self, const session_setup& setup);

// Why a request with a constraint is refused when nobody compiles any.
error no_grammar_pool();

// What asks the engine for a branch. The ack goes to the session, under msg_id = index.
submit submission(const session_setup& setup, std::size_t index);

// The ends of all branches of a request that no session ever served.
void end_unserved(const request_record& request, std::uint64_t seed, finish_reason why, const error& failure);

} // namespace troupe
