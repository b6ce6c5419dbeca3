// The door of a gateway process: takes the requests of client processes to the gateway, and what comes of them back
// (cluster/gateway_messages.hpp). A client that is lost, or takes nothing for long, has its requests aborted. What a
// client has not taken yet is held here, in order; a request counts for the limits of the queue until its client has
// taken its end, so that what is held is bounded by what was admitted. Pooled.
#pragma once
#include "actors/gateway_parts.hpp"
#include "actors/live_requests.hpp"
#include "cluster/gateway_messages.hpp"
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <set>

namespace troupe {

struct gateway_limits {
  std::int64_t requests = 4096;                  // live, or ended and not taken yet
  std::int64_t tokens = std::int64_t{64} << 20;  // of these: prompts and max_tokens of all branches
  std::chrono::milliseconds taking_limit{30000}; // one batch of news; then the client is given up
};

// LOCAL, one way, from sessions: text or the end of a branch of one of the gateway's requests.
struct session_news {
  std::uint64_t number = 0; // of this process
  generation_event event;
};

// Detached, because it waits for others' answers.
using metrics_teller_actor = caf::typed_actor<answers<metrics_query, metrics_answer>, answers<stop>>;

struct gateway_entry_setup {
  std::string name;          // of the process
  std::string configuration; // digest, which clients must have too
  std::string texts;         // as model_identity, likewise
  std::uint64_t origin = 0;  // of its requests: the incarnation of the process
  bool durable = false;      // attached::durable
  std::int32_t vocab = 0;    // token ids of the model
  gateway_limits limits;
  gateway_actor gateway;
  engine_directory_actor directory;
  metrics_teller_actor metrics;
  std::function<void(const std::string& why)> on_failed; // the gateway has ended: the process can do nothing more
  std::shared_ptr<std::atomic<std::uint64_t>> live;      // requests that count for the limits, for others to read
  std::shared_ptr<std::atomic<bool>> cluster_stops;      // what clients are told at the end
};

// As gateway_entry_actor, and what comes from this process.
using gateway_door_actor =
    caf::typed_actor<answers<attach, attached>, answers<gateway_request, ack>, answers<gateway_cancel>,
                     answers<news_taken>, answers<metrics_query, metrics_answer>, answers<waits_query, waits_answer>,
                     answers<session_news>, answers<tick>, answers<stop>>;

struct gateway_entry_state {
  gateway_entry_state() = default;
  static inline const char* name = "gateway_entry";
  using clock = std::chrono::steady_clock;
  struct amount { // of admitted requests
    std::int64_t requests = 0, tokens = 0;
  };
  struct request {
    caf::actor_addr reader;   // null: the client is gone
    std::uint64_t number = 0; // of the client
    std::vector<bool> open;   // [branches]
    std::int64_t tokens = 0;
  };
  struct held_news {
    branch_news news;
    amount ends; // of the request whose last end this is
  };
  struct batch {
    clock::time_point sent;
    amount ends; // of the requests whose ends it carries
  };
  struct client {
    std::string name;
    gateway_reader_actor reader;
    std::shared_ptr<live_requests> live = std::make_shared<live_requests>();
    std::map<std::uint64_t, std::uint64_t> numbers; // of this process, by those of the client, of live requests
    std::deque<held_news> held;
    std::deque<batch> out; // sent and not taken yet
  };
  gateway_entry_setup setup;
  std::map<caf::actor_addr, client> clients;
  std::map<std::uint64_t, request> live; // by number of this process
  std::uint64_t next_number = 0;
  amount admitted;
  attached front; // what a client is told; busy until engines are there
  engines_at_start at_start;
  bool asking = false;   // the directory
  std::string waits_for; // what it said last: directory_report
  watch_list watched;
};

gateway_door_actor::behavior_type gateway_entry(gateway_door_actor::stateful_pointer<gateway_entry_state> self,
                                                const gateway_entry_setup& setup);

metrics_teller_actor::behavior_type metrics_teller(metrics_teller_actor::pointer self,
                                                   std::function<std::string()> text);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::session_news)
