// A process's part in an engine whose context-parallel ranks are processes (cluster.md §3.8). Rank 0 is the engine for
// everybody else: it has the scheduler, and sends the others its steps. The ranks are one failure unit: when one of
// them fails, dies, leaves or is late, all end, and those that are started anew are another group. A group has the name
// of its rank 0's incarnation; the others look for one that waits for them: in the memory of their host or, where not
// all ranks run on one node, among the members of the cluster.
#pragma once
#include "actors/context_hosts.hpp"
#include "actors/context_place.hpp"
#include "runtime/model/context_group.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace troupe {

// What rank 0 tells the others before they load: the numbers of blocks and slots in its plans have to be theirs, too.
struct context_shape {
  std::int32_t kv_blocks = 0, snapshots = 0;
  std::string model; // and how it is computed
};

class context_part {
public:
  explicit context_part(const context_place& place);
  ~context_part(); // the others see it leave
  context_part(const context_part&) = delete;
  context_part& operator=(const context_part&) = delete;

  const context_place& place() const { return place_; }
  bool leads() const { return place_.rank == 0; }

  // First, and before anything else is asked: rank 0 makes the group, the others join one (both throw config_error).
  // known: on several nodes, the members of the cluster. False: no group waits for this rank at the moment.
  void lead(const context_shape& shape);
  bool join(const std::vector<member_entry>& known = {});
  const context_shape& shape() const { return shape_; }

  // Carries what goes to ranks on other nodes; without it, a context of its own and no encryption.
  void use(std::shared_ptr<bulk_context> bulk) { bulk_ = std::move(bulk); }
  // For this rank's engine, once. Throws config_error.
  std::unique_ptr<context_group> make_group();
  // Of rank 0: `own`, whose steps go to the others, too.
  std::shared_ptr<step_engine> make_sender(std::shared_ptr<step_engine> own);

  // On several nodes: what the others have to hear of this rank, and what the cluster says of them. After make_group().
  context_entry entry() const;
  void hear(const view& v);

  // on_lost is called once, on any thread, when the group ends. follower: the engine of another rank than 0, which
  // computes from now on.
  void start(std::function<void(const std::string& why)> on_lost, std::shared_ptr<step_engine> follower = nullptr);
  void be_ready();                                     // steps may come
  void fail(const std::string& why);                   // this rank can take none any more: the group ends
  bool able() const;                                   // all ranks are ready, and the group has not ended
  std::uint64_t steps() const { return steps_taken_; } // of another rank than 0
  void stop();                                         // on_lost is not called any more

private:
  void end(const std::string& why); // the meeting and the steps, of all ranks
  void watch();
  void follow(std::shared_ptr<step_engine> own);

  context_place place_;
  context_shape shape_;
  std::shared_ptr<bulk_context> bulk_;
  std::unique_ptr<context_hosts> hosts_; // null: all ranks share memory
  std::shared_ptr<meeting> board_;
  std::vector<std::shared_ptr<step_carrier>> carriers_; // of rank 0, until its sender has them
  std::optional<step_board_executor> orders_;           // of the others, until the follower has it
  mutable std::mutex guard_;                            // of what follows; held while on_lost is called
  std::condition_variable changed_;
  std::function<void(const std::string&)> on_lost_;
  std::string why_; // the group has ended; empty: it has not
  bool stopping_ = false;
  std::atomic<std::uint64_t> steps_taken_{0};
  std::thread watcher_, follower_;
};

} // namespace troupe
