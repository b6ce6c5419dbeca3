// What an LLM stands on: engines of this process, or those of a cluster. Both are reached through a gateway: of this
// process, or one of the cluster's.
#pragma once
#include "actors/cluster_access.hpp"
#include "actors/gateway.hpp"
#include "actors/llm.hpp"
#include "runtime/model/config.hpp"
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

class backend {
public:
  virtual ~backend() = default; // live requests end with abort
  virtual const engine_front& front() const = 0;
  virtual std::string metrics() const = 0; // as LLM::metrics
};

// Throw config_error or device_error.
std::unique_ptr<backend> make_local_backend(const engine_options& options);
std::unique_ptr<backend> make_cluster_backend(const cluster_access& cluster); // with a gateway of its own
std::unique_ptr<backend> make_gateway_backend(const cluster_access& cluster); // through one of the cluster's

} // namespace troupe
