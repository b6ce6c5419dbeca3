#include "runtime/kv/kv_book.hpp"
#include <algorithm>

namespace troupe {

fit kv_book::reserve(sequence_id owner, std::int32_t blocks) {
  if (holdings_.contains(owner))
    return fit::ok;
  const fit of_blocks = blocks_.can_allocate(blocks), of_slots = slots_.can_allocate(1);
  if (of_blocks != fit::ok || of_slots != fit::ok)
    return std::max(of_blocks, of_slots);
  kv_holding& h = holdings_[owner];
  std::vector<slot_id> slot;
  blocks_.allocate(blocks, h.blocks);
  slots_.allocate(1, slot);
  h.slot = slot.front();
  return fit::ok;
}

const kv_holding* kv_book::find(sequence_id owner) const {
  const auto at = holdings_.find(owner);
  return at == holdings_.end() ? nullptr : &at->second;
}

bool kv_book::release(sequence_id owner) {
  const auto at = holdings_.find(owner);
  if (at == holdings_.end())
    return false;
  blocks_.release(at->second.blocks);
  slots_.release(std::span(&at->second.slot, 1));
  holdings_.erase(at);
  return true;
}

bool kv_book::conserved() const {
  std::vector<std::int32_t> of_block(static_cast<std::size_t>(blocks_.size())),
      of_slot(static_cast<std::size_t>(slots_.size()));
  for (const auto& [owner, h] : holdings_) {
    for (const block_id b : h.blocks)
      ++of_block[static_cast<std::size_t>(b.value)];
    ++of_slot[static_cast<std::size_t>(h.slot.value)];
  }
  std::int32_t owned_blocks = 0, owned_slots = 0;
  for (std::int32_t b = 1; b < blocks_.size(); ++b) {
    if (of_block[static_cast<std::size_t>(b)] != blocks_.references(block_id{b}) ||
        of_block[static_cast<std::size_t>(b)] > 1)
      return false;
    owned_blocks += of_block[static_cast<std::size_t>(b)];
  }
  for (std::int32_t s = 1; s < slots_.size(); ++s) {
    if (of_slot[static_cast<std::size_t>(s)] != slots_.references(slot_id{s}) ||
        of_slot[static_cast<std::size_t>(s)] > 1)
      return false;
    owned_slots += of_slot[static_cast<std::size_t>(s)];
  }
  return owned_blocks == blocks_.used_count() && owned_slots == slots_.used_count() && of_block[0] == 0 &&
         of_slot[0] == 0;
}

} // namespace troupe
