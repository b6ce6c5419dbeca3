// The experts of one rank of a group, and who may use which slot (cluster.md §3.6): the steps of this rank pin a
// version of the placement, rows of other ranks name slots, copies write slots. All of it by several threads, which
// hold the lock for short: once a step, once a frame of rows.
#pragma once
#include "cluster/expert_frames.hpp"
#include "runtime/experts/expert_routes.hpp"
#include "runtime/experts/expert_slots.hpp"
#include "runtime/model/resident_experts.hpp"
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

// A version of the placement as steps use it. It names slots of processes, not only of ranks: one that was started
// anew may hold other experts.
struct placed_version {
  expert_routes routes;
  std::vector<std::uint64_t> incarnations; // [ranks]
  std::uint64_t number() const { return routes.placement().version; }
};
using shared_version = std::shared_ptr<const placed_version>;

class placed_experts {
public:
  // Filled by `initial`. Nobody routes by it: no process is named before the first published version.
  placed_experts(std::int32_t rank, shared_placement initial, std::unique_ptr<resident_experts> memory);

  std::int32_t rank() const { return rank_; }
  std::int32_t slots_per_rank() const { return slots_per_rank_; }
  resident_experts& memory() const { return *memory_; }
  // Called, without the lock, when the oldest version that steps here use is another; on the executor's thread. Set
  // before the first step.
  std::function<void()> on_quiesced;

  shared_version newest() const;

  // ---- steps of this rank, in their order
  shared_version begin_step();
  void end_step();

  // ---- rows of others
  // Every entry's slot serves its expert, and stays so until give_back. Failure: "not_here".
  status take(std::int32_t layer, std::span<const rows_entry> entries);
  void give_back(std::int32_t layer, std::span<const rows_entry> entries);
  // Whether this rank holds the expert in that slot of the group.
  bool holds(std::int32_t layer, std::int32_t slot, std::int32_t expert) const;

  // ---- orders of the coordinator
  expert_slots::answer publish(shared_placement p, std::vector<std::uint64_t> incarnations);
  // done: the slot is to be written, once wait_unused has returned.
  expert_slots::answer copy(const copy_order& order, const sha256_digest& digest);
  // Rows of a rank that died meanwhile may still be computed: nobody waits for them, but who writes the slot has to.
  void wait_unused(std::int32_t layer, std::int32_t slot);
  expert_slots::answer copied(std::uint64_t mig, std::int32_t layer, std::int32_t slot, const sha256_digest& digest);
  void copy_failed(std::uint64_t mig, std::int32_t layer, std::int32_t slot);
  expert_slots::answer settle(const settle_order& order);
  slot_report report() const;
  std::uint64_t quiesced() const;

private:
  std::size_t cell(std::int32_t layer, std::int32_t local) const;

  const std::int32_t rank_;
  std::int32_t layers_, slots_per_rank_;
  std::unique_ptr<resident_experts> memory_;
  mutable std::mutex guard_;
  std::condition_variable unused_;
  expert_slots slots_;
  shared_version newest_;
  std::vector<std::uint32_t> users_; // [layers, slots_per_rank] frames of rows that use it now
};

} // namespace troupe
