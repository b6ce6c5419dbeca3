// One rank of a cluster: an engine that takes requests from the gateways of other processes. Runs until the object
// goes.
#pragma once
#include "actors/cluster_system.hpp"
#include "actors/expert_store.hpp"
#include "actors/member.hpp"
#include "actors/model_process.hpp"
#include "actors/verifier_finder.hpp"
#include <atomic>
#include <mutex>
#include <optional>

namespace troupe {

struct worker_setup {
  process_identity process;
  std::uint32_t rank = 0;      // in the cluster
  endpoint at{"127.0.0.1", 0}; // port 0: any
  engine_options engine;       // engines = 1
  engine_kind kind = engine_kind::normal;
  double kv_watermark = 0.9;        // use of its cache above which no prompt's cache gets room in it
  std::int32_t unacked_tokens = 64; // of a branch, that it may be ahead of what a gateway has taken
  // Prompts are handed over, from engines of kind prompt to those of kind completion.
  struct {
    std::vector<handoff_sender_place> senders; // all engines of kind prompt
    bool shared_memory = true, several_nodes = false;
    endpoint at{"127.0.0.1", 0}; // where bulk bytes arrive that no shared memory carries; port 0: any
    handoff_times times;
    std::size_t credit_bytes = std::size_t{64} << 20;
  } handoffs;
  std::optional<expert_group_place> experts; // that it shares with other workers
  // It is one of the engine.cp ranks of an engine; those after the first have joined it already.
  std::shared_ptr<context_part> ranks;
};

class worker_process {
public:
  // Loads the model and takes requests as soon as all ranks of its engine and its expert group are there: at once where
  // it is alone. Throws config_error or device_error.
  explicit worker_process(const worker_setup& setup);
  ~worker_process(); // what runs ends with an error that lets gateways go elsewhere
  worker_process(const worker_process&) = delete;
  worker_process& operator=(const worker_process&) = delete;

  std::uint16_t port() const { return port_; }
  scheduler_report report() const; // a fresh one if the scheduler does not answer
  // Why the cluster goes on without this process, once it does; its engine may have lost a rank.
  std::optional<std::string> expelled() const;
  bool told_to_stop() const { return told_to_stop_; } // by the cluster

private:
  void tell_keys(member_setup& m);
  void tell_epochs(member_setup& m);
  void enter_group(const started& parts, member_setup& m);
  void enter_engine(const worker_setup& setup, member_setup& m);
  void expel(const std::string& why);
  void end(std::chrono::milliseconds limit);

  std::shared_ptr<context_part> ranks_; // null: its engine is all its own
  std::shared_ptr<bulk_context> bulk_;  // null: everything it talks to shares memory with it
  model_process process_;
  cluster_system_config config_;
  mutable bounded_system system_{config_};
  worker_root_actor root_;
  scheduler_actor scheduler_;    // null: another process leads its engine
  expert_store_actor store_;     // null: it holds all experts itself
  verifier_finder_actor finder_; // null: likewise, or it verifies no drafts
  member_actor member_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::optional<std::string> expelled_;
  std::atomic<bool> told_to_stop_{false};
};

} // namespace troupe
