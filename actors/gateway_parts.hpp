// A gateway for the engines of a cluster with what it needs beside it: the directory of engines and, with a ledger on
// disk, its keeper. In a gateway process, or in the process of a client that is its own gateway.
#pragma once
#include "actors/engine_directory.hpp"
#include "actors/request_ledger.hpp"
#include "runtime/model/config.hpp"
#include "runtime/request/ledger.hpp"
#include <memory>
#include <optional>
#include <string>

namespace troupe {

struct gateway_source {
  std::string model;                             // folder: configuration and vocabulary are read, no weights
  std::optional<std::uint64_t> seed;             // of the run
  std::shared_ptr<request_ledger> ledger;        // null: memory alone holds what its requests have
  bool serves_others = false;                    // gateway_setup
  std::chrono::milliseconds engine_wait{300000}; // gateway_setup
  std::uint32_t max_attempts = default_max_attempts;
  std::size_t unacked_messages = 256; // gateway_setup
  engine_workers engines;             // engine_directory
};

// What requests are checked and written with. Throws config_error: no such model.
struct model_texts {
  std::shared_ptr<const model_config> config;
  std::shared_ptr<const tokenizer> vocabulary;
  std::string digest; // as model_identity::texts
};
model_texts load_texts(const std::string& model);

class gateway_parts {
public:
  gateway_parts(caf::actor_system& system, const gateway_source& source); // throws config_error: no such model
  gateway_parts(const gateway_parts&) = delete;
  gateway_parts& operator=(const gateway_parts&) = delete;

  // Live requests end with abort. All that is left of the system then ends within half a minute, or the process does.
  void end();
  directory_report engines(caf::scoped_actor& self) const;
  // As LLM::metrics. Blocks.
  std::string metrics(const std::string& cluster) const;

  const model_texts texts;
  gateway_actor gateway;
  engine_directory_actor directory;

private:
  caf::actor_system& system_;
  ledger_keeper_actor ledger_; // null without a ledger
};

} // namespace troupe
