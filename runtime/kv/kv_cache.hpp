// The one owner of KV blocks and state slots of an engine: tables of running sequences, and the prefix cache that keeps
// what they leave behind (engine.md §5, §20.4; exactness.md §8). Answers one kv_want per step; holds no KV itself.
#pragma once
#include "runtime/kv/block_pool.hpp"
#include "runtime/kv/kv_turn.hpp"
#include "runtime/kv/prefix_index.hpp"
#include "runtime/kv/sequence_map.hpp"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct kv_cache_settings {
  std::int32_t blocks = 1; // of the pool, dummy 0 included
  std::int32_t slots = 1;  // dummy 0, max_num_seqs, snapshot_slots
  std::int32_t snapshot_slots =
      0; // at most this many wait to be published; slots without sequence hold more, until needed
  std::string numerics_id, model_id;
  std::uint64_t hash_mask = ~std::uint64_t{0}; // tests force collisions with it
};

// Counted since the start, unless said otherwise.
struct kv_statistics {
  std::uint64_t turns = 0;
  std::uint64_t admitted = 0;       // sequences
  std::uint64_t lookups = 0;        // of them with hit_limit > 0
  std::uint64_t hits = 0;           // of them with a prefix from the cache
  std::uint64_t queried_tokens = 0; // of the prompts looked up
  std::uint64_t hit_tokens = 0;
  std::uint64_t forks = 0;
  std::uint64_t deferred = 0;          // growths and admissions answered with later
  std::uint64_t published_blocks = 0;  // new in the cache
  std::uint64_t duplicate_blocks = 0;  // published, but equal to a cached one
  std::uint64_t evicted_blocks = 0;    // left the cache
  std::uint64_t snapshots_kept = 0;    // became findable
  std::uint64_t snapshots_refused = 0; // no slot to be had, or of no use
  std::uint64_t snapshots_dropped = 0; // never became findable: sequence released, or prefix had one
  std::uint64_t snapshots_evicted = 0; // for a slot, or with their block
  std::int32_t cached_blocks = 0;      // now
  std::int32_t cached_idle_blocks = 0; // now, used by no sequence
  std::int32_t cached_snapshots = 0;   // now
  std::int32_t used_blocks = 0;        // now, idle cached ones not counted
  std::int32_t used_slots = 0;         // now, findable snapshots not counted
};

// Rules beyond those of kv_turn.hpp:
// * A hit ends at the deepest snapshot at or before hit_limit; its blocks are shared, its state is copied. A sequence
// that
//   came in by a hit or a fork continues to publish behind what is cached: at position `computed` of a hit, and for a
//   fork at its parent's published position, if that lies before fork_at, else at floor(fork_at / 128) blocks.
// * A snapshot that is wanted at or before a published position, or of an unknown sequence, is refused (slot 0). A
//   rolling one takes the place of its predecessor when it can be found itself.
// * Sequences come first: they evict idle cached blocks, and snapshots when slots run out. Longest unused goes first,
// leaf
//   first, blocks that no snapshot covers before others. Used: published, hit, or released by a sequence that had it.
// * restore_from 0 with a hit: the slot is the snapshot itself, which was the only slot left.
// * Unknown ids: release is harmless; a fork of one is never; anything else is a programming error, as is the admission
// of
//   an id that is live. A fork of a sequence admitted in the same turn comes later.
class kv_cache {
public:
  explicit kv_cache(const kv_cache_settings& settings);

  // `got` is overwritten, its memory reused. Allocates nothing in turns that only publish, grow and release, once
  // tables and vectors have their sizes.
  void turn(const kv_want& want, kv_got& got);

  kv_statistics statistics() const;
  std::size_t sequences() const { return by_id_.size(); }
  // Blocks of a live sequence in order; empty for an unknown one. Valid until the next turn.
  std::span<const block_id> table(sequence_id id) const;
  const block_pool& blocks() const { return blocks_; }
  const slot_pool& slots() const { return slots_; }
  // Slow; for tests: references of every id = its tables, snapshots and index entry; the index agrees with itself.
  bool conserved() const;

private:
  struct unfilled {
    std::int32_t at;
    slot_id slot;
    bool rolling;
  };
  struct sequence {
    sequence_id id;
    bool live = false;
    std::vector<block_id> table;
    slot_id slot;
    std::shared_ptr<const std::string> salt;
    cache_node end;          // of its published prefix
    std::uint64_t chain = 0; // hash there
    std::int32_t published = 0;
    std::int32_t frozen = 0;         // leading blocks that may be shared and are never written again
    std::vector<unfilled> snapshots; // whose position is not published
    cache_node rolling;              // where its rolling snapshot is; valid while slot and generation agree
    slot_id rolling_slot;
    std::uint32_t rolling_generation = 0;
    std::uint64_t since = 0; // turn of admission
  };
  struct demand; // of an admission

  sequence& known(sequence_id id);
  void publish(sequence& s, std::span<const std::int32_t> ids);
  void keep_snapshot(sequence& s);
  void drop_rolling(sequence& s);
  void release(sequence_id id);
  kv_got::blocks_at grow(const kv_want::growth& g, kv_got& got);
  slot_id snapshot(const kv_want::snapshot& w);
  kv_got::admitted admit(const kv_want::admission& a, kv_got& got);
  bool find_sources(const kv_want::admission& a, demand& d);
  void find_hit(const kv_want::admission& a, demand& d);
  fit judge(const kv_want::admission& a, demand& d);
  void share(sequence& s, const kv_want::admission& a, const demand& d);
  void give_state(sequence& s, const kv_want::admission& a, const demand& d, kv_got::admitted& given);
  void count_admission(const kv_want::admission& a, const demand& d);
  sequence& new_sequence(sequence_id id);
  void move_end(sequence& s, cache_node to);

  bool slot_to_be_had() const;
  slot_id take_slot();
  bool has_room(std::int32_t blocks) const { return blocks <= blocks_.free_count() + index_.idle(); }
  void make_room(std::int32_t blocks);
  void evict_one();
  void replace(cache_node n, block_id own);
  void evict_snapshot(cache_node n);
  void reclaim_duplicates();
  bool references_agree() const;

  block_pool blocks_;
  slot_pool slots_;
  prefix_index index_;
  std::int32_t snapshot_slots_;
  std::string numerics_id_, model_id_;
  std::vector<sequence> sequences_;
  std::vector<std::int32_t> free_sequences_;
  sequence_map by_id_;
  std::vector<cache_node> path_; // of the hit that is being given
  std::int32_t unfilled_ = 0;    // snapshots that are not published
  std::uint64_t turn_ = 0, stamp_ = 0;
  kv_statistics counts_;
};

} // namespace troupe
