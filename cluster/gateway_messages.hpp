// What a client process and a gateway process say to one another (cluster.md §3.1, §3.5): requests one way, what comes
// of them the other. All of it travels over CAF.
#pragma once
#include "cluster/control_messages.hpp"
#include "runtime/request/result_line.hpp"

namespace troupe {

struct attach { // -> attached; the sender may ask for requests from then on, and what it asked for before is dropped
  std::string client;        // for people
  std::string configuration; // digest
  std::string texts;         // as model_identity
};
TROUPE_FIELDS(attach, client, configuration, texts)
struct attached {
  ack_code code = ack_code::ok; // busy: not yet, ask again; else refused for good
  std::string why;
  bool given_up = false;   // with busy: no engine will come, as things are
  bool durable = false;    // its requests survive it: a client may ask the gateway that takes its place for them
  scheduler_limits limits; // of each engine, if ok
  std::string numerics_id; // likewise
  std::uint64_t engines = 0;
};
TROUPE_FIELDS(attached, code, why, given_up, durable, limits, numerics_id, engines)

struct gateway_request {    // -> ack
  std::uint64_t number = 0; // of the client, never used again
  std::string id;           // unique among its live requests
  std::vector<std::int32_t> prompt;
  sampling_params params;
  std::uint64_t seed = 0; // of branch 0
  std::vector<std::int32_t> logit_rows;
  std::int32_t priority = 0, deadline_steps = 0;
  std::string cache_salt;
  std::vector<std::int32_t> chunk_checkpoints;
};
TROUPE_FIELDS(gateway_request, number, id, prompt, params, seed, logit_rows, priority, deadline_steps, cache_salt,
              chunk_checkpoints)
struct gateway_cancel { // one way: its branches end with abort
  std::uint64_t number = 0;
};
TROUPE_FIELDS(gateway_cancel, number)

// Text of a branch that became visible, or its end.
struct branch_news {
  std::uint64_t number = 0;
  std::int32_t branch = 0;
  std::string text, result; // result: pack_result, empty while the branch goes on
};
TROUPE_FIELDS(branch_news, number, branch, text, result)
struct gateway_news { // one way, in order; answered by news_taken. A gateway has few of them under way to one client
  std::vector<branch_news> news;
};
TROUPE_FIELDS(gateway_news, news)
struct news_taken {}; // one way
TROUPE_FIELDS(news_taken)
struct detached { // one way: the gateway does nothing more for this client
  std::string why;
  bool stopped = false; // nor does any other: the cluster was stopped
};
TROUPE_FIELDS(detached, why, stopped)

struct metrics_query {}; // -> metrics_answer
TROUPE_FIELDS(metrics_query)
struct metrics_answer {
  std::string text; // as LLM::metrics
};
TROUPE_FIELDS(metrics_answer, text)

struct waits_query {}; // -> waits_answer
TROUPE_FIELDS(waits_query)
struct waits_answer {
  std::string why; // as LLM::waits_for, of the gateway
};
TROUPE_FIELDS(waits_answer, why)

// A result with all its bits, and back; nothing if the bytes are none.
std::string pack_result(const generation_result& r);
std::optional<generation_result> unpack_result(const std::string& bytes);

} // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe_gateway, caf::id_block::troupe_control::end)
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::attach))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::attached))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::gateway_request))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::gateway_cancel))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::gateway_news))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::news_taken))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::detached))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::metrics_query))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::metrics_answer))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::waits_query))
CAF_ADD_TYPE_ID(troupe_gateway, (troupe::waits_answer))
CAF_END_TYPE_ID_BLOCK(troupe_gateway)

namespace troupe {

// What a gateway process publishes, and what it knows a client as.
using gateway_entry_actor =
    caf::typed_actor<answers<attach, attached>, answers<gateway_request, ack>, answers<gateway_cancel>,
                     answers<news_taken>, answers<metrics_query, metrics_answer>, answers<waits_query, waits_answer>>;
using gateway_reader_actor = caf::typed_actor<answers<gateway_news>, answers<detached>>;

} // namespace troupe
