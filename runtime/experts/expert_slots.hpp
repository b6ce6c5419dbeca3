// The slots of one expert rank while experts move under running steps (cluster.md §3.6): states, digests, the versions
// of the placement that steps still use, and what must hold over all ranks. Bytes are somebody else's.
#pragma once
#include "runtime/base/sha256.hpp"
#include "runtime/experts/placement.hpp"
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

enum class slot_state : std::uint8_t {
  empty,
  loading,  // being written by migration `mig`
  ready,    // written, digest matched, no version of this rank names it yet
  active,   // named by the rank's newest version
  vacating, // named by older versions only: steps may still use it
  lost      // its bytes proved wrong
};

struct expert_slot {
  slot_state state = slot_state::empty;
  std::int32_t expert = -1;
  std::uint64_t mig = 0;     // last migration that wrote it, 0 = filled at start; a lower one is stale
  std::uint64_t version = 0; // vacating, lost: the last version here that named it
  sha256_digest digest{};    // loading: that its bytes shall have
  bool operator==(const expert_slot&) const = default;
};

// Rows may be sent there. A rank that has a version later than its peers finds its slots ready, not active, at theirs.
inline bool serves(const expert_slot& s) {
  return s.state == slot_state::ready || s.state == slot_state::active || s.state == slot_state::vacating;
}

// Digest of the right bytes of every expert, [layers, experts].
struct expert_digests {
  std::int32_t experts = 0;
  std::vector<sha256_digest> digest;
  const sha256_digest& of(std::int32_t layer, std::int32_t expert) const {
    return digest[static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts) +
                  static_cast<std::size_t>(expert)];
  }
};

using shared_placement = std::shared_ptr<const expert_placement>;

struct copy_order {
  std::uint64_t mig = 0;
  std::int32_t layer = 0, slot = 0, expert = 0; // slot: of the group
  std::int32_t source = -1;                     // slot of the group that holds the expert, -1 = the backup store
  std::uint64_t floor = 0;                      // every live rank has quiesced this version
  bool operator==(const copy_order&) const = default;
};

// What a rank may forget, once its newest version is at least as_of: slots that no version from `floor` on names are
// empty, and so is what migrations before migs_below wrote and no version names.
struct settle_order {
  std::uint64_t floor = 0, as_of = 0, migs_below = 0;
  bool operator==(const settle_order&) const = default;
};

// Answer to `slots`.
struct slot_report {
  std::int32_t rank = 0;
  std::uint64_t quiesced = 0;
  shared_placement placement;     // newest version
  std::vector<expert_slot> slots; // [layers, slots_per_rank]
};

class expert_slots {
public:
  enum class answer : std::uint8_t { done, repeated, stale, wrong_state };

  // Filled by the placement at start: its experts are active with their right digests.
  expert_slots(std::int32_t rank, shared_placement initial, const expert_digests& digests);

  // A newer version, between steps. wrong_state, and nothing changes, if it names a slot here that does not hold the
  // expert.
  answer publish(shared_placement p);
  // done: write the slot now; whoever wrote it before stops (I4). repeated: it is being written or was.
  answer copy(const copy_order& order, const sha256_digest& digest);
  // The bytes are there: done if they are what was ordered, else the slot is empty again (I5).
  answer copied(std::uint64_t mig, std::int32_t layer, std::int32_t slot, const sha256_digest& digest);
  // The copy came to nothing.
  void copy_failed(std::uint64_t mig, std::int32_t layer, std::int32_t slot);
  answer settle(const settle_order& order);
  // An audit found other bytes than the digest says: the slot serves nobody any more.
  void damaged(std::int32_t layer, std::int32_t slot);

  // A step pins the newest version; steps end in the order in which they began.
  shared_placement begin_step();
  void end_step();
  // All steps under way are void (a rank died).
  void abort_steps() { running_.clear(); }

  std::int32_t rank() const { return rank_; }
  const shared_placement& newest() const { return newest_; }
  std::uint64_t version() const { return newest_->version; }
  std::uint64_t quiesced() const { return running_.empty() ? version() : running_.front()->version; }
  // Versions that this rank routes by, oldest first, the newest last.
  std::vector<shared_placement> in_use() const;
  const std::vector<expert_slot>& table() const { return slots_; }    // [layers, slots_per_rank]
  const expert_slot& at(std::int32_t layer, std::int32_t slot) const; // slot of the group
  slot_report report() const { return {rank_, quiesced(), newest_, slots_}; }

private:
  expert_slot& slot_at(std::int32_t layer, std::int32_t slot);

  std::int32_t rank_;
  shared_placement newest_;
  std::deque<shared_placement> running_;
  std::vector<expert_slot> slots_;
};

// Invariants I1, I2 and I5 over the live ranks, of which every one may use the versions in in_use(): what is broken
// first, or an empty string. I1 counts experts that a version keeps on ranks which died as lost, not as broken: steps
// under such a version cannot end.
std::string broken_invariant(std::span<const expert_slots* const> live, const expert_digests& digests);

// Invariants I3 and I4, and I2 within one slot, from one state of a rank to a later one.
std::string broken_transition(const expert_slots& before, const expert_slots& after);

} // namespace troupe
