// The other end of a gateway's door, in a client process: has the requests of this process computed by one gateway of
// the cluster (cluster/gateway_messages.hpp). Finds it through the coordinators. When it is lost, requests wait for the
// process that takes its place if they survive in its ledger, and go on behind the text that their reader has; else
// they end with gateway_lost, and the next ones wait. Detached: connecting blocks.
#pragma once
#include "actors/backend.hpp"
#include "cluster/cluster_identity.hpp"
#include "cluster/gateway_messages.hpp"
#include <chrono>
#include <map>

namespace troupe {

struct gateway_client_query {}; // -> gateway_client_report
TROUPE_FIELDS(gateway_client_query)
struct gateway_client_report { // LOCAL
  gateway_entry_actor entry;   // null while none has taken this client
  bool refused = false;        // for good, or until workers come that node agents have given up
  std::string why;             // likewise
  attached answer;             // of the last one
};

struct gateway_client_setup {
  cluster_identity cluster;
  std::string name, gateway;         // of this process, for people; of the gateway
  std::string texts;                 // as model_identity
  std::optional<std::uint64_t> seed; // of the run
  std::function<std::uint64_t()> random_bits;
  // Of an answer; then the gateway counts as lost. To a request it is longer by what lies before it on the link, which
  // is taken to carry 1 MiB a second at least.
  std::chrono::milliseconds control_limit{10000};
  std::chrono::milliseconds absence_limit{30000}; // without a gateway; then requests end
};

using gateway_client_actor =
    caf::typed_actor<answers<open_request>, answers<cancel, ack>, answers<request_refused>, answers<gateway_news>,
                     answers<detached>, answers<gateway_client_query, gateway_client_report>, answers<awaited_query>,
                     answers<tick>, answers<stop>>;

struct gateway_client_state {
  gateway_client_state() = default;
  static inline const char* name = "gateway_client";
  using clock = std::chrono::steady_clock;
  struct branch {
    std::size_t given = 0, heard = 0; // bytes of text: to the reader, and from the gateway that has it now
    bool ended = false;
  };
  struct request {
    std::shared_ptr<const request_record> record;
    std::uint64_t seed = 0;
    std::vector<branch> branches;
    std::size_t left = 0;
    bool asked = false;   // this gateway, for it
    bool aborted = false; // the gateway was told
  };
  gateway_client_setup setup;
  std::map<std::uint64_t, request> live;  // by req_t::number
  gateway_entry_actor entry;              // null: none is attached
  attached answer;                        // of the last one
  std::uint64_t attachments = 0;          // so far: an answer to an earlier one says nothing of this one
  std::int64_t unanswered_bytes = 0;      // of requests that this gateway was asked for, as they travel
  std::shared_ptr<message_window> window; // to it
  std::size_t next = 0;                   // coordinator to ask
  bool finding = false, refused = false, given_up = false;
  bool stopped = false;                        // with the cluster: nobody comes after it
  std::string why = "no coordinator answered"; // none is attached
  clock::time_point alone_since{};
  watch_list watched;
};

gateway_client_actor::behavior_type gateway_client(gateway_client_actor::stateful_pointer<gateway_client_state> self,
                                                   const gateway_client_setup& setup);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::gateway_client_report)
