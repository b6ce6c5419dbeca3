// Who owns which KV blocks and state slots of one engine: whole-sequence reservations, given together or not at all.
#pragma once
#include "runtime/kv/block_pool.hpp"
#include <unordered_map>

namespace troupe {

struct kv_holding {
  std::vector<block_id> blocks;
  slot_id slot;
};

class kv_book {
public:
  // Sizes count the dummy id 0 of each pool.
  kv_book(std::int32_t blocks, std::int32_t slots) : blocks_(blocks), slots_(slots) {}

  // Blocks and one state slot for a sequence. A sequence that already holds something gets ok and keeps what it has, so
  // that a repeated order is harmless. Both pools must have room; never, if the blocks exceed an empty pool.
  fit reserve(sequence_id owner, std::int32_t blocks);
  // What a sequence holds; null if nothing. Valid until the next call that changes the book.
  const kv_holding* find(sequence_id owner) const;
  // False if it held nothing.
  bool release(sequence_id owner);

  const block_pool& blocks() const { return blocks_; }
  const slot_pool& slots() const { return slots_; }
  std::size_t owners() const { return holdings_.size(); }
  // Every id is free or owned by exactly one sequence.
  bool conserved() const;

private:
  block_pool blocks_;
  slot_pool slots_;
  std::unordered_map<sequence_id, kv_holding> holdings_;
};

} // namespace troupe
