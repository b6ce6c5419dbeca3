// A rank of an expert group in the eyes of the group's coordinator (cluster.md §3.3): reports what its slots hold,
// takes new versions of the placement between steps, has experts copied into its slots, says when no step uses an old
// version any more. Pooled; copies run on a thread of their own.
#pragma once
#include "actors/expert_part.hpp"
#include "actors/member.hpp"
#include <deque>
#include <thread>

namespace troupe {

// LOCAL, from the executor's thread: steps use another oldest version.
struct step_version_left {};
// LOCAL, from the copying thread.
struct copy_ended {
  copy_order order;
  sha256_digest digest{};
  std::string failure; // empty: the slot holds bytes of this digest
};

using expert_store_actor =
    caf::typed_actor<answers<rank_slots_query>, answers<publish_slots>, answers<copy_slot>, answers<settle_slots>,
                     answers<refuse_rank>, answers<coordinator_found>, answers<step_version_left>, answers<copy_ended>,
                     answers<load>, answers<stop>>;

// Copies experts into slots, one after the other, from the rank that an order names or from the checkpoint.
class expert_copier {
public:
  explicit expert_copier(std::shared_ptr<expert_part> part);
  ~expert_copier();
  // `done` is called on the copier's thread.
  void copy(const copy_order& order, std::function<void(const copy_ended&)> done);

private:
  struct work {
    copy_order order;
    std::function<void(const copy_ended&)> done;
  };
  void run();
  copy_ended carry_out(const copy_order& order);
  void pull(const copy_order& order, std::span<std::byte> bytes); // throws device_error
  void wait_until(std::chrono::steady_clock::time_point when);    // likewise, if the copier ends meanwhile

  std::shared_ptr<expert_part> part_;
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<work> queue_;
  bool ending_ = false;
  std::uint64_t next_number_ = 1;
  std::thread thread_;
};

struct expert_store_state {
  expert_store_state() = default;
  static inline const char* name = "expert_store";
  std::shared_ptr<expert_part> part;
  std::function<void(const std::string& why)> on_refused;
  std::unique_ptr<expert_copier> copier;
  expert_group_actor group; // null: no coordinator is known
  watch_list watched;
};

// on_refused: the group's coordinator does not take this rank; called on the actor's thread.
expert_store_actor::behavior_type expert_store(expert_store_actor::stateful_pointer<expert_store_state> self,
                                               std::shared_ptr<expert_part> part,
                                               std::function<void(const std::string& why)> on_refused);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_version_left)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::copy_ended)
