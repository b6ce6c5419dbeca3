// What a scheduler asks of the KV manager before a step, and the answer: one message each way per step, so that blocks
// have one owner and a step costs one round trip (engine.md §20.1). Flat vectors; both objects are reused.
#pragma once
#include "runtime/base/ids.hpp"
#include "runtime/kv/block_pool.hpp"
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// The first position behind `position` where a prompt's state is kept for others, 0 if there is none: multiples of
// `interval` (0 = none of these) inside the prompt, the multiples of 128 at or before its checkpoints (ascending), and
// the last multiple of 128 that leaves the rows to compute that every such prompt computes itself. Chunks of a prompt
// never run over such a position.
constexpr std::int32_t next_snapshot(std::int32_t position, std::int32_t prompt, std::int32_t interval,
                                     std::int32_t own_rows = 1, std::span<const std::int32_t> checkpoints = {}) {
  const auto to_block = [](std::int32_t at) { return at / tokens_per_kv_block * tokens_per_kv_block; };
  const std::int32_t last = to_block(prompt > own_rows ? prompt - own_rows : 0);
  if (position >= last)
    return 0;
  const std::int32_t next = std::min(interval > 0 ? (position / interval + 1) * interval : last, last);
  const auto checkpoint = std::ranges::upper_bound(checkpoints, position, {}, to_block);
  return checkpoint == checkpoints.end() ? next : std::min(next, to_block(*checkpoint));
}

// Carried out in the order of the fields.
struct kv_want {
  // Committed ids of whole blocks that follow the ones that the sequence published before: from now on others may find
  // them. ids holds 128 * blocks entries per publication, one publication after the other.
  struct publication {
    sequence_id id;
    std::int32_t blocks = 0;
  };
  // The table of a running sequence is to have this many blocks.
  struct growth {
    sequence_id id;
    std::int32_t blocks = 0;
  };
  // A slot to keep the sequence's state in as of position `at`, a multiple of 128: this step or a later one fills it,
  // and it can be found once this sequence has published the blocks before `at`; if it is released before that, the
  // slot is free again. Wanted once per position. `rolling`: replaces the sequence's last rolling snapshot.
  struct snapshot {
    sequence_id id;
    std::int32_t at = 0;
    bool rolling = false;
  };
  // A new sequence, or one that was preempted. Served in order; after the first that does not fit, none is served.
  struct admission {
    sequence_id id;
    std::shared_ptr<const std::vector<std::int32_t>> prompt;
    std::shared_ptr<const std::string> salt; // tenants do not find each other's blocks; null = the common one
    std::int32_t hit_limit = 0;              // longest prefix that may come from the cache, in tokens; 0 = none
    std::int32_t rows = 0; // the table is to cover so many positions behind the hit or fork_at, at most the prompt
    std::int32_t room = 0; // it fits if so many blocks, and those of the rest of its prompt, are free afterwards
    // Also a snapshot (not rolling) at next_snapshot(computed, prompt size, snapshot_interval, own_rows, checkpoints),
    // or at the answer's parts_at if that comes first, if it is not 0 and at most computed + rows. -1 = none.
    std::int32_t snapshot_interval = -1;
    std::int32_t own_rows = 1;
    std::shared_ptr<const std::vector<std::int32_t>> checkpoints{}; // null = none
    // Not 0: starts as a copy of this running sequence at position fork_at, sharing its whole blocks before that.
    // Counts as having published what that one has published of these.
    sequence_id fork_of;
    std::int32_t fork_at = 0;
  };

  std::vector<publication> publish;
  std::vector<std::int32_t> ids;
  std::vector<sequence_id> release; // all blocks and the slot
  std::vector<growth> grow;
  std::vector<snapshot> snapshots;
  std::vector<admission> admit;
  bool empty() const {
    return publish.empty() && release.empty() && grow.empty() && snapshots.empty() && admit.empty();
  }
  void clear() { publish.clear(), ids.clear(), release.clear(), grow.clear(), snapshots.clear(), admit.clear(); }
};

struct kv_got {
  struct blocks_at {
    fit outcome = fit::ok;             // of a growth: ok or later; then nothing changed
    std::int32_t first = 0, count = 0; // new blocks, appended to the table: range of kv_got::blocks
  };
  struct admitted {
    fit outcome = fit::ok;             // later also for everything behind the first that did not fit
    std::int32_t first = 0, count = 0; // the whole table: range of kv_got::blocks
    slot_id slot;
    std::int32_t computed = 0; // positions that are in the cache: a hit, or fork_at
    // Where the prompt parts from cached blocks, behind the last state that is kept of them: worth a snapshot, as
    // others may part there too. 0 = nowhere behind `computed`.
    std::int32_t parts_at = 0;
    slot_id restore_from; // the state at that position is copied from here; 0 = nothing to copy
    block_id copy_from;   // fork: the partly filled block to copy into block computed / 128 of the table; 0 = none
    slot_id snapshot;     // 0 = none wanted or to be had
    std::int32_t snapshot_at = 0;
  };
  std::vector<blocks_at> grow;    // one per want.grow
  std::vector<slot_id> snapshots; // one per want.snapshots; 0 = none to be had
  std::vector<admitted> admit;    // one per want.admit
  std::vector<block_id> blocks;
  std::int32_t free_blocks = 0; // after the turn: free or held by the prefix cache alone
  std::int32_t free_slots = 0;
  void clear() { grow.clear(), snapshots.clear(), admit.clear(), blocks.clear(), free_blocks = free_slots = 0; }
};

} // namespace troupe
