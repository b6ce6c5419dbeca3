// A pool of ids 1..n-1 with reference counts: KV blocks and state slots (engine.md §5). Id 0 means none.
#pragma once
#include "runtime/base/ids.hpp"
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

constexpr std::int32_t tokens_per_kv_block = 128;

// Blocks that cover the positions [0, tokens).
constexpr std::int32_t blocks_for(std::int64_t tokens) {
  return static_cast<std::int32_t>((tokens + tokens_per_kv_block - 1) / tokens_per_kv_block);
}

// Whether a demand can be met: now, after others release, or not even by an empty pool.
enum class fit : std::uint8_t { ok, later, never };

// The free list is first in, first out and lies inside the array of entries, so that no call allocates.
// Owned by one thread. Releasing an id that is not in use is a programming error and ends the process.
template <class Id> class id_pool {
public:
  explicit id_pool(std::int32_t size); // ids 0..size-1, size >= 1

  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  std::int32_t free_count() const { return free_; }
  std::int32_t used_count() const { return size() - 1 - free_; }
  double usage() const { return size() > 1 ? static_cast<double>(used_count()) / (size() - 1) : 0; }

  fit can_allocate(std::int32_t count) const;
  // Appends `count` ids from the front of the free list, each with one reference; false, and nothing happens, unless
  // can_allocate(count) is ok.
  bool allocate(std::int32_t count, std::vector<Id>& out);
  // The id at the front of the free list, with one reference; 0 if none is free.
  Id allocate_one();
  // One more reference to an id in use.
  void pin(Id id);
  // Drops one reference of each id, last first; an id without references goes to the back of the free list.
  void release(std::span<const Id> ids);

  std::int32_t references(Id id) const { return entry_of(id).references; }
  // Raised each time the id is allocated: data stamped with an older generation is stale (cluster.md §3.4).
  std::uint32_t generation(Id id) const { return entry_of(id).generation; }

private:
  struct entry {
    std::int32_t next = 0; // in the free list; 0 ends it
    std::int32_t references = 0;
    std::uint32_t generation = 0;
  };
  const entry& entry_of(Id id) const;
  entry& entry_of(Id id) { return const_cast<entry&>(std::as_const(*this).entry_of(id)); }

  std::vector<entry> entries_;
  std::int32_t first_ = 0, last_ = 0; // of the free list, 0 = empty
  std::int32_t free_ = 0;
};

extern template class id_pool<block_id>;
extern template class id_pool<slot_id>;
using block_pool = id_pool<block_id>;
using slot_pool = id_pool<slot_id>;

} // namespace troupe
