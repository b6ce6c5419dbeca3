// What an LLM stands on: engines of this process, or those of a cluster. Both are reached through a gateway: of this
// process, or one of the cluster's.
#pragma once
#include "actors/cluster_access.hpp"
#include "actors/gateway.hpp"
#include "actors/llm.hpp"
#include "runtime/model/config.hpp"
#include <functional>
#include <memory>
#include <string>

namespace troupe {

// A gateway as an LLM sees it.
using request_taker_actor = caf::typed_actor<answers<open_request>, answers<cancel, ack>, answers<request_refused>>;

// Who takes requests, and what they are checked against before. Does not change.
struct engine_front {
  request_taker_actor gateway;
  std::shared_ptr<live_requests> live = std::make_shared<live_requests>(); // of that gateway
  std::uint64_t origin = 0; // of its requests, unique among the gateways of a cluster
  std::shared_ptr<const tokenizer> vocabulary;
  std::shared_ptr<const model_config> config;
  scheduler_limits limits; // of each engine
  std::string numerics_id;
  std::string description; // for people
};

// LOCAL, one way, to who knows of engines: as LLM::ask_what_is_awaited.
struct awaited_query {
  std::function<void(const std::string&)> told;
};

class backend {
public:
  virtual ~backend() = default; // live requests end with abort
  virtual const engine_front& front() const = 0;
  virtual std::string metrics() const = 0;                                               // as LLM::metrics
  virtual void ask_what_is_awaited(const awaited_query& query) const { query.told({}); } // as LLM::ask_what_is_awaited
};

// Throw config_error or device_error.
std::unique_ptr<backend> make_local_backend(const engine_options& options);
std::unique_ptr<backend> make_cluster_backend(const cluster_access& cluster); // with a gateway of its own
std::unique_ptr<backend> make_gateway_backend(const cluster_access& cluster); // through one of the cluster's

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::awaited_query)
