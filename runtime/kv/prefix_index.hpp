// Which cached block holds which 128 tokens behind which prefix (engine.md §20.4): a radix tree of whole blocks, found
// through a chain hash and verified by ids. Some nodes carry a snapshot: the state slot as it was at the node's end.
// Knows nothing of reference counts: its owner says which nodes nobody uses (idle) and carries out evictions.
#pragma once
#include "runtime/base/ids.hpp"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

using cache_node = strong_id<struct cache_node_tag, std::int32_t>; // 0 = the root, the empty prefix

// The member that was used longest ago comes first; ids 0..size-1, memory allocated once.
class oldest_first {
public:
  explicit oldest_first(std::int32_t size) : place_(static_cast<std::size_t>(size), -1) {
    heap_.reserve(place_.size());
  }
  std::int32_t size() const { return static_cast<std::int32_t>(heap_.size()); }
  bool contains(std::int32_t id) const { return place_[static_cast<std::size_t>(id)] >= 0; }
  std::int32_t first() const { return heap_.empty() ? 0 : heap_.front().id; } // 0 = empty
  void put(std::int32_t id, std::uint64_t used);                              // also moves a member
  void drop(std::int32_t id);                                                 // harmless if it is no member

private:
  struct member {
    std::uint64_t used;
    std::int32_t id;
    auto operator<=>(const member&) const = default;
  };
  void settle(std::size_t at, member m);
  std::vector<member> heap_;
  std::vector<std::int32_t> place_; // of each id in heap_, -1 = no member
};

class prefix_index {
public:
  // Room for `blocks` blocks, dummy 0 included. hash_mask: tests force collisions with it.
  explicit prefix_index(std::int32_t blocks, std::uint64_t hash_mask = ~std::uint64_t{0});

  // The child of `parent` with these ids; root if there is none. `hash` is the chain hash of the child; `salt` counts
  // for children of the root only: what is below them has the same.
  cache_node find(cache_node parent, std::uint64_t hash, std::span<const std::int32_t> ids,
                  const std::shared_ptr<const std::string>& salt) const;
  // A new node, not idle; there must be none with this key.
  cache_node insert(cache_node parent, std::uint64_t hash, std::span<const std::int32_t> ids,
                    const std::shared_ptr<const std::string>& salt, block_id block);
  // Removes a node without children and without snapshot.
  void erase(cache_node n);

  block_id block_of(cache_node n) const { return at(n).block; }
  slot_id snapshot_of(cache_node n) const { return at(n).snapshot; }
  cache_node parent_of(cache_node n) const { return at(n).parent; }
  std::int32_t depth_of(cache_node n) const { return at(n).depth; } // blocks from the start to the node's end
  std::uint64_t hash_of(cache_node n) const { return at(n).hash; }
  bool idle(cache_node n) const { return at(n).idle; }
  cache_node node_of(block_id b) const { return of_block_[static_cast<std::size_t>(b.value)]; } // root = not cached

  void set_idle(cache_node n, bool idle);
  void rebind(cache_node n, block_id block); // from now on this block stands for the node
  void touch(cache_node n, std::uint64_t stamp);
  void attach(cache_node n, slot_id snapshot, std::uint64_t stamp); // the node must have none
  slot_id detach(cache_node n);
  void touch_snapshot(cache_node n, std::uint64_t stamp, std::uint64_t turn);
  std::uint64_t restored_in(cache_node n) const { return at(n).restored_in; } // last turn given to touch_snapshot
  // Sequences whose published prefix ends at the node.
  void add_end(cache_node n, std::int32_t change) { at(n).ends += change; }
  std::int32_t ends(cache_node n) const { return at(n).ends; }

  // What to evict first among idle nodes without children, longest unused first: one without snapshot, as nothing can
  // be hit there or below; else one with. Root if there is none.
  cache_node victim() const { return cache_node{useless_.size() > 0 ? useless_.first() : useful_.first()}; }
  cache_node oldest_snapshot() const { return cache_node{snapshots_.first()}; }

  std::int32_t cached() const { return cached_; }
  std::int32_t idle() const { return idle_; }
  std::int32_t snapshots() const { return snapshots_.size(); }
  bool consistent() const; // slow; for tests

private:
  struct node {
    std::uint64_t hash = 0, used = 0, restored_in = 0;
    cache_node parent;
    std::int32_t children = 0, depth = 0, ends = 0;
    std::int32_t next = 0; // in its bucket, or in the free list
    block_id block;
    slot_id snapshot;
    bool live = false, idle = false;
    std::shared_ptr<const std::string> salt; // at depth 1
  };
  const node& at(cache_node n) const { return nodes_[static_cast<std::size_t>(n.value)]; }
  node& at(cache_node n) { return nodes_[static_cast<std::size_t>(n.value)]; }
  std::size_t bucket(std::uint64_t hash) const {
    return static_cast<std::size_t>(hash & hash_mask_) & (buckets_.size() - 1);
  }
  std::int32_t* ids_of(cache_node n) const;
  void file(cache_node n); // among the victims, where it belongs

  std::uint64_t hash_mask_;
  std::vector<node> nodes_;
  std::unique_ptr<std::int32_t[]> ids_; // 128 per node; untouched pages of a large pool cost nothing
  std::vector<std::int32_t> buckets_;
  std::vector<cache_node> of_block_;
  oldest_first useless_, useful_, snapshots_;
  std::int32_t free_ = 0, cached_ = 0, idle_ = 0;
};

} // namespace troupe
